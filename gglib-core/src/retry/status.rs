//! Sets of HTTP statuses.

use std::fmt;
use std::ops::BitOr;

use http::StatusCode;

/// The error statuses (400 to 599) that a policy retries.
///
/// ```
/// use gglib_core::retry::StatusSet;
/// use http::StatusCode;
///
/// let set = StatusSet::of(&[408, 429]) | StatusSet::SERVER_ERRORS;
/// assert!(set.contains(StatusCode::TOO_MANY_REQUESTS));
/// assert!(set.contains(StatusCode::NOT_IMPLEMENTED));
/// assert!(!set.contains(StatusCode::NOT_FOUND));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StatusSet([u64; 4]);

impl StatusSet {
    /// No status at all.
    pub const EMPTY: Self = Self([0; 4]);

    /// Every status from 500 to 599.
    pub const SERVER_ERRORS: Self = Self::range(500, 599);

    const LOWEST: u16 = 400;
    const HIGHEST: u16 = 599;

    /// The set of `codes`. A code outside 400 to 599 is no error, so that there is nothing to retry: it is left
    /// out.
    pub const fn of(codes: &[u16]) -> Self {
        let mut set = Self::EMPTY;
        let mut at = 0;
        while at < codes.len() {
            set = set.with(codes[at]);
            at += 1;
        }
        set
    }

    /// Whether `status` is in the set.
    pub const fn contains(self, status: StatusCode) -> bool {
        match Self::place(status.as_u16()) {
            Some((word, bit)) => self.0[word] & bit != 0,
            None => false,
        }
    }

    /// The statuses of the set, in ascending order.
    pub fn codes(self) -> impl Iterator<Item = u16> {
        (Self::LOWEST..=Self::HIGHEST)
            .filter(move |&code| Self::place(code).is_some_and(|(word, bit)| self.0[word] & bit != 0))
    }

    const fn range(first: u16, last: u16) -> Self {
        let mut set = Self::EMPTY;
        let mut code = first;
        while code <= last {
            set = set.with(code);
            code += 1;
        }
        set
    }

    const fn with(mut self, code: u16) -> Self {
        if let Some((word, bit)) = Self::place(code) {
            self.0[word] |= bit;
        }
        self
    }

    const fn place(code: u16) -> Option<(usize, u64)> {
        if code < Self::LOWEST || code > Self::HIGHEST {
            return None;
        }
        let offset = code - Self::LOWEST;
        Some(((offset / 64) as usize, 1 << (offset % 64)))
    }
}

impl BitOr for StatusSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}

/// Like `408, 429, 500-599`.
impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut codes = self.codes().peekable();
        let mut separator = "";
        while let Some(first) = codes.next() {
            let mut last = first;
            while let Some(next) = codes.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                1 => write!(f, "{separator}{first}, {last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ", ";
        }
        Ok(())
    }
}

impl fmt::Debug for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatusSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_the_errors_it_was_made_of() {
        let codes = [400, 463, 464, 499, 500, 527, 528, 599];
        assert_eq!(StatusSet::of(&codes).codes().collect::<Vec<_>>(), codes);
        assert_eq!(StatusSet::SERVER_ERRORS.codes().collect::<Vec<_>>(), (500..=599).collect::<Vec<_>>());
    }

    #[test]
    fn neighbours_print_as_a_range() {
        for (set, text) in [
            (StatusSet::EMPTY, ""),
            (StatusSet::of(&[503]), "503"),
            (StatusSet::of(&[504, 503, 429]), "429, 503, 504"),
            (StatusSet::of(&[502, 503, 504]), "502-504"),
            (StatusSet::of(&[408]) | StatusSet::SERVER_ERRORS, "408, 500-599"),
        ] {
            assert_eq!(set.to_string(), text);
            assert_eq!(format!("{set:?}"), format!("StatusSet({text})"));
        }
    }

    #[test]
    fn what_is_no_error_is_never_contained() {
        let set = StatusSet::of(&[0, 100, 200, 304, 399, 600, 655, 999, u16::MAX]);
        assert_eq!(set, StatusSet::EMPTY);
        for code in [100, 200, 399, 600, 999] {
            let status = StatusCode::from_u16(code).unwrap();
            assert!(!(set | StatusSet::SERVER_ERRORS).contains(status), "{code}");
        }
    }
}
