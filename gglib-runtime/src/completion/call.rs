//! One call's backoff sequence, and its dealings with what all calls of an upstream share.

use std::sync::{Arc, Mutex, PoisonError};

use gglib_core::moment::Moment;
use gglib_core::retry::{
    BreakerSettings, BudgetSettings, CircuitBreaker, EventSource, Events, Next, RetriesAbove, RetryBudget,
    RetryObserver, RetryRules, RetrySequence, Step, Target,
};
use tokio::time::Instant;

use super::observer::Logged;
use super::{Failure, Notice, Observer};

/// The budget and the breaker of one upstream, for a client and its clones.
///
/// The lock is held for one step of a sequence: never across an await, nor while an observer is told.
pub(super) struct Shared {
    origin: Instant,
    target: Mutex<Target>,
}

impl Shared {
    pub(super) fn new(rules: &RetryRules) -> Self {
        let target = Target {
            budget: Some(RetryBudget::new(BudgetSettings::for_policy(&rules.policy))),
            breaker: Some(CircuitBreaker::new(BreakerSettings::TARGET)),
        };
        Self { origin: Instant::now(), target: Mutex::new(target) }
    }

    pub(super) fn now(&self) -> Moment {
        Moment::ORIGIN.saturating_add(self.origin.elapsed())
    }

    /// Gives `act` the moment and the target. No step leaves a target half changed, so that a panic elsewhere
    /// spoils nothing.
    fn lend<T>(&self, act: impl FnOnce(Moment, &mut Target) -> T) -> (Moment, T) {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that the target never sees time run backwards.
        let now = self.now();
        (now, act(now, &mut target))
    }
}

/// A sequence that tells what happens in it. Dropped before its end, it is cancelled: what it holds of the target
/// goes back.
pub(super) struct Call<'c> {
    shared: &'c Shared,
    source: EventSource<'c>,
    observer: Option<&'c Arc<dyn Observer>>,
    sequence: Option<RetrySequence<'c>>,
}

impl<'c> Call<'c> {
    pub(super) fn begin(
        shared: &'c Shared,
        rules: &'c RetryRules,
        upstream: &'c str,
        observer: Option<&'c Arc<dyn Observer>>,
    ) -> (Self, Next) {
        let (now, (sequence, step)) =
            shared.lend(|now, target| RetrySequence::begin(rules, RetriesAbove::NONE, now, target));
        let source = EventSource { target: upstream, rules: rules.name };
        let call = Self { shared, source, observer, sequence: Some(sequence) };
        call.tell(now, step.events, None);
        (call, step.next)
    }

    /// The number of the attempt that is under way, or was the last.
    pub(super) fn attempts(&self) -> u32 {
        self.sequence.as_ref().map_or(0, RetrySequence::attempts)
    }

    /// Takes one step; `last` is the latest failure.
    pub(super) fn step(
        &mut self,
        last: Option<&Failure>,
        act: impl FnOnce(&mut RetrySequence<'c>, Moment, &mut Target) -> Step,
    ) -> Next {
        let sequence = self.sequence.as_mut().expect("taken by what consumes the call only");
        let (now, step) = self.shared.lend(|now, target| act(sequence, now, target));
        self.tell(now, step.events, last);
        step.next
    }

    pub(super) fn succeed(mut self) {
        if let Some(sequence) = self.sequence.take() {
            let (now, events) = self.shared.lend(|now, target| sequence.on_success(now, target));
            self.tell(now, events, None);
        }
    }

    fn tell(&self, now: Moment, events: Events, last: Option<&Failure>) {
        for event in events {
            Logged { now }.observe(&self.source, &event);
            if let Some(observer) = self.observer {
                observer.notice(&Notice { source: self.source, event: &event, last });
            }
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence.take() {
            let (now, events) = self.shared.lend(|now, target| sequence.on_cancel(now, target));
            self.tell(now, events, None);
        }
    }
}
