//! Properties over random inputs that are the same in every run.

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};

/// A number that chooses other inputs than the usual ones.
const SEED_ENV_VAR: &str = "GGLIB_TEST_SEED";

/// Checks `property` with so many of the `inputs`. A failure is shrunk, and told with the seed that repeats it.
pub(crate) fn for_all<S: Strategy>(cases: u32, inputs: S, property: impl Fn(S::Value) -> TestCaseResult)
where
    S::Value: Debug,
{
    let seed = seed();
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_iters: 20_000,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    });
    if let Err(failure) = runner.run(&inputs, property) {
        panic!("with {SEED_ENV_VAR}={seed}: {failure}");
    }
}

fn seed() -> u64 {
    let Ok(text) = std::env::var(SEED_ENV_VAR) else { return 1 };
    text.parse().unwrap_or_else(|_| panic!("{SEED_ENV_VAR} is a number, not {text:?}"))
}
