//! The presets against the formulas of their documents, computed in floating point and step by step.

use std::time::Duration;

use gglib_core::retry::{RetryPolicy, RetryRules, decide_with, preset};
use http::StatusCode;
use proptest::prelude::*;

use super::{
    ALMOST_ONE, ATTEMPTS_EXHAUSTED, HINT_TOO_LONG, any_duration, any_unit, delay_of, just_below, retry, secs,
};

/// The delays of a sequence whose failures come one after another, all drawn by the same unit.
fn delays(policy: &RetryPolicy, unit: f64, hint: Option<Duration>) -> Vec<f64> {
    let mut previous = policy.initial_backoff;
    (1..policy.max_attempts)
        .map(|attempt| {
            previous = delay_of(decide_with(policy, attempt, hint, Duration::ZERO, unit, previous));
            previous.as_secs_f64()
        })
        .collect()
}

#[track_caller]
fn check(rules: &RetryRules, unit: f64, expected: &[f64]) {
    let actual = delays(&rules.policy, unit, None);
    assert_eq!(actual.len(), expected.len(), "{}", rules.name);
    for (actual, expected) in actual.iter().zip(expected) {
        assert!((actual - expected).abs() < 1e-8, "{}, {unit}: {actual} for {expected}", rules.name);
    }
}

fn statuses(rules: &RetryRules) -> Vec<u16> {
    rules.statuses.codes().collect()
}

#[test]
fn the_five_strategies_of_the_pattern() {
    for rules in [
        preset::fixed(),
        preset::linear(),
        preset::exponential(),
        preset::exponential_jitter(),
        preset::decorrelated_jitter(),
    ] {
        let policy = rules.policy;
        assert_eq!((policy.max_attempts, policy.total_deadline), (5, Duration::MAX), "{}", rules.name);
        assert_eq!((policy.initial_backoff, policy.max_backoff), (secs(1.0), secs(30.0)), "{}", rules.name);
        assert_eq!(statuses(&rules), [429, 500, 502, 503, 504], "{}", rules.name);
    }
    for unit in [0.0, 0.3, 0.9] {
        check(&preset::fixed(), unit, &[1.0; 4]);
        check(&preset::linear(), unit, &[1.0, 2.0, 3.0, 4.0]);
        check(&preset::exponential(), unit, &[1.0, 2.0, 4.0, 8.0]);
        check(&preset::exponential_jitter(), unit, &[unit, 2.0 * unit, 4.0 * unit, 8.0 * unit]);
        let mut previous: f64 = 1.0;
        let decorrelated = [(); 4].map(|()| {
            previous = 1.0 + unit * ((3.0 * previous).min(30.0) - 1.0);
            previous
        });
        check(&preset::decorrelated_jitter(), unit, &decorrelated);
    }
}

#[test]
fn the_caps_of_the_pattern() {
    let long = |rules: RetryRules| RetryRules {
        policy: RetryPolicy { max_attempts: 8, initial_backoff: secs(12.0), ..rules.policy },
        ..rules
    };
    check(&long(preset::linear()), 0.0, &[12.0, 24.0, 30.0, 30.0, 30.0, 30.0, 30.0]);
    check(&long(preset::exponential()), 0.0, &[12.0, 24.0, 30.0, 30.0, 30.0, 30.0, 30.0]);
    check(&long(preset::exponential_jitter()), 0.5, &[6.0, 12.0, 15.0, 15.0, 15.0, 15.0, 15.0]);
    let beyond = RetryPolicy { initial_backoff: secs(40.0), ..preset::fixed().policy };
    check(&RetryRules { policy: beyond, ..preset::fixed() }, 0.0, &[30.0; 4]);
}

#[test]
fn llm_conductor_doubles_its_delay_and_adds_up_to_a_quarter() {
    let rules = preset::llm_conductor(6, secs(1.5));
    assert_eq!(rules.policy.max_attempts, 7);
    assert_eq!(rules.policy.total_deadline, Duration::MAX);
    assert_eq!(statuses(&rules), [408, 429, 500, 502, 503, 504]);
    for unit in [0.0, 0.4, 0.99] {
        let expected = [1.5, 3.0, 6.0, 12.0, 24.0, 30.0].map(|delay| delay + delay * 0.25 * unit);
        check(&rules, unit, &expected);
    }
    let longest = decide_with(&rules.policy, 6, None, Duration::ZERO, ALMOST_ONE, secs(1.5));
    assert_eq!(longest, retry(just_below(37.5)));
    assert_eq!(preset::llm_conductor(u32::MAX, secs(1.0)).policy.max_attempts, u32::MAX);
    let none = preset::llm_conductor(0, secs(1.0)).policy;
    assert_eq!(decide_with(&none, 1, None, Duration::ZERO, 0.0, secs(1.0)), ATTEMPTS_EXHAUSTED);
}

