//! Hints: what headers are read as, and what is advertised.
//!
//! Of the cases C62 to C89, C89 (a hint on a response that is not retryable) belongs to the classification of
//! failures. C63, C67, C68, C71, C83, C84 and C86 are answered here by the default rule, `min(hint, max_backoff)`
//! as a floor; their other answer, giving up on a hint beyond a limit, is in the module `limit`.

use std::time::Duration;

use gglib_core::retry::{HintRule, RetryPolicy, decide, hint};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::{
    ALMOST_ONE, DEADLINE_EXCEEDED, NS, any_duration, any_unit, at, delay_of, just_below, retry, secs,
};

/// Fri, 29 Sep 2023 16:26:37 GMT.
const NOW: u64 = 1_696_004_797;

fn parse(headers: &[(&'static str, &[u8])]) -> Option<Duration> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_bytes(value).expect("a legal header value"));
    }
    hint::parse(&map, NOW)
}

#[track_caller]
fn check(retry_after: &str, expected: Option<Duration>) {
    assert_eq!(parse(&[("retry-after", retry_after.as_bytes())]), expected, "{retry_after:?}");
}

#[test]
fn c62_c63_c65_seconds() {
    for text in ["20", " 20 ", "\t20", "020", "20.0"] {
        check(text, Some(secs(20.0)));
    }
    check("0", Some(Duration::ZERO));
    check("1.5", Some(secs(1.5)));
}

#[test]
fn c64_c66_malformed_numbers_are_no_hint() {
    let malformed =
        ["-5", "+5", "", " ", "abc", "120junk", "120 s", "0x10", "1e3", "inf", "NaN", "1e400", "1.", ".5"];
    for text in malformed {
        check(text, None);
    }
    // Retry-After is no list: what looks like one was mangled on its way.
    check("5, 30", None);
}

#[test]
fn c67_c68_large_numbers_saturate() {
    check("9999999999", Some(Duration::from_secs(9_999_999_999)));
    check(&"9".repeat(35), Some(Duration::MAX));
    check(&"9".repeat(5_000), Some(Duration::MAX));
    assert_eq!(parse(&[("retry-after-ms", "9".repeat(35).as_bytes())]), Some(Duration::MAX));
}

#[test]
fn c69_c70_dates_in_all_three_forms() {
    for date in [
        "Fri, 29 Sep 2023 16:26:57 GMT",
        "Friday, 29-Sep-23 16:26:57 GMT",
        "Fri Sep 29 16:26:57 2023",
        " Fri, 29 Sep 2023 16:26:57 GMT ",
    ] {
        check(date, Some(secs(20.0)));
    }
    check("Mon Nov  6 08:49:37 2023", Some(Duration::from_secs(1_699_260_577 - NOW)));
    check("Fri, 31 Dec 9999 23:59:59 GMT", Some(Duration::from_secs(253_402_300_799 - NOW)));
}

#[test]
fn c71_dates_that_have_passed_are_zero() {
    for date in
        ["Fri, 29 Sep 2023 16:26:37 GMT", "Fri, 29 Sep 2023 16:26:36 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"]
    {
        check(date, Some(Duration::ZERO));
    }
}

#[test]
fn c72_two_digit_years_reach_fifty_years_ahead() {
    // 1 January 2073 is a Sunday.
    check("Sunday, 01-Jan-73 00:00:00 GMT", Some(Duration::from_secs(3_250_454_400 - NOW)));
    // 1 January 2074 would be 50.3 years ahead: this is 1974.
    check("Tuesday, 01-Jan-74 00:00:00 GMT", Some(Duration::ZERO));
}

#[test]
fn c73_c74_malformed_dates_are_no_hint() {
    for date in [
        "Zun, 29 Sep 2023 16:26:47 GMT",
        // The date was a Friday.
        "Mon, 29 Sep 2023 16:26:57 GMT",
        "Fri, 31 Sep 2023 16:26:57 GMT",
        "Fri, 29 Sep 2023 24:26:57 GMT",
        "Fri, 29 Sep 2023 16:26:57 CET",
        "Fri, 29 Sep 100000 16:26:57 GMT",
        "29 Sep 2023 16:26:57 GMT",
        "2023-09-29T16:26:57Z",
    ] {
        check(date, None);
    }
}

#[test]
fn c77_of_several_values_the_largest_counts() {
    let values = |values: &[&'static str]| {
        parse(&values.iter().map(|value| ("retry-after", value.as_bytes())).collect::<Vec<_>>())
    };
    assert_eq!(values(&["5", "30"]), Some(secs(30.0)));
    assert_eq!(values(&["30", "5"]), Some(secs(30.0)));
    assert_eq!(values(&["5", "Fri, 29 Sep 2023 16:26:57 GMT"]), Some(secs(20.0)));
    assert_eq!(values(&["junk", "5", "-30"]), Some(secs(5.0)));
    assert_eq!(parse(&[("retry-after-ms", b"250"), ("retry-after-ms", b"700")]), Some(secs(0.7)));
}

#[test]
fn c79_c80_c81_c82_legible_milliseconds_win() {
    let both = |ms: &'static str| parse(&[("retry-after", b"7"), ("retry-after-ms", ms.as_bytes())]);
    for (ms, expected) in [
        ("250", secs(0.25)),
        ("0", Duration::ZERO),
        ("0.5", Duration::from_micros(500)),
        ("120000", secs(120.0)),
        ("120001", secs(120.001)),
        ("junk", secs(7.0)),
        ("-250", secs(7.0)),
        ("", secs(7.0)),
        // Milliseconds are never a date.
        ("Fri, 29 Sep 2023 16:26:57 GMT", secs(7.0)),
    ] {
        assert_eq!(both(ms), Some(expected), "{ms:?}");
    }
    assert_eq!(parse(&[("retry-after-ms", b"250")]), Some(secs(0.25)));
}

#[test]
fn values_that_are_not_text_are_no_hint() {
    assert_eq!(parse(&[("retry-after", b"\xff\xfe")]), None);
    assert_eq!(parse(&[("retry-after", b"5\xa0")]), None);
    assert_eq!(parse(&[("retry-after", "５".as_bytes())]), None);
    assert_eq!(parse(&[("retry-after-ms", b"\x80"), ("retry-after", b"7")]), Some(secs(7.0)));
    assert_eq!(parse(&[]), None);
}

#[test]
fn c83_to_c88_the_default_rule_makes_a_hint_a_floor() {
    let policy = RetryPolicy::default();
    let after =
        |attempt, hint: Option<Duration>, unit| delay_of(decide(&policy, attempt, hint, secs(0.2), unit));
    // C83, C84: neither the third attempt's own window of 4 s nor the unit changes the floor.
    assert_eq!(after(3, Some(secs(2.0)), 0.0), secs(2.0));
    assert_eq!(after(3, Some(secs(2.0)), 0.5), secs(2.5));
    assert_eq!(after(3, Some(secs(30.0)), 0.0), secs(15.0));
    assert_eq!(after(3, Some(secs(30.0)), ALMOST_ONE), just_below(16.0));
    // C63, C71: a hint of zero still leaves the spread.
    assert_eq!(after(3, Some(Duration::ZERO), 0.5), secs(0.5));
    // C85: never early.
    assert_eq!(after(1, Some(secs(5.0)), 0.0), secs(5.0));
    // C67, C68, C86: no hint parks a request for longer than the cap and the spread.
    for long in [secs(171.0), secs(9_999_999_999.0), Duration::MAX] {
        assert_eq!(after(1, Some(long), 0.5), secs(15.5));
    }
    // C88: nor does one outlive the deadline.
    assert_eq!(decide(&policy, 1, Some(secs(10.0)), secs(55.0), 0.0), DEADLINE_EXCEEDED);
    assert_eq!(decide(&policy, 1, Some(secs(10.0)), secs(49.0), 0.0), retry(secs(10.0)));
}

#[test]
fn advertised_hints_are_whole_seconds_from_one_to_sixty() {
    let policy = RetryPolicy::default();
    for (estimate, expected) in [
        (Duration::ZERO, 1),
        (NS, 1),
        (secs(1.0), 1),
        (secs(1.0) + NS, 2),
        (secs(15.0), 15),
        (secs(59.0) + NS, 60),
        (secs(60.0), 60),
        (secs(60.0) + NS, 60),
        (Duration::MAX, 60),
    ] {
        assert_eq!(hint::advertise(&policy, Some(estimate)), Duration::from_secs(expected), "{estimate:?}");
    }
    for (max_backoff, expected) in [(secs(15.0), 15), (secs(0.3), 1), (secs(7.5), 8), (Duration::MAX, 60)] {
        let policy = RetryPolicy { max_backoff, ..policy };
        assert_eq!(hint::advertise(&policy, None), Duration::from_secs(expected), "{max_backoff:?}");
    }
}

#[test]
fn each_refused_client_is_told_a_place_of_its_own() {
    let policy = RetryPolicy::default();
    let mut places = hint::Places::default();
    let mut take = |now: f64, room: f64, interval: f64| {
        places.take(&policy, at(now), secs(room), secs(interval)).as_millis()
    };
    // One place a second, from the end of the load on.
    assert_eq!([take(0.0, 8.0, 4.0), take(0.0, 8.0, 4.0)], [8_000, 12_000]);
    // Beyond 15 s the clients of this policy come before their time; to others it is true all the same.
    assert_eq!([take(0.0, 8.0, 4.0), take(0.0, 8.0, 4.0)], [16_000, 20_000]);
    // So these places are given once more when they have come within reach.
    assert_eq!([take(1.0, 7.0, 4.0), take(2.0, 6.0, 4.0)], [15_000, 22_000]);
    // Nobody is told of what is further away than a hint may be, unless there is no room before it.
    assert_eq!([take(2.0, 6.0, 100.0), take(2.0, 6.0, 4.0), take(2.0, 90.0, 4.0)], [26_000, 60_000, 90_000]);
    // What was promised is forgotten with the time that it was about.
    assert_eq!(take(500.0, 0.25, 4.0), 250);
    // A server that serves any number at once has room for all.
    assert_eq!([take(600.0, 1.0, 0.0), take(600.0, 1.0, 0.0)], [1_000, 1_000]);
}

proptest! {
    /// Nobody is told to come before there is room, nor is a place promised twice to clients that wait for it.
    #[test]
    fn places_are_true_and_promised_once(
        steps in prop::collection::vec((0.0..5.0, 0.0..40.0, 0.01..3.0), 1..60),
        max_backoff in 0.0..30.0,
    ) {
        let policy = RetryPolicy { max_backoff: secs(max_backoff), ..RetryPolicy::default() };
        let (mut places, mut now, mut free) = (hint::Places::default(), 0.0, at(0.0));
        for (passed, room, interval) in steps {
            now += passed;
            let told = places.take(&policy, at(now), secs(room), secs(interval));
            prop_assert!(told >= secs(room));
            prop_assert!(told <= secs(60.0).max(secs(room)).max(policy.max_backoff.saturating_add(secs(3.0))));
            let place = at(now).saturating_add(told);
            if told <= policy.max_backoff {
                prop_assert!(place >= free, "{place:?} was promised to another");
                free = place.saturating_add(secs(interval));
            }
        }
    }

    /// A client with the server's policy keeps to an advertised hint that it may wait for.
    #[test]
    fn client_and_server_agree(
        initial_backoff in any_duration(),
        max_backoff in any_duration(),
        estimate in proptest::option::of(any_duration()),
        attempt in 1..4_u32,
        unit in any_unit(),
    ) {
        let policy =
            RetryPolicy { initial_backoff, max_backoff, total_deadline: Duration::MAX, ..RetryPolicy::default() };
        prop_assert_eq!(policy.hint_rule, HintRule::Floor);
        let hint = hint::advertise(&policy, estimate);
        // The way over the wire and back.
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from(hint.as_secs()))]);
        prop_assert_eq!(hint::parse(&headers, NOW), Some(hint));

        let after = delay_of(decide(&policy, attempt, Some(hint), Duration::ZERO, unit));
        if hint <= max_backoff {
            prop_assert!(after >= hint);
        } else {
            prop_assert!(after >= max_backoff);
        }
        prop_assert!(after <= hint.saturating_add(initial_backoff));
        // The server itself is never early: its hint covers the estimate as far as hints reach.
        prop_assert!(hint >= estimate.unwrap_or(max_backoff).min(secs(60.0)));
    }

    #[test]
    fn arbitrary_bytes_are_read_without_panic(
        names in prop::collection::vec(prop_oneof![Just("retry-after"), Just("retry-after-ms")], 0..4),
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 4),
        unix_now in any::<u64>(),
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in names.into_iter().zip(values) {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(name, value);
            }
        }
        hint::parse(&headers, unix_now);
    }

    /// Strings that get further into the parsers than bytes do.
    #[test]
    fn almost_dates_are_read_without_panic(
        text in "(Fri|Friday|Sunday|Zun)(, | )[0-3]?[0-9]( |-)(Sep|Feb|Xxx)( |-)[0-9]{1,6} [0-9:]{6,9}( GMT| 2023)?",
        unix_now in prop_oneof![any::<u64>(), Just(NOW), Just(0)],
    ) {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(&text).expect("visible ASCII"))]);
        hint::parse(&headers, unix_now);
    }

    /// A number is read as that number, whatever its size and its zeros.
    #[test]
    fn decimals_are_read_exactly(seconds in any::<u64>(), millis in 0..1_000_u32, zeros in 0..3_usize) {
        let text = format!("{}{seconds}.{millis:03}{}", "0".repeat(zeros), "0".repeat(zeros));
        let expected = Duration::new(seconds, millis * 1_000_000);
        prop_assert_eq!(parse(&[("retry-after", text.as_bytes())]), Some(expected));
    }

    /// Every second of the calendar survives being written in each of the forms and read again.
    #[test]
    fn dates_are_read_exactly(at in 0..253_402_300_800_u64) {
        let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(at));
        prop_assert_eq!(
            parse(&[("retry-after", date.as_bytes())]),
            Some(Duration::from_secs(at.saturating_sub(NOW)))
        );
        let asctime = format!(
            "{} {} {:>2} {} {}",
            &date[..3],
            &date[8..11],
            date[5..7].trim_start_matches('0'),
            &date[17..25],
            &date[12..16]
        );
        prop_assert_eq!(
            parse(&[("retry-after", asctime.as_bytes())]),
            Some(Duration::from_secs(at.saturating_sub(NOW)))
        );
    }
}
