//! What the endpoint counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gglib_core::api::error::ApiError;

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
    /// Streams that went on after their engine had died.
    pub(crate) continuations: Counter,
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

/// One request in the count. It is closed exactly once: by its outcome, or by being dropped without one, which
/// means that whoever was answering it has been dropped because the client left.
#[derive(Debug)]
pub(crate) struct Tally {
    counters: Arc<Counters>,
    open: bool,
}

impl Tally {
    pub(crate) fn begin(counters: &Arc<Counters>) -> Self {
        counters.requests.increment();
        Self { counters: Arc::clone(counters), open: true }
    }

    pub(crate) fn succeed(mut self) {
        self.open = false;
    }

    pub(crate) fn fail(mut self, error: &ApiError) {
        self.open = false;
        self.counters.failed.increment();
        tracing::warn!(code = error.code.as_str(), %error, "request failed");
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if std::thread::panicking() {
            self.counters.failed.increment();
        } else {
            self.counters.abandoned.increment();
            tracing::info!("the client left before the end of its answer");
        }
    }
}
