//! What all calls of an upstream share: its budget and its breaker, behind a lock.

use std::sync::{Mutex, PoisonError};

use gglib_core::moment::Moment;
use gglib_core::retry::{BreakerSettings, BudgetSettings, CircuitBreaker, RetryBudget, RetryRules, Target};
use tokio::time::Instant;

/// The budget and the breaker of one upstream, for a client and its clones.
///
/// The lock is held for one step of a sequence: never across an await, nor while an observer is told. Lock and clock
/// are parameters, so that a test can let other threads come in between whenever the lock is free.
pub(super) struct Shared<L = Mutex<Target>, C = Instant> {
    clock: C,
    target: L,
}

impl Shared {
    pub(super) fn new(rules: &RetryRules) -> Self {
        Self { clock: Instant::now(), target: Mutex::new(target(rules)) }
    }
}

/// A target as the rules ask for it.
fn target(rules: &RetryRules) -> Target {
    Target {
        budget: Some(RetryBudget::new(BudgetSettings::for_policy(&rules.policy))),
        breaker: Some(CircuitBreaker::new(BreakerSettings::TARGET)),
    }
}

impl<L: Lock, C: Clock> Shared<L, C> {
    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Gives `act` the moment and the target.
    pub(super) fn lend<T>(&self, act: impl FnOnce(Moment, &mut Target) -> T) -> (Moment, T) {
        self.target.with(|target| {
            // Read under the lock, so that the target never sees time run backwards.
            let now = self.now();
            (now, act(now, target))
        })
    }
}

/// Keeps a target for one at a time.
pub(super) trait Lock {
    fn with<T>(&self, act: impl FnOnce(&mut Target) -> T) -> T;
}

impl Lock for Mutex<Target> {
    /// No step leaves a target half changed, so that a panic elsewhere spoils nothing.
    fn with<T>(&self, act: impl FnOnce(&mut Target) -> T) -> T {
        act(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tells the time.
pub(super) trait Clock {
    fn now(&self) -> Moment;
}

/// The time since it was read.
impl Clock for Instant {
    fn now(&self) -> Moment {
        Moment::ORIGIN.saturating_add(self.elapsed())
    }
}

#[cfg(test)]
mod tests;
