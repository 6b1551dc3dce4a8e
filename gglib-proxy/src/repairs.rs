//! Which models are worth a repair.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gglib_core::model::ModelName;
use gglib_core::moment::Moment;
use gglib_core::retry::{BreakerSettings, CircuitBreaker, Outcome, Permit};
use tokio::time::Instant;

/// After three repairs in a row that came to nothing, a model gets none for a minute, then one as a probe; the pause
/// doubles with each probe that fails, up to a quarter of an hour. So a model that cannot call does not cost twice.
const SETTINGS: BreakerSettings = BreakerSettings {
    threshold: 3,
    open_for: Duration::from_secs(60),
    max_open_for: Duration::from_secs(15 * 60),
    probe_timeout: Duration::from_secs(5 * 60),
};

/// The repairs' breakers, one for each model that needed one.
#[derive(Debug)]
pub(crate) struct Repairs {
    origin: Instant,
    breakers: Mutex<HashMap<ModelName, CircuitBreaker>>,
}

impl Default for Repairs {
    fn default() -> Self {
        Self { origin: Instant::now(), breakers: Mutex::default() }
    }
}

impl Repairs {
    /// The right to one repair for `model`; `None` while it is paused.
    pub(crate) fn admit(&self, model: &ModelName) -> Option<Permit> {
        self.with(model, |breaker, now| breaker.admit(now).ok())
    }

    /// Notes what came of it.
    pub(crate) fn settle(&self, model: &ModelName, permit: Permit, outcome: Outcome) {
        self.with(model, |breaker, now| breaker.settle(permit, outcome, now));
    }

    fn with<T>(&self, model: &ModelName, act: impl FnOnce(&mut CircuitBreaker, Moment) -> T) -> T {
        let now = Moment::ORIGIN.saturating_add(self.origin.elapsed());
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        act(breakers.entry(model.clone()).or_insert_with(|| CircuitBreaker::new(SETTINGS)), now)
    }
}
