//! The retry budget: its cases, and its invariant over any interleaving.

use std::time::Duration;

use gglib_core::moment::Moment;
use gglib_core::retry::{BudgetSettings, BudgetUsage, RetryBudget, RetryPolicy, Withdrawal};
use proptest::prelude::*;

use super::at;

fn budget(percent: u32, min_per_window: u32) -> RetryBudget {
    RetryBudget::new(BudgetSettings { percent, min_per_window, window: Duration::from_secs(10) })
}

fn deposit(budget: &mut RetryBudget, originals: u32, now: f64) {
    for _ in 0..originals {
        budget.deposit(at(now));
    }
}

/// The retries that are granted when no end of them is asked for.
fn drain(budget: &mut RetryBudget, now: f64) -> usize {
    std::iter::from_fn(|| budget.withdraw(at(now))).count()
}

#[test]
fn c95_c98_the_ratio_is_exact() {
    for (percent, retries) in
        [(0, 0), (10, 100), (30, 300), (35, 350), (40, 400), (45, 450), (70, 700), (90, 900), (150, 1_500)]
    {
        let mut budget = budget(percent, 0);
        deposit(&mut budget, 1_000, 0.0);
        assert_eq!(drain(&mut budget, 0.0), retries, "{percent} %");
    }
}

#[test]
fn c96_a_cold_start_has_the_minimum_and_no_more() {
    for min in [0, 1, 3, 10] {
        let mut budget = budget(10, min);
        deposit(&mut budget, 1, 0.0);
        assert_eq!(drain(&mut budget, 0.0), usize::try_from(min).expect("a small number"));
    }
}

#[test]
fn c97_little_traffic_is_not_starved() {
    for (min, retries) in [(0, 0), (1, 1)] {
        let mut budget = budget(10, min);
        deposit(&mut budget, 9, 0.0);
        assert_eq!(drain(&mut budget, 0.0), retries);
        // The tenth request is the first that earns a retry.
        deposit(&mut budget, 1, 0.0);
        assert_eq!(drain(&mut budget, 0.0), 1);
    }
}

#[test]
fn the_default_lets_one_sequence_run_to_its_end() {
    let mut budget = RetryBudget::new(BudgetSettings::for_policy(&RetryPolicy::default()));
    deposit(&mut budget, 1, 0.0);
    assert_eq!(drain(&mut budget, 0.0), 3);
    let off = BudgetSettings::for_policy(&RetryPolicy::disabled());
    assert_eq!((off.percent, off.min_per_window), (10, 0));
    let zero = BudgetSettings::for_policy(&RetryPolicy { max_attempts: 0, ..RetryPolicy::default() });
    assert_eq!(zero.min_per_window, 0);
}

#[test]
fn c99_the_window_rolls() {
    for (now, retries) in [(9.999, 100), (10.001, 0)] {
        let mut budget = budget(10, 0);
        deposit(&mut budget, 1_000, 0.0);
        assert_eq!(drain(&mut budget, now), retries, "at {now} s");
    }
    // Retries are forgotten at the latest after the window and a hundredth of it.
    let mut budget = budget(10, 5);
    assert_eq!(drain(&mut budget, 0.0), 5);
    assert_eq!(drain(&mut budget, 9.999), 0);
    assert_eq!(drain(&mut budget, 10.1), 5);
}

#[test]
fn c100_hours_of_silence_leave_only_the_minimum() {
    let mut budget = budget(10, 2);
    deposit(&mut budget, 1_000, 0.0);
    assert_eq!(drain(&mut budget, 20_000.0), 2);
}

#[test]
fn c101_a_sleeping_retry_counts_until_it_is_cancelled() {
    let mut budget = budget(20, 0);
    deposit(&mut budget, 10, 0.0);
    let asleep = [(); 2].map(|()| budget.withdraw(at(0.0)).expect("two for ten"));
    assert!(budget.withdraw(at(0.5)).is_none());
    for withdrawal in asleep {
        budget.refund(withdrawal, at(1.0));
    }
    assert_eq!(drain(&mut budget, 1.0), 2);
}

#[test]
fn c102_retries_do_not_earn_retries() {
    let mut budget = budget(50, 0);
    deposit(&mut budget, 4, 0.0);
    assert_eq!(drain(&mut budget, 0.0), 2);
    assert_eq!(budget.usage(at(0.0)), BudgetUsage { originals: 4, retries: 2, available: 0 });
}

