//! Layers, budgets and overload against figures from elsewhere: Google's book on site reliability engineering,
//! chapters "Handling Overload" and "Addressing Cascading Failures", and what follows from its formulas.

use std::time::Duration;

use gglib_cli::simulate::layers::{self, Restraint, Settings};
use gglib_cli::simulate::overload;
use gglib_core::moment::Moment;
use gglib_core::retry::{BudgetSettings, RetryBudget};

const REQUESTS: u32 = 1_000;

fn settings(layers: u32, attempts: u32, failing_percent: u32) -> Settings {
    Settings { layers, attempts, requests: REQUESTS, failing_percent, seed: 1 }
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls are far below 2^53")]
fn load(settings: Settings, restraint: Restraint) -> f64 {
    layers::run(settings, restraint).calls as f64 / f64::from(settings.requests)
}

fn close(found: f64, expected: f64, within: f64) {
    assert!((found - expected).abs() <= within, "{found} is not {expected} ± {within}");
}

#[test]
fn attempts_multiply_over_layers() {
    for (layers, attempts, expected) in [(1, 3, 3.0), (3, 4, 64.0), (5, 3, 243.0), (3, 1, 1.0)] {
        close(load(settings(layers, attempts, 100), Restraint::None), expected, 0.0);
    }
}

#[test]
fn only_the_layer_above_the_refusal_retries_if_the_others_are_told() {
    close(load(settings(3, 4, 100), Restraint::OneLayer), 4.0, 0.0);
    close(load(settings(5, 3, 100), Restraint::OneLayer), 3.0, 0.0);
}

#[test]
fn a_budget_holds_a_total_failure_at_a_tenth() {
    for attempts in [2, 4, 100] {
        close(load(settings(1, attempts, 100), Restraint::Budgets), 1.1, 0.0);
    }
    // Without a failure it costs nothing.
    close(load(settings(1, 4, 0), Restraint::Budgets), 1.0, 0.0);
    // Each layer takes the retries of the layers above for what they are, so that tenths hardly add up.
    for restraint in [Restraint::Budgets, Restraint::Both] {
        let three = load(settings(3, 4, 100), restraint);
        assert!((1.1..=1.1_f64.powi(3)).contains(&three), "{restraint:?}: {three}");
    }
}

#[test]
fn load_and_success_follow_from_the_probability_of_failure() {
    // Probability in percent, load and success of 3 retries.
    for (failing, expected_load, expected_success) in [
        (10, 1.111, 0.9999),
        (20, 1.248, 0.9984),
        (30, 1.417, 0.9919),
        (50, 1.875, 0.9375),
        (75, 2.734, 0.6836),
    ] {
        let settings = Settings { requests: 20_000, ..settings(1, 4, failing) };
        let requests = f64::from(settings.requests);
        let free = layers::run(settings, Restraint::None);
        let success = f64::from(free.succeeded) / requests;
        let error = (expected_success * (1.0_f64 - expected_success) / requests).sqrt();
        // And half of the last digit of the table.
        close(success, expected_success, 4.0 * error + 0.000_05);
        // The number of attempts lies between 1 and 4, so that its deviation is at most 1.5.
        close(load(settings, Restraint::None), expected_load, 4.0 * 1.5 / requests.sqrt());
        close(load(settings, Restraint::Budgets), 1.1, 0.005);
    }
}

#[test]
fn a_process_has_60_retries_a_minute() {
    let mut budget =
        RetryBudget::new(BudgetSettings { percent: 0, min_per_window: 60, window: Duration::from_secs(60) });
    let withdrawn = |budget: &mut RetryBudget, at: u64| {
        let now = Moment::ORIGIN.saturating_add(Duration::from_secs(at));
        std::iter::from_fn(|| budget.withdraw(now)).take(1_000).count()
    };
    assert_eq!([0, 30, 59, 61].map(|second| withdrawn(&mut budget, second)), [60, 0, 0, 60]);
}

#[test]
fn one_percent_too_much_becomes_a_cascade() {
    let rush = [10_100.0; 100];
    let calm = [9_000.0; 20];
    let seconds = overload::run(&overload::every_second(u32::MAX), 10_000.0, rush.into_iter().chain(calm));
    for (second, failures) in [(0, 100.0), (1, 200.0), (2, 300.0), (99, 10_000.0)] {
        close(seconds[second].refused, failures, 1e-6);
        close(seconds[second].load, 10_000.0 + failures, 1e-6);
    }
    // The load has dropped below the capacity, but the backlog keeps the server over it.
    close(seconds[100].load, 19_000.0, 1e-6);
    let still_refusing = seconds[100..].iter().take_while(|second| second.refused > 1e-6).count();
    assert_eq!(still_refusing, 9);
}

#[test]
fn bounded_attempts_amplify_to_a_fixed_point() {
    // Offered load, and the amplification by up to 1, 2, 3 and 4 attempts.
    for (offered, amplification) in [
        (10_100.0, [1.0, 1.100, 1.261, 1.446]),
        (11_000.0, [1.0, 1.302, 1.652, 2.016]),
        (12_000.0, [1.0, 1.408, 1.853, 2.308]),
        (15_000.0, [1.0, 1.577, 2.174, 2.776]),
        (20_000.0, [1.0, 1.707, 2.424, 3.143]),
        (50_000.0, [1.0, 1.894, 2.790, 3.686]),
        (1e12, [1.0, 2.0, 3.0, 4.0]),
    ] {
        for (attempts, expected) in (1..).zip(amplification) {
            let seconds = overload::run(&overload::every_second(attempts), 10_000.0, [offered; 300]);
            close(seconds.last().expect("300 seconds").load / offered, expected, 0.000_6);
        }
    }
}
