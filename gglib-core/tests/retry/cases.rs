//! Mistakes that retry libraries have made, each with the right answer.
//!
//! The numbers are those of the project's list of cases, C01 to C133. Arithmetic, attempts and deadline are here, up
//! to C51; the others are in the modules `spread` (distributions), `hint` and `limit` (hints), `budget`, `breaker`,
//! `classify`, `sequence` and `lint`; C105, C127 and C132, about what is wired and sent, are in the completion client's
//! tests. These are nowhere:
//!
//! | case | why |
//! |---|---|
//! | C05, C07, C24, C28, C31, C33, C46, C54, C75, C76, C78, C103, C104, C109, C110, C115, C120, C129, C130 | the list has no such case |
//! | C06, C21 | there is no growth factor to misconfigure: exponential means doubling |
//! | C26 | there is no constructor from a bare number whose unit could be mistaken |
//! | C36 | there is no symmetric jitter; additive jitter takes any percentage (C11) |
//! | C48 | attempts are always bounded, by `u32` at the latest; a missing deadline is a lint |
//! | C52, C53 | the state machines are given moments, and read no clock that could be set |
//! | C60, C61 | about the time limit of one attempt, which is the completion client's |
//! | C90 | there is no gRPC, and hence no pushback in its metadata |
//! | C93, C94 | `RateLimit` fields: a draft whose syntax has changed with each of its versions; servers that send it send `Retry-After` as well |
//! | C106 | another rule, with tokens per failure and success; ours counts a window |
//! | C126 | there are no request bodies that are still being sent when the answer comes |

use std::time::Duration;

use gglib_core::retry::{Backoff, HintRule, Jitter, RetryPolicy, decide, decide_with};

use super::{
    ALMOST_ONE, ATTEMPTS_EXHAUSTED, DEADLINE_EXCEEDED, NS, delay, delay_of, endless, just_below, retry, secs,
};

const ADDITIVE_QUARTER: Jitter = Jitter::Additive { percent: 25 };

#[track_caller]
fn check_delays(policy: &RetryPolicy, unit: f64, expected_secs: &[f64]) {
    let attempts = 1..=u32::try_from(expected_secs.len()).expect("tables are short");
    let delays: Vec<_> = attempts.map(|attempt| delay(policy, attempt, unit)).collect();
    let expected: Vec<_> = expected_secs.iter().copied().map(secs).collect();
    assert_eq!(delays, expected);
}

#[test]
fn c01_exponential_doubles_up_to_the_cap() {
    check_delays(&endless(Backoff::Exponential, Jitter::None), 0.9, &[1.0, 2.0, 4.0, 8.0, 15.0, 15.0]);
}

#[test]
fn c02_full_jitter_never_reaches_the_window() {
    let policy = endless(Backoff::Exponential, Jitter::Full);
    assert_eq!(delay(&policy, 4, 0.0), Duration::ZERO);
    assert_eq!(delay(&policy, 4, 0.5), secs(4.0));
    assert_eq!(delay(&policy, 4, ALMOST_ONE), just_below(8.0));
}

#[test]
fn c03_c32_large_attempt_numbers_give_the_cap() {
    for backoff in [Backoff::Exponential, Backoff::Linear] {
        let policy = endless(backoff, Jitter::None);
        for attempt in [33, 64, 65, 96, 128, 129, 1_024, 1_000_000_000, u32::MAX - 1] {
            assert_eq!(delay(&policy, attempt, 0.0), policy.max_backoff, "{backoff:?}, {attempt}");
        }
    }
}

#[test]
fn c04_the_longest_durations_saturate() {
    let longest = |jitter| RetryPolicy {
        initial_backoff: Duration::MAX,
        max_backoff: Duration::MAX,
        ..endless(Backoff::Exponential, jitter)
    };
    let additive = longest(Jitter::Additive { percent: 100 });
    assert_eq!(delay(&longest(Jitter::None), 7, ALMOST_ONE), Duration::MAX);
    // Half of the cap, and all but 2^-53 of as much again.
    let missing = Duration::MAX.saturating_sub(delay(&additive, 7, ALMOST_ONE));
    assert!(missing < Duration::MAX / (1 << 31) / (1 << 22), "{missing:?}");
    // With a hint as long as everything else, the sum itself saturates.
    assert_eq!(delay_of(decide(&additive, 7, Some(Duration::MAX), Duration::MAX, ALMOST_ONE)), Duration::MAX);

    let bounded = RetryPolicy { total_deadline: Duration::MAX.saturating_sub(NS), ..longest(Jitter::None) };
    assert_eq!(decide(&bounded, 7, None, Duration::ZERO, 0.0), DEADLINE_EXCEEDED);
    assert_eq!(decide(&bounded, 7, None, NS, 0.0), DEADLINE_EXCEEDED);
}

