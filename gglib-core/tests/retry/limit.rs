//! Hints under the rules that have a limit of their own: obeyed, or at least kept.

use std::time::Duration;

use gglib_core::retry::{Backoff, HintRule, Jitter, RetryPolicy, decide, decide_with};
use proptest::prelude::*;

use super::{
    ALMOST_ONE, DEADLINE_EXCEEDED, HINT_TOO_LONG, NS, any_duration, any_policy, any_unit, delay_of, endless,
    just_below, retry, secs,
};

const LIMIT: Duration = Duration::from_secs(120);

/// gglib's delays, with a limit of 120 s on hints and no other.
fn at_least(backoff: Backoff, jitter: Jitter) -> RetryPolicy {
    RetryPolicy { hint_rule: HintRule::AtLeast { max_hint: LIMIT }, ..endless(backoff, jitter) }
}

fn obeying() -> RetryPolicy {
    RetryPolicy { hint_rule: HintRule::Obey { max_hint: LIMIT }, ..endless(Backoff::Fixed, Jitter::Full) }
}

#[test]
fn c63_c71_a_hint_of_zero_leaves_the_own_delay() {
    for hint_rule in [
        HintRule::AtLeast { max_hint: LIMIT },
        HintRule::Obey { max_hint: LIMIT },
        HintRule::Replace { max_hint: LIMIT },
    ] {
        let policy = RetryPolicy { hint_rule, ..endless(Backoff::Exponential, Jitter::Equal) };
        let decision = decide(&policy, 3, Some(Duration::ZERO), Duration::ZERO, 0.5);
        assert_eq!(decision, retry(secs(3.0)), "{hint_rule:?}");
    }
}

#[test]
fn c67_c68_c82_c86_a_hint_beyond_the_limit_ends_the_sequence() {
    for policy in [at_least(Backoff::Exponential, Jitter::Full), obeying()] {
        let with_hint = |hint| decide(&policy, 1, Some(hint), Duration::ZERO, 0.0);
        assert_eq!(with_hint(LIMIT), retry(LIMIT));
        for hint in
            [LIMIT + NS, secs(120.001), secs(171.0), Duration::from_secs(9_999_999_999), Duration::MAX]
        {
            assert_eq!(with_hint(hint), HINT_TOO_LONG, "{hint:?}");
        }
    }
}

#[test]
fn c83_c84_c85_the_later_of_hint_and_own_delay_counts() {
    let unjittered = at_least(Backoff::Exponential, Jitter::None);
    let after =
        |attempt, hint, unit| delay_of(decide(&unjittered, attempt, Some(secs(hint)), Duration::ZERO, unit));
    assert_eq!(after(3, 2.0, 0.0), secs(4.0));
    assert_eq!(after(3, 2.0, ALMOST_ONE), secs(4.0));
    assert_eq!(after(3, 30.0, 0.0), secs(30.0));
    assert_eq!(after(3, 30.0, 0.5), secs(30.5));
    assert_eq!(after(1, 5.0, 0.0), secs(5.0));
    assert_eq!(after(1, 5.0, ALMOST_ONE), just_below(6.0));
}

#[test]
fn an_obeyed_hint_is_neither_spread_nor_capped() {
    for unit in [0.0, 0.5, ALMOST_ONE] {
        assert_eq!(decide(&obeying(), 1, Some(secs(20.0)), Duration::ZERO, unit), retry(secs(20.0)));
        assert_eq!(decide(&obeying(), 1, Some(secs(0.2)), Duration::ZERO, unit), retry(secs(0.2)));
    }
}

#[test]
fn c88_a_hint_within_its_limit_still_ends_before_the_deadline() {
    for policy in [at_least(Backoff::Exponential, Jitter::Full), obeying()] {
        let policy = RetryPolicy { total_deadline: secs(60.0), ..policy };
        let after = |hint, elapsed| decide(&policy, 1, Some(secs(hint)), secs(elapsed), 0.0);
        assert_eq!(after(10.0, 49.0), retry(secs(10.0)));
        assert_eq!(after(10.0, 55.0), DEADLINE_EXCEEDED);
        // The limit is looked at first: such a hint would not have been waited for at any time.
        assert_eq!(after(121.0, 0.0), HINT_TOO_LONG);
        assert_eq!(after(121.0, 60.0), DEADLINE_EXCEEDED);
    }
}

proptest! {
    #[test]
    fn at_least_the_hint_and_little_more(
        policy in any_policy(),
        hint in any_duration(),
        attempt in 1..10_u32,
        unit in any_unit(),
        previous in any_duration(),
    ) {
        prop_assume!(!matches!(policy.jitter, Jitter::AdditiveOverCap { .. }));
        let policy = RetryPolicy {
            max_attempts: u32::MAX,
            total_deadline: Duration::MAX,
            hint_rule: HintRule::AtLeast { max_hint: Duration::MAX },
            ..policy
        };
        let after = |hint| delay_of(decide_with(&policy, attempt, hint, Duration::ZERO, unit, previous));
        let with_hint = after(Some(hint));
        prop_assert!(with_hint >= hint);
        prop_assert!(with_hint >= after(None));
        prop_assert!(with_hint <= hint.saturating_add(policy.max_backoff));
        prop_assert_eq!(after(Some(Duration::ZERO)), after(None));
    }
}