#[test]
fn c107_what_is_available_never_falls_below_nothing() {
    let mut budget = budget(10, 1);
    for _ in 0..50 {
        budget.charge(at(0.0));
    }
    assert_eq!(budget.usage(at(0.0)), BudgetUsage { originals: 0, retries: 50, available: 0 });
    // It recovers by itself, without a success in between.
    assert_eq!(budget.usage(at(11.0)).available, 1);
}

#[test]
fn retries_of_the_layers_above_use_the_budget_up() {
    let mut budget = budget(10, 0);
    deposit(&mut budget, 30, 0.0);
    budget.charge(at(0.0));
    budget.charge(at(0.0));
    assert_eq!(drain(&mut budget, 0.0), 1);
}

#[test]
fn everything_fails_and_the_load_grows_by_a_tenth() {
    // 100 requests per second for a minute, each of which would be retried three times.
    let mut budget = budget(10, 3);
    let mut retries = 0;
    for tenth in 0..600 {
        let now = f64::from(tenth) / 10.0;
        deposit(&mut budget, 10, now);
        retries += (0..30).filter(|_| budget.withdraw(at(now)).is_some()).count();
    }
    // 6000 originals; the minimum comes once in each of the six windows.
    assert!((590..=600 + 6 * 3).contains(&retries), "{retries}");
}

#[derive(Clone, Debug)]
enum Act {
    Pass { millis: u64 },
    Deposit,
    Charge,
    Withdraw,
    Refund { which: prop::sample::Index },
    Lose { which: prop::sample::Index },
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..4_000_u64).prop_map(|millis| Act::Pass { millis }),
        6 => Just(Act::Deposit),
        1 => Just(Act::Charge),
        6 => Just(Act::Withdraw),
        1 => any::<prop::sample::Index>().prop_map(|which| Act::Refund { which }),
        1 => any::<prop::sample::Index>().prop_map(|which| Act::Lose { which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The retries of any window that ends with one are within the limit, by a count that remembers every moment;
    /// and a refusal is at most one slot away from being right.
    #[test]
    fn any_interleaving(
        percent in prop_oneof![Just(10_u32), 0..200_u32],
        min in 0..4_u32,
        acts in prop::collection::vec(any_act(), 0..200),
    ) {
        let window = Duration::from_secs(10);
        let mut budget = RetryBudget::new(BudgetSettings { percent, min_per_window: min, window });
        let mut now = Moment::ORIGIN;
        let mut originals: Vec<Moment> = Vec::new();
        let mut retries: Vec<Moment> = Vec::new();
        let mut asleep: Vec<(Withdrawal, Moment)> = Vec::new();
        let since = |moments: &[Moment], now: Moment, window: Duration| {
            moments.iter().filter(|&&moment| now.saturating_since(moment) < window).count() as u64
        };
        let allowed = |originals: u64| originals * u64::from(percent) / 100 + u64::from(min);
        for act in acts {
            match act {
                Act::Pass { millis } => now = now.saturating_add(Duration::from_millis(millis)),
                Act::Deposit => {
                    budget.deposit(now);
                    originals.push(now);
                }
                Act::Charge => {
                    budget.charge(now);
                    retries.push(now);
                }
                Act::Withdraw => {
                    if let Some(withdrawal) = budget.withdraw(now) {
                        asleep.push((withdrawal, now));
                        retries.push(now);
                        let (retries, originals) = (since(&retries, now, window), since(&originals, now, window));
                        prop_assert!(retries <= allowed(originals), "{} of {}", retries, originals);
                    } else {
                        let slot = window / 100;
                        let surely_original = since(&originals, now, window.saturating_sub(slot));
                        let perhaps_retried = since(&retries, now, window + slot);
                        prop_assert!(perhaps_retried + 1 > allowed(surely_original));
                    }
                }
                Act::Refund { which } if !asleep.is_empty() => {
                    let (withdrawal, scheduled) = asleep.swap_remove(which.index(asleep.len()));
                    budget.refund(withdrawal, now);
                    let place = retries.iter().position(|&at| at == scheduled).expect("it was counted");
                    retries.swap_remove(place);
                }
                Act::Lose { which } if !asleep.is_empty() => {
                    drop(asleep.swap_remove(which.index(asleep.len())));
                }
                Act::Refund { .. } | Act::Lose { .. } => {}
            }
        }
        // Nothing is ever owed: after a window of silence there is the minimum again.
        let usage = budget.usage(now.saturating_add(window + window / 100));
        prop_assert_eq!(usage, BudgetUsage { originals: 0, retries: 0, available: u64::from(min) });
    }
}
