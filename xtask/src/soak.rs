//! `cargo xtask soak`: mixed traffic and random faults on the real engine, for minutes; every request accounted for,
//! nothing leaked.
//!
//! Several clients ask two real models of which one fits: streams, plain answers, tool calls, requests made twice with
//! one `Idempotency-Key`, and clients that leave in every phase. Meanwhile engines are killed, stopped and killed while
//! they load, slot files vanish, and the configuration changes. Each request is judged by
//! [the promise](gglib_cli::drill). A run in which nobody was answered, or in which no fault happened, proves nothing and
//! fails; at the end the clients' count must agree with the endpoint's own, and processes,
//! files, threads, tasks and memory must be where they were.

#![expect(clippy::print_stdout, reason = "says how it goes while it goes")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::faults::Faults;
use self::ledger::Ledger;
use self::memory::Memory;
use self::rig::Rig;
use self::traffic::ClosedLoop;

mod books;
mod faults;
mod ledger;
mod memory;
mod process;
mod rig;
mod traffic;

/// Closed loops of requests.
const CLIENTS: u64 = 6;

/// How long, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Minutes of traffic.
    pub minutes: u16,
    /// Decides what is asked and what is done to the engines; when, the machine has a say in too.
    pub seed: u64,
    /// Print JSON for programs, and nothing else.
    pub json: bool,
}

/// Runs the soak and says whether all was well.
///
/// # Errors
/// When something does not build or start, or the endpoint does not serve before the first fault.
pub fn run(root: &Path, options: Options) -> Result<bool> {
    crate::endpoint::build(root)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(soak(options))
}

async fn soak(options: Options) -> Result<bool> {
    let rig = Arc::new(Rig::start()?);
    rig.warm_up().await?;
    let before = rig.holdings().await?;
    let ledger = Arc::new(Ledger::default());
    if !options.json {
        println!("{}", introduction(options));
    }
    let (faults, memory) = storm(&rig, &ledger, options).await?;
    let mut problems = ledger.broken();
    problems.extend(faults.missing(options.minutes));
    problems.extend(rig.recovers().await);
    problems.extend(books::disagreements(&rig, &ledger).await);
    problems.extend(rig.leaks(&before).await);
    problems.extend(memory.growth_above_limit());
    let swaps = rig.totals().await;
    problems.extend(rig.stop().await);
    report(options, &ledger, &faults, &memory, &swaps, &problems);
    Ok(problems.is_empty())
}

/// Traffic and faults for as long as asked; the clients end with the request that they have.
async fn storm(rig: &Arc<Rig>, ledger: &Arc<Ledger>, options: Options) -> Result<(Faults, Memory)> {
    let (stop, stopped) = watch::channel(false);
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = ClosedLoop::new(Arc::clone(rig), Arc::clone(ledger), options.seed.wrapping_add(number))?;
        clients.spawn(client.run(stopped.clone()));
    }
    let faults = tokio::spawn(Faults::new(Arc::clone(rig), options.seed).run(stopped));
    let began = Instant::now();
    let whole = Duration::from_secs(60 * u64::from(options.minutes));
    let mut memory = Memory::new(whole);
    let mut shown = 0;
    while began.elapsed() < whole {
        sleep(Duration::from_secs(1).min(whole.saturating_sub(began.elapsed()))).await;
        memory.sample(began.elapsed(), process::memory(rig.pid()));
        rig.note_engines();
        let seconds = began.elapsed().as_secs();
        if !options.json && seconds / 30 > shown {
            shown = seconds / 30;
            println!("{seconds:>6} s  {}  {}", ledger.line(), memory.line());
        }
    }
    stop.send_replace(true);
    let ended = timeout(rig.patience(), async {
        while let Some(ended) = clients.join_next().await {
            if let Err(error) = ended {
                ledger.blame(format!("a client has come to a bad end: {error}"));
            }
        }
    });
    anyhow::ensure!(ended.await.is_ok(), "a client does not come to an end");
    Ok((faults.await?, memory))
}

fn introduction(options: Options) -> String {
    format!(
        "{} min, seed {}, {CLIENTS} clients, two real models of which one fits. Changed from the shipped defaults: engines \
         have one thread and a context of 2048 tokens, and\n{}",
        options.minutes,
        options.seed,
        rig::SETTINGS
    )
}

fn report(
    options: Options,
    ledger: &Ledger,
    faults: &Faults,
    memory: &Memory,
    totals: &serde_json::Value,
    problems: &[String],
) {
    if options.json {
        let report = json!({
            "minutes": options.minutes,
            "seed": options.seed,
            "requests": ledger.sent(),
            "outcomes": ledger.outcomes(),
            "faults": faults.counts(),
            "totals": totals,
            "memory": memory.to_json(),
            "problems": problems,
        });
        println!("{report:#}");
        return;
    }
    println!("\n{} requests:", ledger.sent());
    for (outcome, count) in ledger.outcomes() {
        println!("{count:>7}  {outcome}");
    }
    println!("{} faults:", faults.counts().values().sum::<usize>());
    for (fault, count) in faults.counts() {
        println!("{count:>7}  {fault}");
    }
    println!("the endpoint's own count: {totals}");
    println!("memory of gglib: {}", memory.verdict());
    for problem in problems {
        println!("NOT AS IT SHOULD BE: {problem}");
    }
    if problems.is_empty() {
        println!("Every request has ended as promised, and nothing is left of any.");
    }
}
