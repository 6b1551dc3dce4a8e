//! HTTP dates (RFC 9110 §5.6.7), with two-digit years read relative to the present.

use std::time::UNIX_EPOCH;

/// Seconds in the mean Gregorian year.
const YEAR: u64 = 31_556_952;

const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The date in `text`, in seconds since 1970, or `None` if it is none.
///
/// A weekday that contradicts the date makes it none, as do years before 1970 or after 9999.
pub(super) fn parse(text: &str, unix_now: u64) -> Option<u64> {
    match Rfc850::split(text) {
        Some(date) => date.resolve(unix_now),
        None => unix_seconds(text),
    }
}

fn unix_seconds(text: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The parts of a date such as `Friday, 29-Sep-23 16:26:57 GMT`.
///
/// `httpdate` knows the form, but takes the two digits for a year from 1970 to 2069 whenever it is asked,
/// and checks the weekday against that.
struct Rfc850<'a> {
    weekday: &'a str,
    day: &'a str,
    month: &'a str,
    year: u64,
    time: &'a str,
}

impl<'a> Rfc850<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let (weekday, rest) = text.split_once(", ")?;
        let (day, rest) = rest.split_once('-')?;
        let (month, rest) = rest.split_once('-')?;
        let (year, time) = rest.split_once(' ')?;
        let two_digits = year.len() == 2 && year.bytes().all(|digit| digit.is_ascii_digit());
        if !WEEKDAYS.contains(&weekday) || !two_digits {
            return None;
        }
        Some(Self { weekday: &weekday[..3], day, month, year: year.parse().ok()?, time })
    }

    /// The latest date with these parts that lies no more than 50 years ahead.
    ///
    /// RFC 9110 lets a date that seems to be further ahead mean the latest such year in the past.
    fn resolve(&self, unix_now: u64) -> Option<u64> {
        let Self { weekday, day, month, year, time } = self;
        let limit = unix_now.saturating_add(50 * YEAR);
        let century = (1970 + limit / YEAR) / 100;
        [century, century - 1].into_iter().find_map(|century| {
            let year = century * 100 + year;
            unix_seconds(&format!("{weekday}, {day} {month} {year} {time}")).filter(|&at| at <= limit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fri, 29 Sep 2023 16:26:37 GMT.
    const NOW: u64 = 1_696_004_797;

    #[test]
    fn two_digit_years_end_fifty_years_ahead() {
        for (text, same_as) in [
            ("Friday, 29-Sep-23 16:26:57 GMT", "Fri, 29 Sep 2023 16:26:57 GMT"),
            ("Sunday, 01-Jan-73 00:00:00 GMT", "Sun, 01 Jan 2073 00:00:00 GMT"),
            ("Tuesday, 01-Jan-74 00:00:00 GMT", "Tue, 01 Jan 1974 00:00:00 GMT"),
            // Within the year in which the window ends: 2073 is out of reach in October.
            ("Monday, 01-Oct-73 00:00:00 GMT", "Mon, 01 Oct 1973 00:00:00 GMT"),
        ] {
            let expected = unix_seconds(same_as);
            assert!(expected.is_some(), "{same_as} is a date");
            assert_eq!(parse(text, NOW), expected, "{text}");
        }
    }

    #[test]
    fn the_window_moves_with_the_present() {
        let text = "Tuesday, 01-Jan-74 00:00:00 GMT";
        assert_eq!(parse(text, NOW), unix_seconds("Tue, 01 Jan 1974 00:00:00 GMT"));
        // Half a year later the same digits mean 2074, whose first of January is a Monday.
        let text = "Monday, 01-Jan-74 00:00:00 GMT";
        assert_eq!(parse(text, NOW + YEAR / 2), unix_seconds("Mon, 01 Jan 2074 00:00:00 GMT"));
    }

    #[test]
    fn no_present_panics() {
        for now in [0, YEAR, u64::MAX / 2, u64::MAX] {
            parse("Friday, 29-Sep-23 16:26:57 GMT", now);
        }
    }

    #[test]
    fn what_only_resembles_a_date_is_none() {
        for text in [
            "Fridax, 29-Sep-23 16:26:57 GMT",
            "Fri, 29-Sep-23 16:26:57 GMT",
            "Friday, 29-Sep-2023 16:26:57 GMT",
            "Friday, 9-Sep-23 16:26:57 GMT",
            "Friday, 29-Sep-+3 16:26:57 GMT",
            "Friday, 31-Jun-23 16:26:57 GMT",
            "Monday, 29-Sep-23 16:26:57 GMT",
            // A Sunday in 2073, which is too far ahead by two days, and a Monday in 1973.
            "Sunday, 01-Oct-73 00:00:00 GMT",
            "Friday, 29-Sep-23 24:26:57 GMT",
            "Friday, 29-Sep-23 16:26:57 CET",
        ] {
            assert_eq!(parse(text, NOW), None, "{text}");
        }
    }
}
