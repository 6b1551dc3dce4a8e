//! Durations written as plain decimal numbers.

use std::iter;
use std::time::Duration;

use super::nanos::saturating_from_nanos;

/// Reads `text` as a number of `unit`s: digits, and optionally a point with more digits.
///
/// Signs, exponents, hexadecimal, `inf` and blanks are refused. Digits below the nanosecond are dropped; a
/// number too large for a [`Duration`] is [`Duration::MAX`].
pub(super) fn parse(text: &str, unit: Duration) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = number(whole, whole.len())?;
    let billionths = number(fraction, 9)?;
    let unit = unit.as_nanos();
    let nanos = whole.saturating_mul(unit).saturating_add(billionths * unit / 1_000_000_000);
    Some(saturating_from_nanos(nanos))
}

/// The number that the first `length` digits make, with zeros in the place of missing ones.
fn number(digits: &str, length: usize) -> Option<u128> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits = digits.bytes().chain(iter::repeat(b'0')).take(length);
    Some(
        digits.fold(0, |number: u128, digit| number.saturating_mul(10).saturating_add((digit - b'0').into())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_to_the_nanosecond() {
        let (second, milli) = (Duration::from_secs(1), Duration::from_millis(1));
        for (text, unit, nanos) in [
            ("0", second, 0),
            ("020", second, 20_000_000_000),
            ("1.5", second, 1_500_000_000),
            ("0.000000001", second, 1),
            ("0.0000000019", second, 1),
            ("250", milli, 250_000_000),
            ("0.25", milli, 250_000),
        ] {
            assert_eq!(parse(text, unit), Some(Duration::from_nanos(nanos)), "{text} × {unit:?}");
        }
    }

    #[test]
    fn what_is_no_plain_decimal_is_refused() {
        for text in
            ["", ".", "1.", ".5", "-5", "+5", "1.-5", "1.5.5", "1e3", "0x10", " 1", "1 ", "inf", "NaN", "٣"]
        {
            assert_eq!(parse(text, Duration::from_secs(1)), None, "{text:?}");
        }
    }

    #[test]
    fn the_largest_numbers_saturate() {
        let second = Duration::from_secs(1);
        assert_eq!(parse("18446744073709551615", second), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(parse("18446744073709551616", second), Some(Duration::MAX));
        assert_eq!(parse(&"9".repeat(1_000), second), Some(Duration::MAX));
    }
}
