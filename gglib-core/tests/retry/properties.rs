//! What holds for every policy and every argument.
//!
//! Of the project's list of properties these are not here: "no hint equals a hint of 0" and "with a floor `f`,
//! the delay is at least `f` beyond the cap" do not hold under the default rule, which replaces the own window
//! by the hint's and clamps the hint; the module `limit` has them for the rules that have a limit. Those of the
//! budget, of the breaker and of the sequence are in the modules of these names.

use std::time::Duration;

use gglib_core::retry::{Backoff, HintRule, Jitter, RetryDecision, RetryPolicy, decide, decide_with};
use proptest::prelude::*;

use super::{
    ATTEMPTS_EXHAUSTED, DEADLINE_EXCEEDED, HINT_TOO_LONG, any_attempt, any_duration, any_policy, any_unit,
    delay, delay_of, endless, is_too_long,
};

prop_compose! {
    /// A policy under which only the delays are of interest.
    fn endless_policy()(policy in any_policy()) -> RetryPolicy {
        RetryPolicy { max_attempts: u32::MAX, total_deadline: Duration::MAX, ..policy }
    }
}

/// The delays without jitter, computed in another way: step by step.
fn unjittered(policy: &RetryPolicy, attempt: u32) -> Duration {
    let mut delay = policy.initial_backoff;
    for _ in 1..attempt {
        delay = match policy.backoff {
            Backoff::Fixed => delay,
            Backoff::Linear => delay.saturating_add(policy.initial_backoff),
            Backoff::Exponential => delay.saturating_mul(2),
        };
    }
    delay.min(policy.max_backoff)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_rules_apply_in_order_and_nothing_panics(
        policy in any_policy(),
        attempt in any_attempt(),
        hint in proptest::option::of(any_duration()),
        (elapsed, previous) in (any_duration(), any_duration()),
        unit in any::<u64>().prop_map(f64::from_bits),
    ) {
        let decision = decide_with(&policy, attempt, hint, elapsed, unit, previous);
        let deadline = policy.total_deadline;
        if attempt.max(1) >= policy.max_attempts {
            prop_assert_eq!(decision, ATTEMPTS_EXHAUSTED);
        } else if elapsed >= deadline && deadline != Duration::MAX {
            prop_assert_eq!(decision, DEADLINE_EXCEEDED);
        } else if is_too_long(policy.hint_rule, hint) {
            prop_assert_eq!(decision, HINT_TOO_LONG);
        } else if let RetryDecision::Retry { after } = decision {
            prop_assert!(deadline == Duration::MAX || elapsed.saturating_add(after) < deadline);
        } else {
            // Giving up is right only if the delay would not have ended in time.
            let endless = RetryPolicy { total_deadline: Duration::MAX, ..policy };
            let after = delay_of(decide_with(&endless, attempt, hint, elapsed, unit, previous));
            prop_assert_eq!(decision, DEADLINE_EXCEEDED);
            prop_assert!(elapsed.saturating_add(after) >= deadline);
        }
    }

    #[test]
    fn own_delays_stay_within_the_cap(
        policy in endless_policy(),
        attempt in any_attempt(),
        unit in any_unit(),
        previous in any_duration(),
    ) {
        prop_assume!(attempt < u32::MAX);
        let after = delay_of(decide_with(&policy, attempt, None, Duration::ZERO, unit, previous));
        // One jitter is allowed to exceed the cap, by its percentage of it.
        let over = match policy.jitter {
            Jitter::AdditiveOverCap { percent } => policy.max_backoff.as_nanos() * u128::from(percent) / 100,
            _ => 0,
        };
        prop_assert!(after.as_nanos() <= policy.max_backoff.as_nanos() + over);
    }

    #[test]
    fn a_floor_is_kept_and_exceeded_by_the_spread_at_most(
        policy in endless_policy(),
        attempt in 0..10_u32,
        hint in any_duration(),
        unit in any_unit(),
    ) {
        let policy = RetryPolicy { hint_rule: HintRule::Floor, ..policy };
        let floor = hint.min(policy.max_backoff);
        let after = delay_of(decide(&policy, attempt, Some(hint), Duration::ZERO, unit));
        prop_assert!(floor <= after);
        prop_assert!(after <= floor.saturating_add(policy.initial_backoff));
    }

    #[test]
    fn delays_grow_with_attempt_and_unit(
        policy in endless_policy(),
        attempts in (1..u32::MAX, 1..u32::MAX),
        units in (0.0..1.0, 0.0..1.0),
        hint in proptest::option::of(any_duration()),
    ) {
        prop_assume!(!is_too_long(policy.hint_rule, hint));
        let after = |attempt, unit| delay_of(decide(&policy, attempt, hint, Duration::ZERO, unit));
        let (few, many) = (attempts.0.min(attempts.1), attempts.0.max(attempts.1));
        let (low, high) = (f64::min(units.0, units.1), f64::max(units.0, units.1));
        prop_assert!(after(few, low) <= after(many, low));
        prop_assert!(after(few, low) <= after(few, high));
    }

    #[test]
    fn a_shorter_deadline_never_allows_more(
        policy in any_policy(),
        shorter in any_duration(),
        attempt in any_attempt(),
        hint in proptest::option::of(any_duration()),
        elapsed in any_duration(),
        unit in any_unit(),
    ) {
        let tightened = RetryPolicy { total_deadline: policy.total_deadline.min(shorter), ..policy };
        let decision = decide(&tightened, attempt, hint, elapsed, unit);
        if matches!(decision, RetryDecision::Retry { .. }) {
            prop_assert_eq!(decide(&policy, attempt, hint, elapsed, unit), decision);
        }
    }

    #[test]
    fn growth_agrees_with_a_step_by_step_computation(policy in endless_policy(), attempt in 1..150_u32) {
        let policy = RetryPolicy { jitter: Jitter::None, ..policy };
        prop_assert_eq!(delay(&policy, attempt, 0.5), unjittered(&policy, attempt));
    }

    /// Each jitter against its formula in floating point, which is right to about nine digits here.
    #[test]
    fn jitter_agrees_with_its_formula(
        backoff in prop_oneof![Just(Backoff::Fixed), Just(Backoff::Linear), Just(Backoff::Exponential)],
        attempt in 1..8_u32,
        unit in 0.0..1.0_f64,
        percent in 0..=200_u32,
        previous in 0.5..20.0_f64,
    ) {
        let after = |jitter| {
            let policy = endless(backoff, jitter);
            let previous = Duration::from_secs_f64(previous);
            delay_of(decide_with(&policy, attempt, None, Duration::ZERO, unit, previous)).as_secs_f64()
        };
        let uncapped = match backoff {
            Backoff::Fixed => 1.0,
            Backoff::Linear => f64::from(attempt),
            Backoff::Exponential => 2_f64.powf(f64::from(attempt - 1)),
        };
        let capped = uncapped.min(15.0);
        let ratio = f64::from(percent) / 100.0;
        for (jitter, expected) in [
            (Jitter::None, capped),
            (Jitter::Full, unit * capped),
            (Jitter::Equal, capped / 2.0 + unit * capped / 2.0),
            (Jitter::Additive { percent }, uncapped.min(15.0 / (1.0 + ratio)) * (1.0 + ratio * unit)),
            (Jitter::AdditiveOverCap { percent }, capped * (1.0 + ratio * unit)),
            (Jitter::Subtractive { percent }, capped * (1.0 - ratio.min(1.0) * (1.0 - unit))),
            (Jitter::Decorrelated, 1.0 + unit * ((3.0 * previous).clamp(1.0, 15.0) - 1.0)),
            (Jitter::DecorrelatedUnclamped, (1.0 + unit * ((3.0 * previous).max(1.0) - 1.0)).min(15.0)),
        ] {
            prop_assert!((after(jitter) - expected).abs() < 1e-8, "{:?}: {} for {}", jitter, after(jitter), expected);
        }
    }
}
