//! What has been measured of a model so far.

use std::time::Duration;

use crate::memory::Memory;

/// Running means, the loads so far, and the last footprint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// From launch to ready.
    pub(super) load: Mean,
    /// How often that was measured.
    pub(super) loads: u64,
    /// All of it.
    pub(super) loading: Duration,
    /// From the grant of a lease to its release.
    pub(super) service: Mean,
    /// From the order to stop until the memory is back.
    pub(super) stop: Mean,
    /// What the last engine took when it was ready.
    pub(super) footprint: Option<Memory>,
}

impl Measured {
    /// Takes the time of a load.
    pub(super) fn loaded(&mut self, time: Duration) {
        self.load.add(time);
        self.loads += 1;
        self.loading = self.loading.saturating_add(time);
    }
}

/// An exponentially weighted mean, the newest value counting a quarter; nothing before the first value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean(Option<Duration>);

impl Mean {
    pub(super) fn add(&mut self, value: Duration) {
        self.0 = Some(self.0.map_or(value, |mean| mean.saturating_mul(3).saturating_add(value) / 4));
    }

    pub(super) fn value(self) -> Option<Duration> {
        self.0
    }

    /// The mean, or nothing as long as nothing is known.
    pub(super) fn or_zero(self) -> Duration {
        self.0.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_value_counts_a_quarter() {
        let mut mean = Mean::default();
        assert_eq!(mean.value(), None);
        mean.add(Duration::from_secs(8));
        mean.add(Duration::from_secs(4));
        assert_eq!(mean.value(), Some(Duration::from_secs(7)));
        mean.add(Duration::MAX);
        mean.add(Duration::MAX);
        assert!(mean.value() <= Some(Duration::MAX));
    }
}
