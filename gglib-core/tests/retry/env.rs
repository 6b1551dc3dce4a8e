//! Overrides by name, and the process's environment.

use std::process::Command;
use std::time::Duration;

use gglib_core::retry::{
    DEADLINE_ENV_VAR, HintRule, Jitter, MAX_ATTEMPTS_ENV_VAR, RetryDecision, RetryPolicy, Warning, decide,
};
use proptest::prelude::*;

use super::{any_duration, any_hint_rule, any_policy, any_unit, secs};

fn layered(base: RetryPolicy, attempts: Option<&str>, deadline: Option<&str>) -> (RetryPolicy, Vec<Warning>) {
    RetryPolicy::layered(base, |name| match name {
        MAX_ATTEMPTS_ENV_VAR => attempts.map(str::to_owned),
        DEADLINE_ENV_VAR => deadline.map(str::to_owned),
        _ => panic!("asked for {name}"),
    })
}

#[test]
fn legible_values_override_their_field_alone() {
    let base = RetryPolicy::default();
    for (text, max_attempts) in [("2", 2), (" 7 ", 7), ("0", 1), ("1", 1), ("4294967295", u32::MAX)] {
        assert_eq!(
            layered(base, Some(text), None),
            (RetryPolicy { max_attempts, ..base }, vec![]),
            "{text:?}"
        );
    }
    for (text, total_deadline) in [
        ("60", secs(60.0)),
        ("90", secs(90.0)),
        (" 30.5 ", secs(30.5)),
        ("99999999999999999999999", Duration::MAX),
    ] {
        assert_eq!(
            layered(base, None, Some(text)),
            (RetryPolicy { total_deadline, ..base }, vec![]),
            "{text:?}"
        );
    }
    assert_eq!(layered(base, None, None), (base, vec![]));
}

#[test]
fn a_shortened_deadline_pulls_the_backoffs_down_where_they_are_larger() {
    for (deadline, max_backoff, initial_backoff) in
        [("45", 15.0, 1.0), ("30", 15.0, 1.0), ("10", 5.0, 1.0), ("2", 1.0, 0.5), ("0", 0.0, 0.0)]
    {
        let (policy, warnings) = layered(RetryPolicy::default(), None, Some(deadline));
        let backoffs = (policy.max_backoff, policy.initial_backoff);
        assert_eq!(backoffs, (secs(max_backoff), secs(initial_backoff)), "{deadline}");
        assert_eq!(warnings, []);
    }
    // A deadline that is not shortened leaves even unreachable backoffs to their owner.
    let base = RetryPolicy { max_backoff: secs(100.0), ..RetryPolicy::default() };
    for deadline in ["60", "70"] {
        assert_eq!(layered(base, None, Some(deadline)).0.max_backoff, secs(100.0));
    }
}

#[test]
fn illegible_values_change_nothing_and_are_told() {
    let base = RetryPolicy::default();
    for text in ["", "abc", "-1", "4.5", "4 times", "4294967296", "\u{fffd}"] {
        let (policy, warnings) = layered(base, Some(text), Some("30"));
        assert_eq!(policy, RetryPolicy { total_deadline: secs(30.0), ..base }, "{text:?}");
        assert_eq!(warnings.len(), 1, "{text:?}");
    }
    for text in ["", "abc", "-1", "30s", "1e3", "inf", "NaN", "+5"] {
        let (policy, warnings) = layered(base, Some("2"), Some(text));
        assert_eq!(policy, RetryPolicy { max_attempts: 2, ..base }, "{text:?}");
        assert_eq!(warnings.len(), 1, "{text:?}");
    }
    let (policy, warnings) = layered(base, Some("many"), Some("1\n0"));
    assert_eq!(policy, base);
    assert_eq!(
        warnings.iter().map(Warning::to_string).collect::<Vec<_>>(),
        [
            r#"ignoring GGLIB_LLM_RETRY_MAX_ATTEMPTS="many": expected a whole number such as 4"#,
            r#"ignoring GGLIB_LLM_RETRY_DEADLINE_SECS="1\n0": expected a number of seconds such as 60"#,
        ]
    );
}

/// Runs itself in a second process: the environment is read once, and cannot be set safely in this one.
#[test]
fn from_env_reads_the_environment_of_the_process() {
    const CHILD: &str = "GGLIB_TEST_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let child = Command::new(std::env::current_exe().expect("the test binary has a path"))
            .args(["--exact", "env::from_env_reads_the_environment_of_the_process", "--nocapture"])
            .env(CHILD, "1")
            .env(MAX_ATTEMPTS_ENV_VAR, "2")
            .env(DEADLINE_ENV_VAR, "soon")
            .output()
            .expect("the test binary runs");
        let stdout = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && stdout.contains("1 passed"), "{stdout}");
        return;
    }
    let expected = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
    assert_eq!(RetryPolicy::from_env(), expected);
    assert_eq!(RetryPolicy::from_env(), expected);
    let warnings = RetryPolicy::env_warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].to_string().contains(r#"GGLIB_LLM_RETRY_DEADLINE_SECS="soon""#), "{}", warnings[0]);
}

proptest! {
    /// Tightening is not disabling: the first delay fits while a quarter of the deadline has passed at most.
    #[test]
    fn the_first_delay_fits_a_shortened_deadline(
        base in any_policy(),
        deadline_millis in 1..1_000_000_u64,
        quarter in 0.0..=1.0_f64,
        hint in proptest::option::of(any_duration()),
        unit in any_unit(),
    ) {
        let deadline = Duration::from_millis(deadline_millis);
        prop_assume!(deadline < base.total_deadline);
        // The wider ones exceed their cap by more than the deadline has room for.
        prop_assume!(!matches!(base.jitter, Jitter::AdditiveOverCap { percent: 101.. }));
        let base = RetryPolicy { hint_rule: HintRule::Floor, ..base };
        let text = format!("{}.{:03}", deadline.as_secs(), deadline.subsec_millis());
        let (policy, warnings) = layered(base, Some("2"), Some(&text));
        prop_assert_eq!(warnings, vec![]);
        prop_assert_eq!(policy.total_deadline, deadline);
        let elapsed = (deadline / 4).mul_f64(quarter);
        let decision = decide(&policy, 1, hint, elapsed, unit);
        prop_assert!(matches!(decision, RetryDecision::Retry { .. }), "{:?}", decision);
    }

    /// Layers never lengthen a backoff, leave the strategy alone, and can be repeated.
    #[test]
    fn layering_is_idempotent_and_touches_only_bounds(
        base in any_policy(),
        hint_rule in any_hint_rule(),
        attempts in any::<u32>(),
        deadline in any::<u64>(),
    ) {
        let base = RetryPolicy { hint_rule, ..base };
        let (attempts, deadline) = (attempts.to_string(), deadline.to_string());
        let (once, _) = layered(base, Some(&attempts), Some(&deadline));
        prop_assert!(once.max_backoff <= base.max_backoff && once.initial_backoff <= base.initial_backoff);
        prop_assert_eq!((once.backoff, once.jitter, once.hint_rule), (base.backoff, base.jitter, base.hint_rule));
        prop_assert_eq!(layered(once, Some(&attempts), Some(&deadline)), (once, vec![]));
    }
}
