//! Nanoseconds per retry decision.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and measures real time"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use gglib_core::retry::{RetryDecision, RetryPolicy, decide, jitter_unit};

/// Decisions per batch.
const BATCH: u32 = 1_000_000;
/// Batches; the median counts.
const BATCHES: usize = 15;

/// Measures `decide` without and with a hint, and with its random draw.
pub fn run() {
    let policy = RetryPolicy::default();
    // Varying inputs, so that the compiler cannot fold the decision away.
    let elapsed = |n: u32| Duration::from_millis(u64::from(n % 59_000));
    let unit = |n: u32| f64::from(n % 1024) / 1024.0;
    let hint = |n: u32| Some(Duration::from_secs(u64::from(n % 20)));
    println!("decide, ns per decision (median and fastest of {BATCHES} batches of {BATCH}):");
    measure("no hint", |n| decide(&policy, n % 4, None, elapsed(n), unit(n)));
    measure("with a hint", |n| decide(&policy, n % 4, hint(n), elapsed(n), unit(n)));
    measure("with its random draw", |n| decide(&policy, n % 4, None, elapsed(n), jitter_unit()));
}

fn measure(name: &str, decision: impl Fn(u32) -> RetryDecision) {
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            for n in 0..BATCH {
                black_box(decision(black_box(n)));
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    println!("  {name:<22} {:6.1}  {:6.1}", batches[BATCHES / 2], batches[0]);
}
