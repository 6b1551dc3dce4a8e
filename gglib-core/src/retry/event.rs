//! What a backoff sequence tells of itself.

use std::time::Duration;

use super::breaker::BreakerState;
use super::budget::BudgetUsage;
use super::decision::GiveUpReason;
use super::failure::Class;
use crate::moment::Moment;

/// One thing that has happened in a backoff sequence, with its measurements.
///
/// Attempt, retry, success and exhaustion are the telemetry of the retry pattern as it is generally described; budget,
/// breaker and cancellation are what is missing there.
///
/// A sequence has exactly one of [`Succeeded`](Self::Succeeded), [`GaveUp`](Self::GaveUp) and
/// [`Cancelled`](Self::Cancelled), as its last event but for those of budget and breaker that come with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryEvent {
    /// An attempt begins.
    AttemptStarted {
        /// Its number, counted from 1.
        attempt: u32,
    },
    /// An attempt has failed; the next follows after a delay.
    RetryScheduled {
        /// The attempt that has failed, counted from 1.
        attempt: u32,
        /// Attempts that the policy allows in all.
        max_attempts: u32,
        /// How it has failed.
        class: Class,
        /// When the server wished to see the next one.
        hint: Option<Duration>,
        /// Until the next attempt.
        delay: Duration,
    },
    /// An attempt has succeeded.
    Succeeded {
        /// Attempts made, the successful one included.
        attempts: u32,
        /// The delays before them, summed up.
        total_delay: Duration,
    },
    /// The last attempt has failed.
    GaveUp {
        /// Why there is no further one.
        reason: GiveUpReason,
        /// Attempts made; none if the breaker was open from the beginning.
        attempts: u32,
        /// The delays before them, summed up.
        total_delay: Duration,
        /// How the last one has failed.
        class: Option<Class>,
        /// From when on another sequence may be worth it, if that is known.
        retry_at: Option<Moment>,
    },
    /// The budget of the target does not allow a retry that the policy does.
    BudgetExceeded {
        /// Retries per 100 original requests that are allowed.
        percent: u32,
        /// What has been counted.
        usage: BudgetUsage,
        /// The length of the window in which it was counted.
        window: Duration,
    },
    /// The breaker of the target has changed its state.
    BreakerChanged {
        /// The state before.
        from: BreakerState,
        /// The state now.
        to: BreakerState,
        /// When the breaker will admit work again, unless it does now.
        retry_at: Option<Moment>,
    },
    /// The caller has lost interest.
    Cancelled {
        /// Attempts begun.
        attempts: u32,
        /// The delays before them, summed up.
        total_delay: Duration,
    },
}

impl RetryEvent {
    /// The event as a name for metrics and logs; the text is stable.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AttemptStarted { .. } => "attempt",
            Self::RetryScheduled { .. } => "retry",
            Self::Succeeded { .. } => "success",
            Self::GaveUp { .. } => "exhausted",
            Self::BudgetExceeded { .. } => "budget_exceeded",
            Self::BreakerChanged { .. } => "breaker_changed",
            Self::Cancelled { .. } => "cancelled",
        }
    }
}

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSource<'a> {
    /// The name of the target, as in [`Targets`](super::Targets).
    pub target: &'a str,
    /// The name of the [rules](super::RetryRules::name).
    pub rules: &'a str,
}

/// Takes the events of backoff sequences: for metrics, for logs, for a person who waits.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use gglib_core::moment::Moment;
/// use gglib_core::retry::{
///     EventSource, RetriesAbove, RetryEvent, RetryObserver, RetrySequence, Target, preset,
/// };
///
/// #[derive(Default)]
/// struct Attempts(AtomicU32);
///
/// impl RetryObserver for Attempts {
///     fn observe(&self, _: &EventSource<'_>, event: &RetryEvent) {
///         if let RetryEvent::AttemptStarted { .. } = event {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let (attempts, rules) = (Attempts::default(), preset::gglib());
/// let (_, step) =
///     RetrySequence::begin(&rules, RetriesAbove::NONE, Moment::ORIGIN, &mut Target::default());
/// step.events.publish(&attempts, &EventSource { target: "smollm2", rules: rules.name });
/// assert_eq!(attempts.0.into_inner(), 1);
/// ```
pub trait RetryObserver: Send + Sync {
    /// Takes one event. Called between two steps of a sequence, so that it should be quick.
    fn observe(&self, source: &EventSource<'_>, event: &RetryEvent);
}

/// The events of one step, in their order; there are at most three.
///
/// They are values, to be published when whatever lock the target was behind has been given back: an observer may
/// then do as it pleases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "events that are not published are lost"]
pub struct Events([Option<RetryEvent>; 3]);

impl Events {
    /// Tells `observer` of each event.
    pub fn publish(self, observer: &dyn RetryObserver, source: &EventSource<'_>) {
        for event in self {
            observer.observe(source, &event);
        }
    }

    pub(super) fn push(&mut self, event: RetryEvent) {
        let place = self.0.iter_mut().find(|place| place.is_none());
        *place.expect("no step has more than three events") = Some(event);
    }
}

impl IntoIterator for Events {
    type Item = RetryEvent;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<RetryEvent>, 3>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}
