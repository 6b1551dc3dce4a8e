//! One backoff sequence: from the first attempt to an answer, or to giving up.

use std::time::Duration;

use super::above::RetriesAbove;
use super::breaker::{BreakerState, Outcome, Permit};
use super::budget::Withdrawal;
use super::classify::{Verdict, classify};
use super::decision::{GiveUpReason, RetryDecision, decide_with};
use super::event::{Events, RetryEvent};
use super::failure::{Class, Failure};
use super::rules::{RetryRules, UnsafeRepeats};
use super::target::Target;
use crate::moment::Moment;

/// What the driver of a sequence does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make an attempt, and report how it went: [`on_success`](RetrySequence::on_success) or
    /// [`on_failure`](RetrySequence::on_failure).
    Attempt,
    /// Sleep, then call [`on_wake`](RetrySequence::on_wake).
    Wait {
        /// How long.
        delay: Duration,
    },
    /// Report the last failure. The sequence is over.
    GiveUp {
        /// Why there is no further attempt.
        reason: GiveUpReason,
        /// From when on another sequence may be worth it, if that is known: the server's hint or the breaker's
        /// next probe, whichever is later.
        retry_at: Option<Moment>,
    },
}

/// What a sequence answers to what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub next: Next,
    /// What has happened.
    pub events: Events,
}

/// The state of one backoff sequence: attempts, time, the previous delay, and its dealings with the
/// [`Target`]'s budget and breaker.
///
/// A driver calls [`begin`](Self::begin), does what each [`Step`] says, and reports the result. Whatever ends the
/// sequence from outside is reported by [`on_cancel`](Self::on_cancel); a driver that can be dropped does so in a
/// `Drop` of its own.
///
/// A failure goes through these checks; the first that objects ends the sequence:
///
/// 1. [`classify`], and [`UnsafeRepeats`] where its verdict is conditional: not retryable, or stream committed.
/// 2. The breaker: a probe is a single attempt, and nobody retries against a breaker that others have opened.
/// 3. [`decide_with`] by the policy for the [`Class`] of the failure: attempts exhausted, deadline exceeded, hint
///    too long.
/// 4. The budget, which is last so that nothing is paid for a retry that another check refuses.
///
/// The deadline is looked at once more after the sleep: a machine may have been suspended in it. The breaker counts
/// the outcome of the whole sequence. It is a success also if the request was wrong in itself, since the target has
/// answered; neutral for 429, for 503 with a hint, and when cancelled; else a failure.
///
/// ```
/// use gglib_core::moment::Moment;
/// use gglib_core::retry::{Cause, Failure, Next, RetriesAbove, RetrySequence, Target, preset};
/// use http::StatusCode;
///
/// let rules = preset::gglib();
/// let mut target = Target::default();
/// let mut now = Moment::ORIGIN;
/// let mut answers = [503, 503, 200].into_iter();
///
/// let (mut sequence, mut step) = RetrySequence::begin(&rules, RetriesAbove::NONE, now, &mut target);
/// let attempts = loop {
///     step = match step.next {
///         Next::Attempt => match answers.next() {
///             Some(200) => {
///                 let _ = sequence.on_success(now, &mut target);
///                 break 3;
///             }
///             _ => {
///                 let failure = Failure::new(Cause::Status(StatusCode::SERVICE_UNAVAILABLE));
///                 sequence.on_failure(&failure, now, 0.5, &mut target)
///             }
///         },
///         Next::Wait { delay } => {
///             now = now.saturating_add(delay);
///             sequence.on_wake(now, &mut target)
///         }
///         Next::GiveUp { reason, .. } => panic!("gave up: {reason}"),
///     };
/// };
/// assert_eq!(attempts, 3);
/// assert_eq!(now.as_nanos(), 1_500_000_000); // half of 1 s, then half of 2 s
/// ```
#[derive(Debug)]
pub struct RetrySequence<'r> {
    rules: &'r RetryRules,
    started: Moment,
    attempts: u32,
    previous_delay: Option<Duration>,
    total_delay: Duration,
    permit: Option<Permit>,
    /// Paid for and not yet sent.
    withdrawal: Option<Withdrawal>,
    last: Option<LastFailure>,
    /// How the sequence has ended.
    ended: Option<Next>,
}

#[derive(Clone, Copy, Debug)]
struct LastFailure {
    class: Class,
    outcome: Outcome,
    retry_at: Option<Moment>,
}

