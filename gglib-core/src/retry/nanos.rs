//! Exact arithmetic in nanoseconds.
//!
//! Formulas are written once, for two widths. 64 bits hold 584 years, and cost a fraction of what 128 do. Where they are
//! not enough, 128 always are: a [`Duration`] has fewer than 2^94 nanoseconds, so that its product with a 33-bit number
//! is exact. Only the conversion back to a `Duration` can saturate.

use std::ops::Sub;
use std::time::Duration;

const PER_SECOND: u64 = 1_000_000_000;

/// A number of nanoseconds. Operations answer with `None` if the width is too small for the result.
pub(super) trait Nanos: Copy + Ord + Sub<Output = Self> {
    const ZERO: Self;
    const MAX: Self;

    fn of(duration: Duration) -> Option<Self>;

    fn plus(self, other: Self) -> Option<Self>;

    fn saturating_sub(self, other: Self) -> Self;

    /// Times `numerator / denominator`, rounded down.
    fn scaled(self, numerator: u64, denominator: u64) -> Option<Self>;

    /// Times `2^times`; saturates.
    fn doubled(self, times: u32) -> Self;

    /// This fraction of it, rounded down.
    fn fraction(self, unit: Unit) -> Self;

    /// The same in a [`Duration`]; saturates.
    fn duration(self) -> Duration;
}

impl Nanos for u64 {
    const ZERO: Self = 0;
    const MAX: Self = Self::MAX;

    #[inline]
    fn of(duration: Duration) -> Option<Self> {
        // One comparison, instead of one after each operation.
        const LONGEST: u64 = u64::MAX / PER_SECOND - 1;
        let secs = duration.as_secs();
        (secs <= LONGEST).then(|| secs * PER_SECOND + u64::from(duration.subsec_nanos()))
    }

    #[inline]
    fn plus(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }

    #[inline]
    fn saturating_sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    #[inline]
    fn scaled(self, numerator: u64, denominator: u64) -> Option<Self> {
        Some(self.checked_mul(numerator)? / denominator)
    }

    #[inline]
    fn doubled(self, times: u32) -> Self {
        match self.checked_shl(times) {
            Some(doubled) if doubled >> times == self => doubled,
            _ if self == 0 => 0,
            _ => Self::MAX,
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a fraction of a u64 is one")]
    fn fraction(self, unit: Unit) -> Self {
        ((u128::from(self) * u128::from(unit.0)) >> Unit::BITS) as Self
    }

    #[inline]
    fn duration(self) -> Duration {
        Duration::from_nanos(self)
    }
}

/// For durations, whose products with 33 bits it holds: nothing is ever `None`.
impl Nanos for u128 {
    const ZERO: Self = 0;
    const MAX: Self = Self::MAX;

    fn of(duration: Duration) -> Option<Self> {
        Some(duration.as_nanos())
    }

    fn plus(self, other: Self) -> Option<Self> {
        Some(self + other)
    }

    fn saturating_sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    fn scaled(self, numerator: u64, denominator: u64) -> Option<Self> {
        Some(self * Self::from(numerator) / Self::from(denominator))
    }

    fn doubled(self, times: u32) -> Self {
        match self.checked_shl(times) {
            Some(doubled) if doubled >> times == self => doubled,
            _ if self == 0 => 0,
            _ => Self::MAX,
        }
    }

    fn fraction(self, unit: Unit) -> Self {
        let unit = Self::from(unit.0);
        // The whole product has up to 180 bits; split at the binary point, both halves fit.
        let low = self & Self::from(Unit::LARGEST);
        (self >> Unit::BITS) * unit + ((low * unit) >> Unit::BITS)
    }

    fn duration(self) -> Duration {
        saturating_from_nanos(self)
    }
}

/// `nanos` nanoseconds, or the longest duration there is.
pub(super) fn saturating_from_nanos(nanos: u128) -> Duration {
    Duration::from_nanos_u128(nanos.min(Duration::MAX.as_nanos()))
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
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "2^53 is exact in f64 and i64; `as` maps NaN to 0 and saturates"
    )]
    #[inline]
    pub(super) fn new(unit: f64) -> Self {
        // By way of a signed number, which processors convert to in one step.
        Self(((unit * (1_i64 << Self::BITS) as f64) as i64).clamp(0, Self::LARGEST as i64) as u64)
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
        let nanos = (1_u128 << 93) + (1 << 53) + 1;
        assert_eq!(nanos.fraction(Unit::new(0.5)), (1 << 92) + (1 << 52));
        assert_eq!(nanos.fraction(Unit::new(1.0)), nanos - (1 << 40) - 2);
        assert_eq!(1_u128.fraction(Unit::new(1.0)), 0);
        assert_eq!(u128::MAX.fraction(Unit::new(0.0)), 0);
    }

    #[test]
    fn nanoseconds_saturate_only_beyond_the_longest_duration() {
        let longest = Duration::MAX.as_nanos();
        assert_eq!(saturating_from_nanos(u128::from(u64::MAX) + 1).as_nanos(), u128::from(u64::MAX) + 1);
        assert_eq!(saturating_from_nanos(longest), Duration::MAX);
        assert_eq!(saturating_from_nanos(longest + 1), Duration::MAX);
    }
}
