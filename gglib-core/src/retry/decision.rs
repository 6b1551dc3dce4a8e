//! The decision after a failed attempt.

use std::fmt;
use std::time::Duration;

use super::backoff::{self, Unit};
use super::policy::RetryPolicy;

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Try again after a delay.
    Retry {
        /// The delay, from now on; it ends before the deadline does.
        after: Duration,
    },
    /// Stop and report the last failure.
    GiveUp(GiveUpReason),
}

impl fmt::Display for RetryDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { after } => write!(f, "retry after {after:?}"),
            Self::GiveUp(reason) => write!(f, "give up: {reason}"),
        }
    }
}

/// Why a backoff sequence ended without success.
///
/// [`decide`] gives the first three; the others come from what stands around it in a
/// [`RetrySequence`](super::RetrySequence), which also tells from when on another one may be worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GiveUpReason {
    /// All attempts that the policy allows have failed.
    AttemptsExhausted,
    /// The deadline has passed, or would pass before the next attempt could start.
    DeadlineExceeded,
    /// The server asks for a longer wait than the [`HintRule`](super::HintRule) grants.
    HintTooLong,
    /// The same request would fail the same way, or must not be sent again.
    NotRetryable,
    /// Content has been handed on: the idempotency window is closed.
    StreamCommitted,
    /// The [budget](super::RetryBudget) of the target is used up by the retries of all callers.
    BudgetExhausted,
    /// The [breaker](super::CircuitBreaker) of the target is open.
    CircuitOpen,
}

impl GiveUpReason {
    /// The reason as a lower-case fragment; the text is stable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AttemptsExhausted => "attempts exhausted",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::HintTooLong => "hint too long",
            Self::NotRetryable => "not retryable",
            Self::StreamCommitted => "stream committed",
            Self::BudgetExhausted => "budget exhausted",
            Self::CircuitOpen => "circuit open",
        }
    }
}

impl fmt::Display for GiveUpReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Decides what to do after `attempt` attempts have failed.
///
/// `attempt` is 1 after the first failure (0 is read as 1), `retry_after` is the server's
/// [hint](super::hint::parse) if it gave one, `elapsed` the time since the start of the first attempt, and
/// `jitter_unit` a number in [0, 1): NaN and negative numbers are read as 0, and numbers from 1 on as the
/// largest below it. No value of any argument panics; delays are exact to the nanosecond, and saturate.
///
/// The rules, in this order:
///
/// 1. `attempt >= max_attempts`: give up, attempts exhausted.
/// 2. `elapsed >= total_deadline`: give up, deadline exceeded.
/// 3. The delay follows from [`Backoff`](super::Backoff) and [`Jitter`](super::Jitter), or with a hint from
///    [`HintRule`](super::HintRule). If that rule sets a limit and the hint is longer: give up, hint too long.
/// 4. `elapsed + delay >= total_deadline`: give up, deadline exceeded. The sleep is not shortened instead,
///    which would leave the attempt after it no time at all.
/// 5. Otherwise retry after the delay.
///
/// With [`Jitter::Decorrelated`](super::Jitter::Decorrelated) each delay is drawn as if it were the first; to
/// let it grow, use [`decide_with`].
///
/// ```
/// use std::time::Duration;
/// use gglib_core::retry::{GiveUpReason, RetryDecision, RetryPolicy, decide};
///
/// let policy = RetryPolicy::default();
/// let (soon, late) = (Duration::from_millis(200), Duration::from_secs(59));
///
/// // The third failure: half of a window of 4 s.
/// assert_eq!(decide(&policy, 3, None, soon, 0.5), RetryDecision::Retry { after: Duration::from_secs(2) });
/// // A server that asks for 5 s gets them, and half of 1 s on top.
/// let hint = Some(Duration::from_secs(5));
/// assert_eq!(decide(&policy, 1, hint, soon, 0.5), RetryDecision::Retry { after: Duration::from_millis(5_500) });
/// // That sleep would not end before the deadline of 60 s.
/// assert_eq!(decide(&policy, 1, hint, late, 0.5), RetryDecision::GiveUp(GiveUpReason::DeadlineExceeded));
/// assert_eq!(decide(&policy, 4, hint, soon, 0.5), RetryDecision::GiveUp(GiveUpReason::AttemptsExhausted));
/// ```
pub fn decide(
    policy: &RetryPolicy,
    attempt: u32,
    retry_after: Option<Duration>,
    elapsed: Duration,
    jitter_unit: f64,
) -> RetryDecision {
    decide_with(policy, attempt, retry_after, elapsed, jitter_unit, policy.initial_backoff)
}

/// [`decide`], told the delay before the attempt that has just failed.
///
/// Only [`Jitter::Decorrelated`](super::Jitter::Decorrelated) looks at `previous_delay`. After the first
/// failure there was none: pass `initial_backoff`.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::retry::{Jitter, RetryDecision, RetryPolicy, decide_with};
///
/// let policy = RetryPolicy { jitter: Jitter::Decorrelated, ..RetryPolicy::default() };
/// let previous = Duration::from_secs(3);
/// // Half of the way from 1 s to 3 × 3 s.
/// let after = Duration::from_secs(5);
/// assert_eq!(decide_with(&policy, 2, None, previous, 0.5, previous), RetryDecision::Retry { after });
/// ```
pub fn decide_with(
    policy: &RetryPolicy,
    attempt: u32,
    retry_after: Option<Duration>,
    elapsed: Duration,
    jitter_unit: f64,
    previous_delay: Duration,
) -> RetryDecision {
    let attempt = attempt.max(1);
    if attempt >= policy.max_attempts {
        return RetryDecision::GiveUp(GiveUpReason::AttemptsExhausted);
    }
    let deadline_leaves_no_time_at =
        |time: Duration| policy.total_deadline != Duration::MAX && time >= policy.total_deadline;
    if deadline_leaves_no_time_at(elapsed) {
        return RetryDecision::GiveUp(GiveUpReason::DeadlineExceeded);
    }
    if let (Some(hint), Some(limit)) = (retry_after, policy.hint_rule.limit())
        && hint > limit
    {
        return RetryDecision::GiveUp(GiveUpReason::HintTooLong);
    }
    let after = backoff::delay(policy, attempt, retry_after, Unit::new(jitter_unit), previous_delay);
    if deadline_leaves_no_time_at(elapsed.saturating_add(after)) {
        return RetryDecision::GiveUp(GiveUpReason::DeadlineExceeded);
    }
    RetryDecision::Retry { after }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_and_reasons_print() {
        let retry = RetryDecision::Retry { after: Duration::from_millis(1_500) };
        assert_eq!(retry.to_string(), "retry after 1.5s");
        let give_up = RetryDecision::GiveUp(GiveUpReason::AttemptsExhausted);
        assert_eq!(give_up.to_string(), "give up: attempts exhausted");
        for (reason, text) in [
            (GiveUpReason::AttemptsExhausted, "attempts exhausted"),
            (GiveUpReason::DeadlineExceeded, "deadline exceeded"),
            (GiveUpReason::HintTooLong, "hint too long"),
            (GiveUpReason::NotRetryable, "not retryable"),
            (GiveUpReason::StreamCommitted, "stream committed"),
            (GiveUpReason::BudgetExhausted, "budget exhausted"),
            (GiveUpReason::CircuitOpen, "circuit open"),
        ] {
            assert_eq!(reason.to_string(), text);
        }
        assert_eq!(format!("{:>20}", GiveUpReason::DeadlineExceeded), "   deadline exceeded");
    }
}