impl<'r> RetrySequence<'r> {
    /// Begins a sequence, if the breaker of `target` admits it.
    ///
    /// The request counts as an original in the budget, or as a retry if a layer above has made it before.
    pub fn begin(
        rules: &'r RetryRules,
        above: RetriesAbove,
        now: Moment,
        target: &mut Target,
    ) -> (Self, Step) {
        let mut sequence = Self {
            rules,
            started: now,
            attempts: 0,
            previous_delay: None,
            total_delay: Duration::ZERO,
            permit: None,
            withdrawal: None,
            last: None,
            ended: None,
        };
        let mut events = Events::default();
        let before = state(target);
        if !sequence.is_admitted(now, target) {
            let step = sequence.give_up(GiveUpReason::CircuitOpen, now, target, events);
            return (sequence, step);
        }
        push_change(before, now, target, &mut events);
        if let Some(budget) = &mut target.budget {
            if above.is_retry() { budget.charge(now) } else { budget.deposit(now) }
        }
        let step = sequence.attempt(events);
        (sequence, step)
    }

    /// Takes the failure of an attempt; `unit` is a jitter unit in [0, 1), see [`decide_with`].
    ///
    /// After the end of the sequence it answers as it did then.
    pub fn on_failure(&mut self, failure: &Failure<'_>, now: Moment, unit: f64, target: &mut Target) -> Step {
        if let Some(next) = self.ended {
            return Step { next, events: Events::default() };
        }
        let class = failure.class();
        // A request that was refused for itself will not be answered later either.
        let hint = failure.hint.filter(|_| class != Class::Rejected);
        let retry_at = hint.map(|hint| now.saturating_add(hint));
        self.last = Some(LastFailure { class, outcome: failure.outcome(), retry_at });
        let mut events = Events::default();
        match self.next_delay(failure, now, unit, target, &mut events) {
            Ok(delay) => {
                self.previous_delay = Some(delay);
                events.push(RetryEvent::RetryScheduled {
                    attempt: self.attempts,
                    max_attempts: self.rules.policy_for(class).max_attempts,
                    class,
                    hint: failure.hint,
                    delay,
                });
                Step { next: Next::Wait { delay }, events }
            }
            Err(reason) => self.give_up(reason, now, target, events),
        }
    }

    /// Takes the end of a sleep.
    ///
    /// After the end of the sequence it answers as it did then.
    pub fn on_wake(&mut self, now: Moment, target: &mut Target) -> Step {
        if let Some(next) = self.ended {
            return Step { next, events: Events::default() };
        }
        let events = Events::default();
        if self.is_too_late(now) {
            return self.give_up(GiveUpReason::DeadlineExceeded, now, target, events);
        }
        if !self.is_admitted(now, target) {
            return self.give_up(GiveUpReason::CircuitOpen, now, target, events);
        }
        // What was paid for is now sent.
        self.withdrawal = None;
        self.total_delay = self.total_delay.saturating_add(self.previous_delay.unwrap_or_default());
        self.attempt(events)
    }

    /// Takes the success of an attempt, which ends the sequence.
    pub fn on_success(mut self, now: Moment, target: &mut Target) -> Events {
        let mut events = Events::default();
        if self.ended.is_none() {
            events.push(RetryEvent::Succeeded { attempts: self.attempts, total_delay: self.total_delay });
            self.settle(Outcome::Success, now, target, &mut events);
        }
        events
    }

    /// Ends the sequence from outside, during an attempt or a sleep.
    ///
    /// The retry that will not be sent is refunded, and the breaker concludes nothing. After the end of the
    /// sequence it does nothing.
    pub fn on_cancel(mut self, now: Moment, target: &mut Target) -> Events {
        let mut events = Events::default();
        if self.ended.is_none() {
            events.push(RetryEvent::Cancelled { attempts: self.attempts, total_delay: self.total_delay });
            self.settle(Outcome::Neutral, now, target, &mut events);
        }
        events
    }

