//! Doubtful policies, and what they are told.

use std::fmt::Write;
use std::time::Duration;

use gglib_core::retry::{
    Backoff, HintRule, Jitter, Lint, RetryDecision, RetryPolicy, Surroundings, decide, lint, preset,
};
use proptest::prelude::*;

use super::{any_duration, any_policy, any_unit, secs};

const NOTHING: Surroundings = Surroundings { longest_hint: None, wait_bound: None };

fn names(policy: &RetryPolicy) -> Vec<&'static str> {
    lint(policy, &NOTHING).iter().map(Lint::name).collect()
}

#[test]
fn the_default_is_beyond_doubt() {
    assert_eq!(names(&RetryPolicy::default()), [""; 0]);
    assert_eq!(names(&RetryPolicy::disabled()), [""; 0]);
}

/// The texts as well, each with its remedy.
#[test]
fn the_presets() {
    // What a gglib server with its defaults gives and does.
    let surroundings =
        Surroundings { longest_hint: Some(secs(60.0)), wait_bound: Some(Duration::from_secs(600)) };
    let mut report = String::new();
    for rules in preset::all() {
        writeln!(report, "{}", rules.name).expect("a string takes everything");
        for lint in lint(&rules.policy, &surroundings) {
            writeln!(report, "  {lint}").expect("a string takes everything");
        }
    }
    insta::assert_snapshot!(report);
}

#[test]
fn c08_a_cap_below_the_base() {
    let policy =
        RetryPolicy { initial_backoff: secs(10.0), max_backoff: secs(5.0), ..RetryPolicy::default() };
    assert_eq!(lint(&policy, &NOTHING), [Lint::CapBelowBase { cap: secs(5.0), base: secs(10.0) }]);
    assert_eq!(names(&RetryPolicy { max_backoff: secs(10.0), ..policy }), [""; 0]);
}

#[test]
fn c09_c10_no_delay_at_all() {
    for jitter in [Jitter::None, Jitter::Additive { percent: 25 }] {
        let idle = RetryPolicy { initial_backoff: Duration::ZERO, jitter, ..RetryPolicy::default() };
        assert!(names(&idle).contains(&"hot-loop"), "{jitter:?}");
        assert!(!names(&idle).contains(&"no-jitter"), "one warning is enough");
        let capped = RetryPolicy { max_backoff: Duration::ZERO, jitter, ..RetryPolicy::default() };
        assert!(names(&capped).contains(&"hot-loop"), "{jitter:?}");
    }
}

#[test]
fn c50_no_time_for_a_first_delay() {
    for (jitter, deadline, doubtful) in [
        (Jitter::None, 1.0, true),
        (Jitter::None, 1.1, false),
        (Jitter::Full, 1.0, true),
        (Jitter::Additive { percent: 25 }, 1.25, true),
        (Jitter::Additive { percent: 25 }, 1.3, false),
        (Jitter::Subtractive { percent: 25 }, 1.0, true),
        (Jitter::Decorrelated, 3.0, true),
    ] {
        let policy =
            RetryPolicy { jitter, max_attempts: 2, total_deadline: secs(deadline), ..RetryPolicy::default() };
        let expected = Lint::FirstDelayBeyondDeadline { base: secs(1.0), deadline: secs(deadline) };
        assert_eq!(lint(&policy, &NOTHING).contains(&expected), doubtful, "{jitter:?}, {deadline}");
    }
}

#[test]
fn attempts_that_never_come() {
    let policy = RetryPolicy { max_attempts: 10, jitter: Jitter::Equal, ..RetryPolicy::default() };
    // 0.75 s, 1.5 s, 3 s and 6 s, and four times 11.25 s are 56.25 s: the next one would be too much.
    let expected = Lint::AttemptsUnreachable { reachable: 9, max_attempts: 10 };
    assert_eq!(lint(&policy, &NOTHING), [expected]);
    assert_eq!(names(&RetryPolicy { max_attempts: 9, ..policy }), [""; 0]);
    // However many are asked for, the answer comes.
    let endless = RetryPolicy { max_attempts: u32::MAX, initial_backoff: Duration::ZERO, ..policy };
    assert_eq!(names(&endless)[0], "hot-loop");
}

#[test]
fn jitter_that_is_none_or_ends_at_the_cap() {
    let with = |jitter| RetryPolicy { jitter, ..RetryPolicy::default() };
    for jitter in [
        Jitter::None,
        Jitter::Additive { percent: 0 },
        Jitter::AdditiveOverCap { percent: 0 },
        Jitter::Subtractive { percent: 0 },
    ] {
        assert_eq!(names(&with(jitter)), ["no-jitter"], "{jitter:?}");
    }
    assert_eq!(names(&with(Jitter::DecorrelatedUnclamped)), ["jitter-lost-at-cap"]);
    let no_room = RetryPolicy { max_backoff: secs(1.0), ..with(Jitter::Decorrelated) };
    assert_eq!(names(&no_room), ["jitter-lost-at-cap"]);
    for jitter in [
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
        Jitter::Additive { percent: 25 },
        Jitter::AdditiveOverCap { percent: 25 },
        Jitter::Subtractive { percent: 25 },
    ] {
        assert_eq!(names(&with(jitter)), [""; 0], "{jitter:?}");
    }
}

