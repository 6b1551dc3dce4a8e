//! The decision after a failed attempt.

use std::fmt;
use std::time::Duration;

use super::backoff;
use super::nanos::{Nanos, Unit};
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
/// The order, and that a hint is a floor, are gglib's own; full jitter is Brooker's, see [`Jitter`](super::Jitter).
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
#[expect(
    clippy::inline_always,
    reason = "a call takes as long as the decision; only sequences and benches ask"
)]
#[inline(always)]
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
#[expect(
    clippy::inline_always,
    reason = "a call takes as long as the decision; only sequences and benches ask"
)]
#[inline(always)]
pub fn decide_with(
    policy: &RetryPolicy,
    attempt: u32,
    retry_after: Option<Duration>,
    elapsed: Duration,
    jitter_unit: f64,
    previous_delay: Duration,
) -> RetryDecision {
    let unit = Unit::new(jitter_unit);
    decide_in::<u64>(policy, attempt, retry_after, elapsed, unit, previous_delay)
        .unwrap_or_else(|| decide_wide(policy, attempt, retry_after, elapsed, unit, previous_delay))
}

/// For times beyond 584 years.
#[cold]
#[inline(never)]
fn decide_wide(
    policy: &RetryPolicy,
    attempt: u32,
    hint: Option<Duration>,
    elapsed: Duration,
    unit: Unit,
    previous: Duration,
) -> RetryDecision {
    decide_in::<u128>(policy, attempt, hint, elapsed, unit, previous).expect("wide enough for every duration")
}

/// `None` if the width is too small.
#[expect(clippy::inline_always, reason = "as of its two callers")]
#[inline(always)]
fn decide_in<N: Nanos>(
    policy: &RetryPolicy,
    attempt: u32,
    hint: Option<Duration>,
    elapsed: Duration,
    unit: Unit,
    previous: Duration,
) -> Option<RetryDecision> {
    let give_up = |reason| Some(RetryDecision::GiveUp(reason));
    let attempt = attempt.max(1);
    if attempt >= policy.max_attempts {
        return give_up(GiveUpReason::AttemptsExhausted);
    }
    let is_bounded = || policy.total_deadline != Duration::MAX;
    let time_left = match N::of(policy.total_deadline) {
        Some(deadline) if is_bounded() => deadline.saturating_sub(N::of(elapsed)?),
        None if is_bounded() => return None,
        _ => N::MAX,
    };
    if time_left == N::ZERO {
        return give_up(GiveUpReason::DeadlineExceeded);
    }
    if let (Some(hint), Some(limit)) = (hint, policy.hint_rule.limit())
        && hint > limit
    {
        return give_up(GiveUpReason::HintTooLong);
    }
    let delay = backoff::delay::<N>(policy, attempt, hint, unit, previous)?;
    if delay >= time_left && is_bounded() {
        return give_up(GiveUpReason::DeadlineExceeded);
    }
    Some(RetryDecision::Retry { after: delay.duration() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::retry::{Backoff, HintRule, Jitter};

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

    /// Everyday times, and those around the bounds of the two widths.
    fn any_time() -> impl Strategy<Value = Duration> {
        let wide = u64::MAX / 1_000_000_000;
        prop_oneof![
            Just(Duration::ZERO),
            (0..100_000_000_000_u64).prop_map(Duration::from_nanos),
            (wide - 3..wide + 3, 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
            (0..u64::MAX, 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
            Just(Duration::MAX),
        ]
    }

    fn any_policy() -> impl Strategy<Value = RetryPolicy> {
        let percent = || prop_oneof![Just(25), Just(100), any::<u32>()];
        let jitter = prop_oneof![
            Just(Jitter::None),
            Just(Jitter::Full),
            Just(Jitter::Equal),
            percent().prop_map(|percent| Jitter::Additive { percent }),
            Just(Jitter::Decorrelated),
            percent().prop_map(|percent| Jitter::AdditiveOverCap { percent }),
            percent().prop_map(|percent| Jitter::Subtractive { percent }),
            Just(Jitter::DecorrelatedUnclamped),
        ];
        let backoff = prop_oneof![Just(Backoff::Fixed), Just(Backoff::Linear), Just(Backoff::Exponential)];
        let hint_rule = prop_oneof![
            Just(HintRule::Floor),
            any_time().prop_map(|max_hint| HintRule::Replace { max_hint }),
            any_time().prop_map(|max_hint| HintRule::Obey { max_hint }),
            any_time().prop_map(|max_hint| HintRule::AtLeast { max_hint }),
        ];
        (any_time(), any_time(), any_time(), backoff, jitter, hint_rule).prop_map(
            |(initial_backoff, max_backoff, total_deadline, backoff, jitter, hint_rule)| RetryPolicy {
                max_attempts: u32::MAX,
                initial_backoff,
                max_backoff,
                total_deadline,
                backoff,
                jitter,
                hint_rule,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        /// Where 64 bits are enough, 128 give the same; and the short way leads where the long one does.
        #[test]
        fn every_way_gives_the_same_answer(
            policy in any_policy(),
            attempt in prop_oneof![0..130_u32, any::<u32>()],
            hint in proptest::option::of(any_time()),
            (elapsed, previous) in (any_time(), any_time()),
            unit in prop_oneof![0.0..1.0, Just(f64::NAN), Just(1.0)],
        ) {
            let unit = Unit::new(unit);
            let wide = decide_wide(&policy, attempt, hint, elapsed, unit, previous);
            let narrow = decide_in::<u64>(&policy, attempt, hint, elapsed, unit, previous);
            prop_assert!(narrow.is_none_or(|narrow| narrow == wide), "{narrow:?}, {wide:?}");
            let attempt = attempt.max(1);
            let long = backoff::by_every_rule::<u128>(&policy, attempt, hint, unit, previous);
            prop_assert_eq!(backoff::delay(&policy, attempt, hint, unit, previous), long);
        }
    }
}
