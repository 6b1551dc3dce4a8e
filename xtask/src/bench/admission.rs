//! What the queue itself costs a request: arriving, being granted, giving the lease back.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and measures real time"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use gglib_core::admission::{Admission, Command, Event, Profile, Settings, Ticket};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

const WAITERS: [u64; 3] = [1, 100, 10_000];
const REQUESTS: u32 = 10_000;
const ROUNDS: usize = 5;

/// Microseconds per request of the machine alone, with so many others waiting for the same engine all the time.
pub fn run() {
    println!("admission, µs for enter + grant + release (median of {ROUNDS} rounds of {REQUESTS} requests):");
    for waiters in WAITERS {
        let mut rounds: Vec<Duration> = (0..ROUNDS).map(|_| round(waiters)).collect();
        rounds.sort_unstable();
        let micros = rounds[ROUNDS / 2].as_secs_f64() * 1e6 / f64::from(REQUESTS);
        println!("  {waiters:>6} waiting {micros:>9.3}");
    }
}

fn round(waiters: u64) -> Duration {
    let model = ModelName::new("m");
    let settings = Settings { queue: usize::MAX, ..Settings::default() };
    let profiles = [(model.clone(), Profile::default()), (ModelName::new("other"), Profile::default())];
    let mut machine = Admission::new(settings, profiles.into());
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
