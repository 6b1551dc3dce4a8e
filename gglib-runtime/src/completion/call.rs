//! One call's backoff sequence, and its dealings with what all calls of an upstream share.

use std::sync::{Arc, Mutex};

use gglib_core::moment::Moment;
use gglib_core::retry::{
    EventSource, Events, Next, RetriesAbove, RetryObserver, RetryRules, RetrySequence, Step, Target,
};
use tokio::time::Instant;

use super::observer::Logged;
use super::shared::{Clock, Lock, Shared};
use super::{Failure, Notice, Observer};

/// A sequence that tells what happens in it. Dropped before its end, it is cancelled: what it holds of the target
/// goes back.
pub(super) struct Call<'c, L: Lock = Mutex<Target>, C: Clock = Instant> {
    shared: &'c Shared<L, C>,
    source: EventSource<'c>,
    observer: Option<&'c Arc<dyn Observer>>,
    sequence: Option<RetrySequence<'c>>,
}

impl<'c, L: Lock, C: Clock> Call<'c, L, C> {
    pub(super) fn begin(
        shared: &'c Shared<L, C>,
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

impl<L: Lock, C: Clock> Drop for Call<'_, L, C> {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence.take() {
            let (now, events) = self.shared.lend(|now, target| sequence.on_cancel(now, target));
            self.tell(now, events, None);
        }
    }
}
