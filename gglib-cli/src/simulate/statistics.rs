//! Means and their errors, and percentiles.

use std::time::Duration;

/// What a sample says about the mean of what it was drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean of the sample.
    pub mean: f64,
    /// The standard deviation of one value, by the n - 1 rule.
    pub deviation: f64,
    /// The standard error of the mean: the deviation over the root of the size of the sample.
    pub standard_error: f64,
}

impl Estimate {
    /// Of nothing, everything is 0; of a single value, the deviation is.
    pub(super) fn of(sample: &[f64]) -> Self {
        let size = f64::from(u32::try_from(sample.len()).unwrap_or(u32::MAX)).max(1.0);
        let mean = sample.iter().sum::<f64>() / size;
        let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (size - 1.0).max(1.0)).sqrt();
        Self { mean, deviation, standard_error: deviation / size.sqrt() }
    }
}

/// The smallest of the `sorted` times that at least `percent` of 100 of them do not exceed; `None` if there are none.
pub fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_deviation_and_error_are_those_of_the_textbook() {
        let estimate = Estimate::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, 5.0]);
        assert!((estimate.mean - 5.0).abs() < 1e-12);
        assert!((estimate.deviation - 2.0).abs() < 1e-12);
        assert!((estimate.standard_error - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(Estimate::of(&[3.0]), Estimate { mean: 3.0, deviation: 0.0, standard_error: 0.0 });
        assert_eq!(Estimate::of(&[]), Estimate { mean: 0.0, deviation: 0.0, standard_error: 0.0 });
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let found =
            [0, 1, 50, 99, 100].map(|percent| percentile(&times, percent).map(|time| time.as_millis()));
        assert_eq!(found, [1, 2, 100, 198, 200].map(Some));
        assert_eq!(percentile(&times[..1], 99), Some(times[0]));
        assert_eq!(percentile(&[], 50), None);
    }
}
