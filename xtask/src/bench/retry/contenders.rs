//! What is compared: gglib's decision and its peers, each with its generator.

#![expect(
    clippy::disallowed_methods,
    reason = "a policy that reads the clock is compared with ours and a clock"
)]

use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

use backon::{BackoffBuilder, ExponentialBuilder};
use gglib_core::retry::{RetryPolicy, decide, jitter_unit};
use retry_policies::policies::ExponentialBackoff;
use retry_policies::{Jitter, RetryPolicy as _};
use tokio_retry::strategy;

use super::DELAYS;

const SEED: u64 = 1;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15);
const SOON: Duration = Duration::from_millis(80);
const HINT: Option<Duration> = Some(Duration::from_secs(5));

const FASTRAND: &str = "fastrand";
const OF_THREAD: &str = "rand, thread";

/// Something that computes delays.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) generator: &'static str,
    /// The index of gglib's decision with the same generator.
    pub(super) beside: Option<usize>,
    /// Computes the delays of so many sequences.
    pub(super) sequences: Box<dyn FnMut(u32)>,
}

/// Everything that is compared.
pub(super) fn all() -> Vec<Contender> {
    let policy = RetryPolicy::default();
    let decided = move |attempt, hint, elapsed, unit: f64| {
        decide(black_box(&policy), attempt, black_box(hint), black_box(elapsed), unit)
    };
    let backon = ExponentialBuilder::new().with_min_delay(FIRST).with_max_delay(LONGEST);
    let backon = backon.with_max_times(DELAYS as usize).with_jitter().with_jitter_seed(SEED);
    let bounded = ExponentialBackoff::builder().retry_bounds(FIRST, LONGEST).jitter(Jitter::Full);
    let bounded = bounded.build_with_max_retries(DELAYS);
    // 2 ms to the power of n, times 500.
    let doubling = strategy::ExponentialBackoff::from_millis(2).factor(500).max_delay(LONGEST);
    let (mut first, mut second) = (fastrand::Rng::with_seed(SEED), fastrand::Rng::with_seed(SEED));
    let start = Instant::now();
    vec![
        each("gglib", FASTRAND, None, move |attempt| decided(attempt, None, SOON, first.f64())),
        each("gglib, with a hint", FASTRAND, None, move |attempt| decided(attempt, HINT, SOON, second.f64())),
        of_iterators("backon", FASTRAND, 0, move || black_box(&backon).build()),
        each("gglib", OF_THREAD, None, move |attempt| decided(attempt, None, SOON, rand::random())),
        of_iterators("tokio-retry", OF_THREAD, 3, move || black_box(&doubling).clone().map(strategy::jitter)),
        each("gglib, reading the clock", OF_THREAD, None, move |attempt| {
            decided(attempt, None, start.elapsed(), rand::random())
        }),
        each("retry-policies", OF_THREAD, Some(5), move |attempt| {
            black_box(&bounded).should_retry(SystemTime::UNIX_EPOCH, attempt - 1)
        }),
        each("gglib", "jitter_unit", None, move |attempt| decided(attempt, None, SOON, jitter_unit())),
        each("gglib, without a draw", "none", None, move |attempt| {
            decided(attempt, None, SOON, black_box(0.5))
        }),
    ]
}

/// A function of the attempt.
fn each<T>(
    name: &'static str,
    generator: &'static str,
    beside: Option<usize>,
    mut delay: impl FnMut(u32) -> T + 'static,
) -> Contender {
    let sequences = move |count| {
        for _ in 0..count {
            for attempt in 1..=DELAYS {
                black_box(delay(black_box(attempt)));
            }
        }
    };
    Contender { name, generator, beside, sequences: Box::new(sequences) }
}

/// A new iterator for each sequence.
fn of_iterators<I: Iterator>(
    name: &'static str,
    generator: &'static str,
    beside: usize,
    mut begin: impl FnMut() -> I + 'static,
) -> Contender {
    let sequences = move |count| {
        for _ in 0..count {
            let mut delays = begin();
            for _ in 0..DELAYS {
                black_box(delays.next());
            }
        }
    };
    Contender { name, generator, beside: Some(beside), sequences: Box::new(sequences) }
}
