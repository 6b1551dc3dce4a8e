//! The formula of a delay: growth, jitter and hint.

use std::time::Duration;

use super::nanos::{Nanos, Unit};
use super::policy::{Backoff, HintRule, Jitter, RetryPolicy};

/// The delay after `attempt` (at least 1) failed attempts; `None` if the width is too small.
///
/// The short way through [`by_every_rule`]: what the default policy asks for, small enough to be inlined.
#[inline]
pub(super) fn delay<N: Nanos>(
    policy: &RetryPolicy,
    attempt: u32,
    hint: Option<Duration>,
    unit: Unit,
    previous: Duration,
) -> Option<N> {
    match (hint, policy.hint_rule, policy.jitter) {
        (Some(hint), HintRule::Floor, _) => {
            spread(hint.min(policy.max_backoff), policy.initial_backoff, unit)
        }
        (None, _, Jitter::Full) => {
            Some(grown::<N>(policy, attempt)?.min(N::of(policy.max_backoff)?).fraction(unit))
        }
        _ => by_every_rule(policy, attempt, hint, unit, previous),
    }
}

/// The same by every combination of rules.
#[inline(never)]
pub(super) fn by_every_rule<N: Nanos>(
    policy: &RetryPolicy,
    attempt: u32,
    hint: Option<Duration>,
    unit: Unit,
    previous: Duration,
) -> Option<N> {
    let own = || jittered(policy, bounded(policy, attempt)?, unit, previous);
    match (hint, policy.hint_rule) {
        (Some(hint), HintRule::Floor) => spread(hint.min(policy.max_backoff), policy.initial_backoff, unit),
        (None | Some(Duration::ZERO), _) => own(),
        (Some(hint), HintRule::Replace { max_hint }) => {
            jittered(policy, N::of(hint.min(max_hint))?, unit, previous)
        }
        (Some(hint), HintRule::Obey { .. }) => N::of(hint),
        (Some(hint), HintRule::AtLeast { .. }) => {
            let floor = spread(hint, policy.initial_backoff.min(policy.max_backoff), unit)?;
            Some(own()?.max(floor))
        }
    }
}

/// From `least` up to `width` more.
#[inline]
fn spread<N: Nanos>(least: Duration, width: Duration, unit: Unit) -> Option<N> {
    N::of(least)?.plus(N::of(width)?.fraction(unit))
}

/// What [`Backoff`] gives, without a bound.
#[inline]
fn grown<N: Nanos>(policy: &RetryPolicy, attempt: u32) -> Option<N> {
    let first = N::of(policy.initial_backoff)?;
    match policy.backoff {
        Backoff::Fixed => Some(first),
        Backoff::Linear => first.scaled(attempt.into(), 1),
        Backoff::Exponential => Some(first.doubled(attempt.saturating_sub(1))),
    }
}

/// The delay before jitter, low enough for the jitter on top to stay within `max_backoff`.
fn bounded<N: Nanos>(policy: &RetryPolicy, attempt: u32) -> Option<N> {
    let max = N::of(policy.max_backoff)?;
    Some(match policy.jitter {
        // Decorrelated jitter grows by itself, from the previous delay.
        Jitter::Decorrelated | Jitter::DecorrelatedUnclamped => N::of(policy.initial_backoff)?.min(max),
        Jitter::Additive { percent } => {
            grown::<N>(policy, attempt)?.min(max.scaled(100, 100 + u64::from(percent))?)
        }
        _ => grown::<N>(policy, attempt)?.min(max),
    })
}

fn jittered<N: Nanos>(policy: &RetryPolicy, base: N, unit: Unit, previous: Duration) -> Option<N> {
    let max = N::of(policy.max_backoff)?;
    match policy.jitter {
        Jitter::None => Some(base),
        Jitter::Full => Some(base.fraction(unit)),
        Jitter::Equal => {
            let half = base.scaled(1, 2)?;
            half.plus((base - half).fraction(unit))
        }
        Jitter::Additive { percent } | Jitter::AdditiveOverCap { percent } => {
            base.plus(base.scaled(percent.into(), 100)?.fraction(unit))
        }
        Jitter::Subtractive { percent } => {
            let width = base.scaled(percent.min(100).into(), 100)?;
            (base - width).plus(width.fraction(unit))
        }
        Jitter::Decorrelated => {
            let bound = N::of(previous)?.scaled(3, 1)?.min(max).max(base);
            base.plus((bound - base).fraction(unit))
        }
        Jitter::DecorrelatedUnclamped => {
            let bound = N::of(previous)?.scaled(3, 1)?.max(base);
            Some(base.plus((bound - base).fraction(unit))?.min(max.max(base)))
        }
    }
}