#[test]
fn c08_a_cap_below_the_initial_backoff_bounds_it() {
    let policy = RetryPolicy {
        initial_backoff: secs(10.0),
        max_backoff: secs(5.0),
        ..endless(Backoff::Exponential, Jitter::None)
    };
    check_delays(&policy, 0.0, &[5.0, 5.0, 5.0]);
    let decorrelated = RetryPolicy { jitter: Jitter::Decorrelated, ..policy };
    check_delays(&decorrelated, ALMOST_ONE, &[5.0, 5.0, 5.0]);
}

#[test]
fn c09_c10_c25_a_window_of_no_width_is_no_delay() {
    for jitter in [Jitter::None, Jitter::Full, Jitter::Equal, ADDITIVE_QUARTER, Jitter::Decorrelated] {
        for (initial_backoff, max_backoff) in [(0.0, 15.0), (0.0, 0.0), (1.0, 0.0)] {
            let policy = RetryPolicy {
                initial_backoff: secs(initial_backoff),
                max_backoff: secs(max_backoff),
                ..endless(Backoff::Exponential, jitter)
            };
            let first = policy.initial_backoff;
            for attempt in [1, 2, 200] {
                let decision = decide_with(&policy, attempt, None, Duration::ZERO, ALMOST_ONE, first);
                assert_eq!(decision, retry(Duration::ZERO), "{policy:?}, {attempt}");
            }
        }
    }
    let no_width = endless(Backoff::Exponential, Jitter::Additive { percent: 0 });
    check_delays(&no_width, ALMOST_ONE, &[1.0, 2.0, 4.0]);
}

#[test]
fn c11_additive_jitter_stays_within_the_cap() {
    let policy = RetryPolicy {
        initial_backoff: secs(10.0),
        max_backoff: secs(10.0),
        ..endless(Backoff::Exponential, Jitter::Additive { percent: 100 })
    };
    assert_eq!(delay(&policy, 1, 0.0), secs(5.0));
    assert_eq!(delay(&policy, 1, 0.5), secs(7.5));
    assert_eq!(delay(&policy, 1, ALMOST_ONE), just_below(10.0));

    let widest = RetryPolicy { jitter: Jitter::Additive { percent: u32::MAX }, ..policy };
    assert!(delay(&widest, 1, 0.0) < secs(0.000_001));
    assert!(delay(&widest, 1, ALMOST_ONE) < secs(10.0));
}

#[test]
fn c14_c15_c16_decorrelated_jitter_follows_the_previous_delay() {
    let policy = endless(Backoff::Exponential, Jitter::Decorrelated);
    let sequence = |unit: f64| {
        let mut previous = policy.initial_backoff;
        let mut delays = Vec::new();
        for attempt in 1..=4 {
            previous = delay_of(decide_with(&policy, attempt, None, Duration::ZERO, unit, previous));
            delays.push(previous);
        }
        delays
    };
    assert_eq!(sequence(0.0), [1.0; 4].map(secs));
    assert_eq!(sequence(f64::NAN), [1.0; 4].map(secs));
    assert_eq!(sequence(0.5), [2.0, 3.5, 5.75, 8.0].map(secs));
    // Each is one nanosecond short, and three times that of the next.
    assert_eq!(
        sequence(ALMOST_ONE),
        [just_below(3.0), secs(9.0).saturating_sub(4 * NS), just_below(15.0), just_below(15.0)]
    );

    // Without memory every delay is drawn like the first.
    check_delays(&policy, 0.5, &[2.0, 2.0, 2.0]);
    // It comes down again from the cap, and a previous delay of nothing does not pull it below the base.
    assert_eq!(decide_with(&policy, 5, None, Duration::ZERO, 0.0, secs(15.0)), retry(secs(1.0)));
    assert_eq!(decide_with(&policy, 5, None, Duration::ZERO, 0.5, Duration::ZERO), retry(secs(1.0)));
}

