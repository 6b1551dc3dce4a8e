//! Seconds to simulate many clients that collide on the start-up of one model.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and measures real time"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use gglib_cli::simulate::startup::{self, Bounds, Hint, Settings};
use gglib_core::retry::preset;

/// Runs; the median counts.
const RUNS: usize = 5;

/// What `gglib retry simulate startup` simulates by default, with each of its hints.
pub fn run() {
    let rules = preset::gglib();
    println!("startup, seconds for 10000 clients (median and slowest of {RUNS} runs):");
    for hint in Hint::ALL {
        let settings = Settings {
            clients: 10_000,
            load: Duration::from_secs(8),
            service: Duration::from_millis(100),
            parallel: 4,
            bounds: Bounds::default(),
            hint,
            seed: 1,
        };
        let mut runs: Vec<(Duration, usize)> = (0..RUNS)
            .map(|_| {
                let start = Instant::now();
                let outcome = startup::run(&rules, black_box(settings));
                (start.elapsed(), outcome.calls.len())
            })
            .collect();
        runs.sort();
        let seconds = |run: usize| runs[run].0.as_secs_f64();
        println!(
            "  hint: {:<10} {:6.3}  {:6.3}  ({} calls)",
            hint.as_str(),
            seconds(RUNS / 2),
            seconds(RUNS - 1),
            runs[0].1
        );
    }
}