    /// Attempts begun so far.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The checks that a retry has to pass, in the order of the type's documentation.
    fn next_delay(
        &mut self,
        failure: &Failure<'_>,
        now: Moment,
        unit: f64,
        target: &mut Target,
        events: &mut Events,
    ) -> Result<Duration, GiveUpReason> {
        let hint = match classify(failure, self.rules.statuses) {
            Verdict::Retryable { hint } => hint,
            Verdict::Conditional { hint } if self.rules.unsafe_repeats == UnsafeRepeats::Allow => hint,
            Verdict::Conditional { .. } => return Err(GiveUpReason::NotRetryable),
            Verdict::Permanent(reason) => return Err(reason),
        };
        if self.permit.as_ref().is_some_and(Permit::is_probe) || !self.is_admitted(now, target) {
            return Err(GiveUpReason::CircuitOpen);
        }
        let policy = self.rules.policy_for(failure.class());
        let elapsed = now.saturating_since(self.started);
        let previous = self.previous_delay.unwrap_or(policy.initial_backoff);
        let delay = match decide_with(policy, self.attempts, hint, elapsed, unit, previous) {
            RetryDecision::Retry { after } => after,
            RetryDecision::GiveUp(reason) => return Err(reason),
        };
        if let Some(budget) = &mut target.budget {
            self.withdrawal = budget.withdraw(now);
            if self.withdrawal.is_none() {
                events.push(RetryEvent::BudgetExceeded {
                    percent: budget.settings().percent,
                    usage: budget.usage(now),
                    window: budget.settings().window,
                });
                return Err(GiveUpReason::BudgetExhausted);
            }
        }
        Ok(delay)
    }

    fn attempt(&mut self, mut events: Events) -> Step {
        self.attempts = self.attempts.saturating_add(1);
        events.push(RetryEvent::AttemptStarted { attempt: self.attempts });
        Step { next: Next::Attempt, events }
    }

    /// Whether the breaker lets this sequence go on.
    ///
    /// A permit of an earlier period is replaced if the breaker is closed again, so that the outcome counts. While
    /// it is not, only the probe may go on, and a sequence that is under way does not become one.
    fn is_admitted(&mut self, now: Moment, target: &mut Target) -> bool {
        let Some(breaker) = &mut target.breaker else { return true };
        if self.permit.as_ref().is_some_and(|permit| breaker.honours(permit)) {
            return true;
        }
        if self.attempts > 0 && breaker.state() != BreakerState::Closed {
            return false;
        }
        self.permit = breaker.admit(now).ok();
        self.permit.is_some()
    }

    fn is_too_late(&self, now: Moment) -> bool {
        let policy = self.last.map_or(&self.rules.policy, |last| self.rules.policy_for(last.class));
        let deadline = policy.total_deadline;
        deadline != Duration::MAX && now.saturating_since(self.started) >= deadline
    }

    fn give_up(
        &mut self,
        reason: GiveUpReason,
        now: Moment,
        target: &mut Target,
        mut events: Events,
    ) -> Step {
        let mut about_breaker = Events::default();
        self.settle(self.last.map_or(Outcome::Neutral, |last| last.outcome), now, target, &mut about_breaker);
        let hinted = self.last.and_then(|last| last.retry_at);
        let admitted = target.breaker.as_ref().and_then(|breaker| breaker.retry_at(now));
        let retry_at = hinted.max(admitted);
        events.push(RetryEvent::GaveUp {
            reason,
            attempts: self.attempts,
            total_delay: self.total_delay,
            class: self.last.map(|last| last.class),
            retry_at,
        });
        about_breaker.into_iter().for_each(|event| events.push(event));
        let next = Next::GiveUp { reason, retry_at };
        self.ended = Some(next);
        Step { next, events }
    }

    /// Gives back what the sequence holds of its target.
    fn settle(&mut self, outcome: Outcome, now: Moment, target: &mut Target, events: &mut Events) {
        if let (Some(budget), Some(withdrawal)) = (&mut target.budget, self.withdrawal.take()) {
            budget.refund(withdrawal, now);
        }
        let before = state(target);
        if let (Some(breaker), Some(permit)) = (&mut target.breaker, self.permit.take()) {
            breaker.settle(permit, outcome, now);
        }
        push_change(before, now, target, events);
    }
}

fn state(target: &Target) -> Option<BreakerState> {
    target.breaker.as_ref().map(super::CircuitBreaker::state)
}

fn push_change(before: Option<BreakerState>, now: Moment, target: &Target, events: &mut Events) {
    let (Some(from), Some(breaker)) = (before, &target.breaker) else { return };
    if from != breaker.state() {
        events.push(RetryEvent::BreakerChanged {
            from,
            to: breaker.state(),
            retry_at: breaker.retry_at(now),
        });
    }
}
