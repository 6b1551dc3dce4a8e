//! What the queue itself costs a request: arriving, being granted, giving the lease back.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and measures real time"
)]

use std::collections::VecDeque;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use gglib_core::admission::{Admission, Command, Event, Profile, Settings, Ticket};
use gglib_core::config::{self, Sources};
use gglib_core::model::{Catalog, ModelName, ModelSpec};
use gglib_core::moment::Moment;
use gglib_core::ports::{Refused, Residency, Waiting};
use gglib_runtime::admission::Pool;
use gglib_runtime::engine::{GuardCommand, LaunchSettings, Launcher, guard};

use super::upstream;

const WAITERS: [u64; 3] = [1, 100, 10_000];
const REQUESTS: u32 = 10_000;
const ROUNDS: usize = 5;

/// Microseconds per request, with so many others waiting for the same engine all the time: of the machine alone, and
/// of the pool, whose owner task is told by messages. `xtask` is this program; `gglib` lies beside it.
///
/// # Errors
/// When the pool's engine does not start.
pub fn run(xtask: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let pool = runtime.block_on(async { pool(xtask, scratch.path()) })?;
    println!(
        "Changed from the defaults: admission.queue, engine.binary.\n\
         admission, µs for enter + grant + release (median of {ROUNDS} rounds of {REQUESTS} requests):\n\
         waiting   machine      pool"
    );
    for waiters in WAITERS {
        let (mut alone, mut pooled) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            alone.push(round(waiters));
            pooled.push(runtime.block_on(runtime.spawn(pool_round(Arc::clone(&pool), waiters)))??);
        }
        println!("{waiters:>7} {:>9.3} {:>9.3}", micros(alone), micros(pooled));
    }
    runtime.block_on(pool.shut_down(Duration::from_secs(5)));
    Ok(())
}

/// Of one request, in the middle one of the rounds.
fn micros(mut rounds: Vec<Duration>) -> f64 {
    rounds.sort_unstable();
    rounds[rounds.len() / 2].as_secs_f64() * 1e6 / f64::from(REQUESTS)
}

/// A pool whose only engine is an upstream of this program.
fn pool(xtask: &Path, scratch: &Path) -> Result<Arc<Pool>> {
    let defaults = config::load(&Sources { file: None, env: &|_| None, flags: &[] })?;
    let guard = GuardCommand { program: xtask.with_file_name("gglib"), args: vec![guard::SUBCOMMAND.into()] };
    let launcher =
        Launcher::new(LaunchSettings::new(&defaults, upstream::as_engine(xtask, scratch)?, guard))?;
    let model = scratch.join("bench.gguf");
    fs::write(&model, "GGUF")?;
    let catalog = Catalog::new([(ModelName::new("m"), ModelSpec::new(&model))].into());
    Ok(Arc::new(Pool::start(launcher, catalog, settings())))
}

async fn pool_round(pool: Arc<Pool>, waiters: u64) -> Result<Duration, Refused> {
    let mut places: VecDeque<Box<dyn Waiting>> =
        (0..waiters).map(|_| pool.enter(ModelName::new("m"))).collect();
    let mut lease = None;
    let mut began = Instant::now();
    for request in 0..=REQUESTS {
        places.push_back(pool.enter(ModelName::new("m")));
        drop(lease.take());
        lease = match places.pop_front() {
            Some(mut next) => Some(next.granted().await?),
            None => None,
        };
        if request == 0 {
            // The first one of all has waited for the launch.
            began = Instant::now();
        }
    }
    Ok(began.elapsed())
}

fn settings() -> Settings {
    Settings { queue: usize::MAX, ..Settings::default() }
}

fn round(waiters: u64) -> Duration {
    let model = ModelName::new("m");
    let profiles = [(model.clone(), Profile::default()), (ModelName::new("other"), Profile::default())];
    let mut machine = Admission::new(settings(), profiles.into());
    let mut out = Vec::new();
    let now = Moment::ORIGIN;
    let mut ticket = 0;
    let mut arrive = |machine: &mut Admission, out: &mut Vec<Command>| {
        ticket += 1;
        machine.handle(Event::Arrive { ticket: Ticket(ticket), model: model.clone() }, now, out);
    };
    for _ in 0..waiters {
        arrive(&mut machine, &mut out);
    }
    let Some(Command::Launch { generation, .. }) = out.pop() else {
        unreachable!("the first arrival launches")
    };
    machine.handle(Event::Loaded { generation, footprint: None }, now, &mut out);
    let began = Instant::now();
    for _ in 0..REQUESTS {
        arrive(&mut machine, &mut out);
        let granted = out.iter().find_map(|command| match command {
            Command::Grant { lease } => Some(*lease),
            _ => None,
        });
        out.clear();
        let lease = granted.expect("somebody always has the only place");
        machine.handle(Event::Release { lease }, now, &mut out);
        black_box(&out);
    }
    began.elapsed()
}
