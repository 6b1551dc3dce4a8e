//! What the endpoint counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Completion requests that came.
    pub(crate) requests: Counter,
    /// Those that ended in an error, refusals included.
    pub(crate) failed: Counter,
    /// Those whose client left before the end.
    pub(crate) abandoned: Counter,
    /// Engines relaunched for a request that found them dead.
    pub(crate) relaunches: Counter,
    /// Requests sent again because their connection broke.
    pub(crate) resends: Counter,
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
