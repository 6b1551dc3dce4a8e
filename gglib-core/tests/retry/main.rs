//! The retry policy, seen from outside: decision tables, known mistakes, properties.

mod above;
mod breaker;
mod budget;
mod cases;
mod classify;
mod env;
mod hint;
mod interleavings;
mod limit;
mod lint;
mod preset;
mod properties;
mod sequence;
mod spread;
mod tables;
mod targets;

use std::time::Duration;

use gglib_core::moment::Moment;
use gglib_core::retry::{Backoff, GiveUpReason, HintRule, Jitter, RetryDecision, RetryPolicy, decide};
use proptest::prelude::*;

const NS: Duration = Duration::from_nanos(1);

/// The largest unit below 1.
const ALMOST_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

const ATTEMPTS_EXHAUSTED: RetryDecision = RetryDecision::GiveUp(GiveUpReason::AttemptsExhausted);
const DEADLINE_EXCEEDED: RetryDecision = RetryDecision::GiveUp(GiveUpReason::DeadlineExceeded);
const HINT_TOO_LONG: RetryDecision = RetryDecision::GiveUp(GiveUpReason::HintTooLong);

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A moment so many seconds after the origin.
fn at(seconds: f64) -> Moment {
    Moment::ORIGIN.saturating_add(secs(seconds))
}

fn just_below(seconds: f64) -> Duration {
    secs(seconds).saturating_sub(NS)
}

fn retry(after: Duration) -> RetryDecision {
    RetryDecision::Retry { after }
}

/// A policy that neither runs out of attempts nor of time, from 1 s to 15 s.
fn endless(backoff: Backoff, jitter: Jitter) -> RetryPolicy {
    RetryPolicy {
        max_attempts: u32::MAX,
        total_deadline: Duration::MAX,
        backoff,
        jitter,
        ..RetryPolicy::default()
    }
}

/// The delay after `attempt` failures, at once and without a hint.
fn delay(policy: &RetryPolicy, attempt: u32, unit: f64) -> Duration {
    delay_of(decide(policy, attempt, None, Duration::ZERO, unit))
}

#[track_caller]
fn delay_of(decision: RetryDecision) -> Duration {
    match decision {
        RetryDecision::Retry { after } => after,
        RetryDecision::GiveUp(reason) => panic!("gave up: {reason}"),
    }
}

/// Durations of every magnitude, the extremes included.
fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        1 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
        4 => (0..120_000_000_000_u64).prop_map(Duration::from_nanos),
        2 => any::<u64>().prop_map(Duration::from_nanos),
        2 => (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
    ]
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        (0..=200_u32).prop_map(|percent| Jitter::Additive { percent }),
        any::<u32>().prop_map(|percent| Jitter::Additive { percent }),
        Just(Jitter::Decorrelated),
        any::<u32>().prop_map(|percent| Jitter::AdditiveOverCap { percent }),
        (0..=200_u32).prop_map(|percent| Jitter::Subtractive { percent }),
        Just(Jitter::DecorrelatedUnclamped),
    ]
}

fn any_hint_rule() -> impl Strategy<Value = HintRule> {
    prop_oneof![
        Just(HintRule::Floor),
        any_duration().prop_map(|max_hint| HintRule::Replace { max_hint }),
        any_duration().prop_map(|max_hint| HintRule::Obey { max_hint }),
        any_duration().prop_map(|max_hint| HintRule::AtLeast { max_hint }),
    ]
}

/// Whether a sequence ends on `hint` under `rule`.
fn is_too_long(rule: HintRule, hint: Option<Duration>) -> bool {
    match rule {
        HintRule::Floor | HintRule::Replace { .. } => false,
        HintRule::Obey { max_hint } | HintRule::AtLeast { max_hint } => hint.is_some_and(|it| it > max_hint),
    }
}

prop_compose! {
    fn any_policy()(
        max_attempts in prop_oneof![0..8_u32, any::<u32>()],
        (initial_backoff, max_backoff, total_deadline) in (any_duration(), any_duration(), any_duration()),
        backoff in prop_oneof![Just(Backoff::Fixed), Just(Backoff::Linear), Just(Backoff::Exponential)],
        jitter in any_jitter(),
        hint_rule in any_hint_rule(),
    ) -> RetryPolicy {
        RetryPolicy { max_attempts, initial_backoff, max_backoff, total_deadline, backoff, jitter, hint_rule }
    }
}

/// The number of failed attempts: few as a rule, sometimes absurdly many.
fn any_attempt() -> impl Strategy<Value = u32> {
    prop_oneof![0..10_u32, any::<u32>()]
}

/// Any bit pattern, and more often than that a proper unit.
fn any_unit() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..1.0, any::<u64>().prop_map(f64::from_bits), Just(0.0), Just(ALMOST_ONE)]
}