#[test]
fn hints_that_are_not_kept() {
    let with = |jitter, hint_rule| RetryPolicy { jitter, hint_rule, ..RetryPolicy::default() };
    let replace = HintRule::Replace { max_hint: secs(60.0) };
    for jitter in [Jitter::Full, Jitter::Equal, Jitter::Subtractive { percent: 1 }] {
        assert_eq!(names(&with(jitter, replace)), ["hint-jittered-away"], "{jitter:?}");
        assert_eq!(names(&with(jitter, HintRule::Floor)), [""; 0], "{jitter:?}");
    }
    assert_eq!(names(&with(Jitter::Additive { percent: 25 }, replace)), [""; 0]);

    let sixty = Surroundings { longest_hint: Some(secs(60.0)), ..NOTHING };
    for (hint_rule, limit) in [
        (HintRule::Floor, 15.0),
        (HintRule::AtLeast { max_hint: secs(59.0) }, 59.0),
        (HintRule::Obey { max_hint: secs(20.0) }, 20.0),
    ] {
        let expected = Lint::HintLimitBelowServerHint { limit: secs(limit), hint: secs(60.0) };
        assert_eq!(lint(&with(Jitter::Full, hint_rule), &sixty), [expected], "{hint_rule:?}");
    }
    let enough = with(Jitter::Full, HintRule::AtLeast { max_hint: secs(60.0) });
    assert_eq!(lint(&enough, &sixty), []);
}

#[test]
fn a_server_that_keeps_its_clients_waiting() {
    let waits = |seconds| Surroundings { wait_bound: Some(secs(seconds)), ..NOTHING };
    let policy = RetryPolicy::default();
    let expected = Lint::WaitBoundBeyondDeadline { wait_bound: secs(60.0), deadline: secs(60.0) };
    assert_eq!(lint(&policy, &waits(60.0)), [expected]);
    assert_eq!(lint(&policy, &waits(59.0)), []);
    let endless = RetryPolicy { total_deadline: Duration::MAX, ..policy };
    assert_eq!(lint(&endless, &waits(600.0)), [Lint::NoDeadline]);
    assert_eq!(lint(&RetryPolicy::disabled(), &waits(600.0)), []);
}

proptest! {
    /// No policy makes it panic, and a policy without the warning about its first delay gets as far as a retry.
    #[test]
    fn a_first_delay_that_is_not_warned_about_fits(
        policy in any_policy(),
        longest_hint in prop::option::of(any_duration()),
        wait_bound in prop::option::of(any_duration()),
        unit in any_unit(),
    ) {
        let lints = lint(&policy, &Surroundings { longest_hint, wait_bound });
        let is_warned = lints.iter().any(|lint| matches!(lint, Lint::FirstDelayBeyondDeadline { .. }));
        if policy.max_attempts > 1 {
            let first = decide(&policy, 1, None, Duration::ZERO, unit);
            let retried = matches!(first, RetryDecision::Retry { .. });
            prop_assert!(is_warned || retried, "{:?}", first);
        } else {
            prop_assert!(lints.is_empty());
        }
        for lint in lints {
            let text = lint.to_string();
            prop_assert!(text.starts_with(lint.name()) && text.contains("; "), "{}", text);
        }
    }

    /// With no jitter the count of attempts is not an estimate.
    #[test]
    fn attempts_without_jitter_are_counted_exactly(
        initial in 1..20_u64,
        deadline in 1..200_u64,
        max_attempts in 2..12_u32,
    ) {
        let policy = RetryPolicy {
            max_attempts,
            initial_backoff: Duration::from_secs(initial),
            max_backoff: Duration::from_secs(30),
            total_deadline: Duration::from_secs(deadline),
            backoff: Backoff::Linear,
            jitter: Jitter::None,
            hint_rule: HintRule::Floor,
        };
        let mut elapsed = 0;
        let mut reachable = 1;
        for attempt in 1..u64::from(max_attempts) {
            elapsed += (initial * attempt).min(30);
            if elapsed >= deadline {
                break;
            }
            reachable += 1;
        }
        let expected = (reachable < max_attempts).then_some(Lint::AttemptsUnreachable { reachable, max_attempts });
        let found = lint(&policy, &NOTHING).into_iter().find(|lint| lint.name() == "attempts-unreachable");
        prop_assert_eq!(found, expected);
    }
}