#[test]
fn c17_additive_jitter_only_adds() {
    let policy = RetryPolicy { initial_backoff: secs(4.0), ..endless(Backoff::Fixed, ADDITIVE_QUARTER) };
    assert_eq!(delay(&policy, 1, 0.0), secs(4.0));
    assert_eq!(delay(&policy, 1, 0.5), secs(4.5));
    assert_eq!(delay(&policy, 1, ALMOST_ONE), just_below(5.0));
}

#[test]
fn c18_c19_units_outside_the_interval_are_its_ends() {
    let policy = endless(Backoff::Exponential, Jitter::Full);
    for unit in [f64::NAN, -1.0, -f64::MIN_POSITIVE, f64::NEG_INFINITY] {
        assert_eq!(delay(&policy, 2, unit), Duration::ZERO, "{unit}");
    }
    for unit in [1.0, 2.0, f64::INFINITY] {
        assert_eq!(delay(&policy, 2, unit), just_below(2.0), "{unit}");
    }
}

#[test]
fn c20_c22_delays_are_exact_to_the_nanosecond() {
    let tenth = RetryPolicy {
        initial_backoff: Duration::from_millis(100),
        ..endless(Backoff::Exponential, Jitter::None)
    };
    for (attempt, millis) in (1..=8).zip([100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800]) {
        assert_eq!(delay(&tenth, attempt, 0.0), Duration::from_millis(millis));
    }
    let below_a_second = RetryPolicy {
        initial_backoff: Duration::from_nanos(900_000_001),
        ..endless(Backoff::Exponential, Jitter::Full)
    };
    assert_eq!(delay(&below_a_second, 1, 0.5), Duration::from_millis(450));
    assert_eq!(delay(&below_a_second, 2, 0.5), Duration::from_nanos(900_000_001));
    let odd = RetryPolicy { jitter: Jitter::Equal, ..below_a_second };
    assert_eq!(delay(&odd, 1, ALMOST_ONE), Duration::from_millis(900));
}

