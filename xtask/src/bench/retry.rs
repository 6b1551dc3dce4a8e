//! Nanoseconds and allocations per retry decision, beside the crates that people would use instead.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints, and measures real time"
)]

use std::time::Instant;

use contenders::Contender;

mod contenders;

/// Sequences per round.
const SEQUENCES: u32 = 100_000;
/// Delays per sequence: the default policy's.
const DELAYS: u32 = 3;
/// Rounds of each contender, taken in turns with those of the others; the median counts.
const ROUNDS: usize = 25;

const WHAT: &str = "\
The work is one delay, its random draw included: exponential from 1 s to at most 15 s, in sequences of 3 delays.
gglib's `decide` is a function of attempt, hint, elapsed time and unit, and checks the deadline as well. backon and
tokio-retry give iterators, whose construction is part of a sequence. retry-policies gives a function of the attempt
that reads the clock in itself; so gglib stands there with a reading of the clock, too.
All draw from nothing up to the window (full jitter), but backon from the window up to its double.

Generators: backon draws from fastrand, so gglib is given one with the same seed. retry-policies and tokio-retry draw
from rand's generator of the thread and let nobody choose, so gglib is given the same. `jitter_unit` is gglib's own.
";

/// Measures everything and prints the table.
pub fn run() {
    let mut contenders = contenders::all();
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        rounds.push(contenders.iter_mut().map(nanoseconds).collect::<Vec<_>>());
    }
    println!("{WHAT}");
    println!(
        "{ROUNDS} rounds of {SEQUENCES} sequences, the contenders in turns. A ratio is the median of the rounds'"
    );
    println!("ratios to gglib's decision with the same generator.\n");
    println!("contender                    generator     ns, median  fastest   ratio  allocations");
    for (index, contender) in contenders.iter_mut().enumerate() {
        let column = |index: usize| rounds.iter().map(move |round: &Vec<f64>| round[index]);
        let times = sorted(column(index));
        let allocations = allocations(contender);
        let ratio = contender.beside.map_or(String::new(), |peer| {
            let ratios = sorted(column(index).zip(column(peer)).map(|(own, gglib)| own / gglib));
            format!("{:.2}x", ratios[ROUNDS / 2])
        });
        println!(
            "{:<28} {:<12} {:>11.1} {:>8.1} {ratio:>7} {allocations:>12}",
            contender.name,
            contender.generator,
            times[ROUNDS / 2],
            times[0],
        );
    }
}

/// Per delay, in one round.
fn nanoseconds(contender: &mut Contender) -> f64 {
    let start = Instant::now();
    (contender.sequences)(SEQUENCES);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(SEQUENCES * DELAYS)
}

/// In one round, as the global allocator counts them.
fn allocations(contender: &mut Contender) -> u64 {
    allocation_counter::measure(|| (contender.sequences)(SEQUENCES)).count_total
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}