#[test]
fn llm_conductor_takes_a_hint_in_place_of_its_delay() {
    let policy = preset::llm_conductor(3, secs(1.0)).policy;
    let after = |hint, unit| delay_of(decide_with(&policy, 3, Some(hint), Duration::ZERO, unit, secs(2.0)));
    assert_eq!(after(secs(0.5), 0.0), secs(0.5));
    assert_eq!(after(secs(20.0), 0.5), secs(22.5));
    // Beyond the cap on its own delays, as that is another cap.
    assert_eq!(after(secs(45.0), 0.0), secs(45.0));
    assert_eq!(after(secs(600.0), 0.0), secs(60.0));
    assert_eq!(after(Duration::MAX, ALMOST_ONE), just_below(75.0));
}

/// `delay × (1 - 0.25 × random())`, with the unit read from the other end so that larger means later.
#[test]
fn openai_sdk_doubles_its_delay_and_takes_up_to_a_quarter_off() {
    let rules = RetryRules {
        policy: RetryPolicy { max_attempts: 8, ..preset::openai_sdk().policy },
        ..preset::openai_sdk()
    };
    for unit in [0.0, 0.25, 0.75] {
        let expected = [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0].map(|delay| delay * (1.0 - 0.25 * (1.0 - unit)));
        check(&rules, unit, &expected);
    }
    let longest = decide_with(&rules.policy, 1, None, Duration::ZERO, ALMOST_ONE, secs(0.5));
    assert_eq!(longest, retry(just_below(0.5)));
    assert_eq!(preset::openai_sdk().policy.max_attempts, 3);
    let expected: Vec<u16> = [408, 409, 429].into_iter().chain(500..=599).collect();
    assert_eq!(statuses(&rules), expected);
}

/// The public test vector of these clients, as far as it is about delays; what is read as no hint, and that 35
/// digits are a long hint rather than none, is tested where headers are read.
#[test]
fn openai_sdk_obeys_hints_as_its_public_test_vector_says() {
    let policy = preset::openai_sdk().policy;
    let after = |attempt, hint: Option<f64>| {
        decide_with(&policy, attempt, hint.map(secs), Duration::ZERO, ALMOST_ONE, policy.initial_backoff)
    };
    for seconds in [20.0, 60.0, 61.0, 120.0] {
        assert_eq!(after(1, Some(seconds)), retry(secs(seconds)));
    }
    assert_eq!(after(1, Some(121.0)), HINT_TOO_LONG);
    for (attempt, own) in [(1, 0.5), (2, 1.0)] {
        assert_eq!(after(attempt, None), retry(just_below(own)));
        assert_eq!(after(attempt, Some(0.0)), retry(just_below(own)));
    }
    let patient = RetryPolicy { max_attempts: u32::MAX, ..policy };
    let late = decide_with(&patient, 100, None, Duration::ZERO, ALMOST_ONE, policy.initial_backoff);
    assert_eq!(late, retry(just_below(8.0)));
}

#[test]
fn gglib_is_the_default_policy() {
    assert_eq!(preset::gglib().policy, RetryPolicy::default());
    assert_eq!(statuses(&preset::gglib()), [408, 429, 500, 502, 503, 504, 529]);
}

#[test]
fn presets_are_known_by_their_names() {
    for rules in preset::all() {
        assert_eq!(preset::by_name(rules.name).as_ref(), Some(&rules));
        // Retrying the wrong request or the wrong person never helps.
        for status in [400, 401, 403, 404, 413, 422] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert!(!rules.statuses.contains(status), "{}: {status}", rules.name);
        }
    }
    for name in ["", "Gglib", "full"] {
        assert_eq!(preset::by_name(name), None);
    }
}

proptest! {
    /// What the documents promise of their longest delays.
    #[test]
    fn presets_keep_their_upper_bounds(
        hint in proptest::option::of(any_duration()),
        attempt in 1..3_u32,
        unit in any_unit(),
        previous in 1.0..40.0_f64,
    ) {
        for (rules, longest_own, longest_hinted) in [
            (preset::gglib(), 15.0, 16.0),
            (preset::fixed(), 1.0, 31.0),
            (preset::linear(), 30.0, 31.0),
            (preset::exponential(), 30.0, 31.0),
            (preset::exponential_jitter(), 30.0, 31.0),
            (preset::decorrelated_jitter(), 30.0, 31.0),
            (preset::llm_conductor(3, secs(60.0)), 37.5, 75.0),
            (preset::openai_sdk(), 8.0, 120.0),
        ] {
            let decision =
                decide_with(&rules.policy, attempt, hint, Duration::ZERO, unit, secs(previous));
            if decision != HINT_TOO_LONG {
                let longest = if hint.is_some() { longest_hinted } else { longest_own };
                prop_assert!(delay_of(decision) <= secs(longest), "{}: {}", rules.name, decision);
            }
        }
    }
}