#[test]
fn c27_linear_grows_by_the_initial_backoff() {
    check_delays(&endless(Backoff::Linear, Jitter::None), 0.5, &[1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn c29_fixed_ignores_attempt_and_unit() {
    let policy = RetryPolicy { initial_backoff: secs(0.25), ..endless(Backoff::Fixed, Jitter::None) };
    for unit in [0.0, 0.5, ALMOST_ONE] {
        check_delays(&policy, unit, &[0.25, 0.25, 0.25, 0.25]);
    }
}

#[test]
fn c30_equal_jitter_keeps_half_of_the_window() {
    let policy = endless(Backoff::Exponential, Jitter::Equal);
    assert_eq!(delay(&policy, 4, 0.0), secs(4.0));
    assert_eq!(delay(&policy, 4, 0.5), secs(6.0));
    assert_eq!(delay(&policy, 4, ALMOST_ONE), just_below(8.0));
}

#[test]
fn c34_the_window_is_capped_before_the_draw() {
    assert_eq!(delay(&endless(Backoff::Exponential, Jitter::Full), 10, 0.5), secs(7.5));
    assert_eq!(delay(&endless(Backoff::Exponential, Jitter::Equal), 10, 0.5), secs(11.25));
}

#[test]
fn c37_c38_c39_attempts_include_the_first() {
    for (max_attempts, sleeps) in [(3, 2), (2, 1), (1, 0), (0, 0)] {
        let policy = RetryPolicy { max_attempts, ..RetryPolicy::default() };
        let decisions = (1..=9).map(|failed| decide(&policy, failed, None, secs(0.1), 0.5));
        assert_eq!(
            decisions.take_while(|decision| *decision != ATTEMPTS_EXHAUSTED).count(),
            sleeps,
            "{max_attempts}"
        );
    }
    assert_eq!(decide(&RetryPolicy::disabled(), 1, Some(secs(1.0)), Duration::ZERO, 0.5), ATTEMPTS_EXHAUSTED);
}

#[test]
fn c40_no_failed_attempt_is_read_as_one() {
    let policy = RetryPolicy::default();
    assert_eq!(decide(&policy, 0, None, Duration::ZERO, 0.5), retry(secs(0.5)));
    assert_eq!(decide(&RetryPolicy::disabled(), 0, None, Duration::ZERO, 0.5), ATTEMPTS_EXHAUSTED);
}

#[test]
fn c41_a_hint_does_not_revive_an_exhausted_sequence() {
    for attempt in [4, 5, u32::MAX] {
        let decision = decide(&RetryPolicy::default(), attempt, Some(Duration::ZERO), Duration::ZERO, 0.0);
        assert_eq!(decision, ATTEMPTS_EXHAUSTED);
    }
}

#[test]
fn c42_c43_c44_c51_a_delay_ends_before_the_deadline_or_is_not_begun() {
    let policy = RetryPolicy { jitter: Jitter::None, ..RetryPolicy::default() };
    for (elapsed, expected) in [
        (secs(59.9), DEADLINE_EXCEEDED),
        (secs(59.0), DEADLINE_EXCEEDED),
        (just_below(59.0), retry(secs(1.0))),
    ] {
        assert_eq!(decide(&policy, 1, None, elapsed, 0.0), expected, "{elapsed:?}");
    }
}

#[test]
fn c45_c49_c50_time_that_is_already_up() {
    let with_deadline = |total_deadline| RetryPolicy { total_deadline, ..RetryPolicy::default() };
    assert_eq!(decide(&with_deadline(Duration::ZERO), 1, None, Duration::ZERO, 0.0), DEADLINE_EXCEEDED);
    // Attempts that take 100 s each count, not only the sleeps between them.
    assert_eq!(decide(&with_deadline(secs(10.0)), 1, None, secs(100.0), 0.0), DEADLINE_EXCEEDED);
    let too_tight = RetryPolicy { jitter: Jitter::None, ..with_deadline(secs(0.5)) };
    assert_eq!(decide(&too_tight, 1, None, Duration::ZERO, 0.0), DEADLINE_EXCEEDED);
    let none = RetryPolicy { jitter: Jitter::None, ..with_deadline(Duration::MAX) };
    assert_eq!(decide(&none, 1, None, Duration::MAX, 0.0), retry(secs(1.0)));
}

#[test]
fn c47_attempts_are_counted_before_time() {
    assert_eq!(decide(&RetryPolicy::default(), 4, None, secs(61.0), 0.0), ATTEMPTS_EXHAUSTED);
}

#[test]
fn a_replacing_hint_is_capped_and_then_jittered() {
    let policy = RetryPolicy {
        hint_rule: HintRule::Replace { max_hint: secs(60.0) },
        ..endless(Backoff::Exponential, ADDITIVE_QUARTER)
    };
    let with_hint = |policy: &RetryPolicy, hint: f64, unit: f64| {
        delay_of(decide(policy, 3, Some(secs(hint)), Duration::ZERO, unit))
    };
    assert_eq!(with_hint(&policy, 2.0, 0.0), secs(2.0));
    assert_eq!(with_hint(&policy, 2.0, 0.5), secs(2.25));
    assert_eq!(with_hint(&policy, 600.0, 0.0), secs(60.0));
    assert_eq!(with_hint(&policy, 600.0, ALMOST_ONE), just_below(75.0));

    for (jitter, half_way) in [
        (Jitter::None, 2.0),
        (Jitter::Full, 1.0),
        (Jitter::Equal, 1.5),
        // Half of the way from 2 s to three times the initial backoff.
        (Jitter::Decorrelated, 2.5),
    ] {
        assert_eq!(with_hint(&RetryPolicy { jitter, ..policy }, 2.0, 0.5), secs(half_way), "{jitter:?}");
    }
    let decorrelated = RetryPolicy { jitter: Jitter::Decorrelated, ..policy };
    assert_eq!(with_hint(&decorrelated, 30.0, 0.5), secs(30.0));
}
