//! The only notion of "now" that the state machines know.

use std::time::Duration;

/// A point in time: nanoseconds since an arbitrary origin chosen by the driver.
///
/// Two moments of one driver compare and subtract; a moment says nothing about the calendar. Arithmetic
/// saturates, so no value of a [`Duration`] can overflow it.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::moment::Moment;
///
/// let start = Moment::ORIGIN;
/// let later = start.saturating_add(Duration::from_secs(2));
/// assert_eq!(later.saturating_since(start), Duration::from_secs(2));
/// assert_eq!(start.saturating_since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The driver's origin.
    pub const ORIGIN: Self = Self(0);

    /// A moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `by` later, or the last representable one.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(by))
    }

    /// The time that has passed from `earlier` to `self`; zero when `earlier` is the later one.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let last = Moment::from_nanos(u64::MAX);
        assert_eq!(Moment::ORIGIN.saturating_add(Duration::MAX), last);
        assert_eq!(last.saturating_add(Duration::from_nanos(1)), last);
        assert_eq!(Moment::ORIGIN.saturating_since(last), Duration::ZERO);
    }
}
