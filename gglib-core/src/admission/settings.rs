//! The bounds of waiting.

use std::time::Duration;

/// See the `[admission]` section of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A waiter is refused after this long in which the queue did not move and no load was in progress.
    pub stall: Duration,
    /// A waiter is refused after this long in any case.
    pub max_wait: Duration,
    /// Waiters per model; one more is refused at once.
    pub queue: usize,
}
