//! When refused clients are told to come back: each at a time of its own.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gglib_core::model::ModelName;
use gglib_core::moment::Moment;
use gglib_core::retry::{RetryPolicy, hint};
use tokio::time::Instant;

/// The places that clients of each model have been promised.
pub(crate) struct Places {
    origin: Instant,
    taken: Mutex<BTreeMap<ModelName, hint::Places>>,
}

impl Default for Places {
    fn default() -> Self {
        Self { origin: Instant::now(), taken: Mutex::default() }
    }
}

impl Places {
    /// For clients that wait by `policy`, the time until the next place at `model` that nobody has been promised; see [`hint::Places::take`].
    pub(crate) fn take(
        &self,
        policy: &RetryPolicy,
        model: &ModelName,
        room: Duration,
        interval: Duration,
    ) -> Duration {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::ORIGIN.saturating_add(self.origin.elapsed());
        taken.entry(model.clone()).or_default().take(policy, now, room, interval)
    }
}
