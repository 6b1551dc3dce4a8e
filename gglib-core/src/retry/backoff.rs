//! The arithmetic of a delay: growth, jitter and hint, exact in nanoseconds.
//!
//! A [`Duration`] has fewer than 2^94 nanoseconds, so that in `u128` its product with a 32-bit number is
//! exact. Only the final conversion back to a `Duration` can saturate.

use std::time::Duration;

use super::policy::{Backoff, HintRule, Jitter, RetryPolicy};

/// The delay after `attempt` (at least 1) failed attempts.
pub(super) fn delay(
    policy: &RetryPolicy,
    attempt: u32,
    hint: Option<Duration>,
    unit: Unit,
    previous: Duration,
) -> Duration {
    let own = || jittered(policy, grown(policy, attempt), unit, previous);
    let spread = |width: Duration| unit.of(width.as_nanos());
    let nanos = match (hint, policy.hint_rule) {
        (Some(hint), HintRule::Floor) => {
            hint.min(policy.max_backoff).as_nanos() + spread(policy.initial_backoff)
        }
        (None | Some(Duration::ZERO), _) => own(),
        (Some(hint), HintRule::Replace { max_hint }) => {
            jittered(policy, hint.min(max_hint).as_nanos(), unit, previous)
        }
        (Some(hint), HintRule::Obey { .. }) => hint.as_nanos(),
        (Some(hint), HintRule::AtLeast { .. }) => {
            own().max(hint.as_nanos() + spread(policy.initial_backoff.min(policy.max_backoff)))
        }
    };
    saturating_from_nanos(nanos)
}

/// What [`Backoff`] gives, low enough for the jitter on top to stay within `max_backoff`.
fn grown(policy: &RetryPolicy, attempt: u32) -> u128 {
    let factor = match policy.backoff {
        // Decorrelated jitter grows by itself, from the previous delay.
        _ if matches!(policy.jitter, Jitter::Decorrelated | Jitter::DecorrelatedUnclamped) => 1,
        Backoff::Fixed => 1,
        Backoff::Linear => u128::from(attempt),
        // 2^127 times a nanosecond is longer than any duration.
        Backoff::Exponential => 1 << attempt.saturating_sub(1).min(127),
    };
    let max = policy.max_backoff.as_nanos();
    let highest = match policy.jitter {
        Jitter::Additive { percent } => max * 100 / (100 + u128::from(percent)),
        _ => max,
    };
    policy.initial_backoff.as_nanos().saturating_mul(factor).min(highest)
}

fn jittered(policy: &RetryPolicy, base: u128, unit: Unit, previous: Duration) -> u128 {
    match policy.jitter {
        Jitter::None => base,
        Jitter::Full => unit.of(base),
        Jitter::Equal => {
            let half = base / 2;
            half + unit.of(base - half)
        }
        Jitter::Additive { percent } | Jitter::AdditiveOverCap { percent } => {
            base + unit.of(base * u128::from(percent) / 100)
        }
        Jitter::Subtractive { percent } => {
            let width = base * u128::from(percent.min(100)) / 100;
            base - width + unit.of(width)
        }
        Jitter::Decorrelated => {
            let bound = (previous.as_nanos() * 3).min(policy.max_backoff.as_nanos()).max(base);
            base + unit.of(bound - base)
        }
        Jitter::DecorrelatedUnclamped => {
            let bound = (previous.as_nanos() * 3).max(base);
            (base + unit.of(bound - base)).min(policy.max_backoff.as_nanos().max(base))
        }
    }
}

/// `nanos` nanoseconds, or the longest duration there is.
pub(super) fn saturating_from_nanos(nanos: u128) -> Duration {
    match u64::try_from(nanos) {
        Ok(nanos) => Duration::from_nanos(nanos),
        Err(_) => Duration::from_nanos_u128(nanos.min(Duration::MAX.as_nanos())),
    }
}

/// A fraction in [0, 1) in fixed point, with the 53 binary digits that a uniformly drawn `f64` has.
#[derive(Clone, Copy)]
pub(super) struct Unit(u64);

impl Unit {
    const BITS: u32 = 53;
    const LARGEST: u64 = (1 << Self::BITS) - 1;

    /// NaN and everything below 0 become 0; 1 and everything above become the largest fraction below 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "2^53 is exact in f64; `as` maps NaN and negative numbers to 0 and saturates"
    )]
    pub(super) fn new(unit: f64) -> Self {
        Self(((unit * (Self::LARGEST + 1) as f64) as u64).min(Self::LARGEST))
    }

    /// This fraction of `nanos` (below 2^127), rounded down.
    fn of(self, nanos: u128) -> u128 {
        let unit = u128::from(self.0);
        // The whole product has up to 180 bits; split at the binary point, both halves fit.
        let low = nanos & u128::from(Self::LARGEST);
        (nanos >> Self::BITS) * unit + ((low * unit) >> Self::BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_read_into_the_half_open_interval() {
        for (unit, expected) in [
            (f64::NAN, 0),
            (f64::NEG_INFINITY, 0),
            (-1.0, 0),
            (-0.0, 0),
            (f64::MIN_POSITIVE, 0),
            (f64::EPSILON / 2.0, 1),
            (0.5, 1 << 52),
            (1.0 - f64::EPSILON / 2.0, Unit::LARGEST),
            (1.0, Unit::LARGEST),
            (2.0, Unit::LARGEST),
            (f64::INFINITY, Unit::LARGEST),
        ] {
            assert_eq!(Unit::new(unit).0, expected, "{unit}");
        }
    }

    #[test]
    fn the_split_product_is_exact() {
        // 2^93 + 2^53 + 1 has bits on both sides of the split.
        let nanos = (1 << 93) + (1 << 53) + 1;
        assert_eq!(Unit::new(0.5).of(nanos), (1 << 92) + (1 << 52));
        assert_eq!(Unit::new(1.0).of(nanos), nanos - (1 << 40) - 2);
        assert_eq!(Unit::new(1.0).of(1), 0);
        assert_eq!(Unit::new(0.0).of(u128::MAX), 0);
    }

    #[test]
    fn nanoseconds_saturate_only_beyond_the_longest_duration() {
        let longest = Duration::MAX.as_nanos();
        assert_eq!(saturating_from_nanos(u128::from(u64::MAX) + 1).as_nanos(), u128::from(u64::MAX) + 1);
        assert_eq!(saturating_from_nanos(longest), Duration::MAX);
        assert_eq!(saturating_from_nanos(longest + 1), Duration::MAX);
    }
}
