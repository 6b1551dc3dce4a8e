//! Seeded random numbers.

use std::ops::Range;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// One way of the simulated network: a normal variable of this mean and deviation, without its sign.
const WAY: Duration = Duration::from_millis(10);
const WAY_DEVIATION: Duration = Duration::from_millis(2);

/// A source of random numbers. The generator is named, unlike `rand`'s standard ones, so that a seed means the same
/// for ever.
#[derive(Debug)]
pub(super) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Uniform in [0, 1): a jitter unit.
    pub(super) fn unit(&mut self) -> f64 {
        self.0.random()
    }

    /// Uniform within the range.
    pub(super) fn between(&mut self, range: Range<Duration>) -> Duration {
        range.start + range.end.saturating_sub(range.start).mul_f64(self.unit())
    }

    /// The time of one way of the network.
    pub(super) fn way(&mut self) -> Duration {
        self.normal(WAY, WAY_DEVIATION)
    }

    /// The absolute value of a normal variable, by Box and Muller's transform.
    fn normal(&mut self, mean: Duration, deviation: Duration) -> Duration {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let standard = radius * (std::f64::consts::TAU * self.unit()).cos();
        let seconds = mean.as_secs_f64() + standard * deviation.as_secs_f64();
        Duration::from_secs_f64(seconds.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::Estimate;
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_another_one_others() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.unit().to_bits(), random.unit().to_bits()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn normal_numbers_have_their_mean_and_deviation() {
        let mut random = Random::new(1);
        let (mean, deviation) = (Duration::from_millis(10), Duration::from_millis(2));
        let sample: Vec<f64> =
            (0..10_000).map(|_| random.normal(mean, deviation).as_secs_f64() * 1_000.0).collect();
        let found = Estimate::of(&sample);
        assert!((found.mean - 10.0).abs() < 4.0 * found.standard_error, "{found:?}");
        assert!((found.deviation - 2.0).abs() < 0.06, "{found:?}");
    }
}
