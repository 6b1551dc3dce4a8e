//! The registry of targets.

use std::sync::{Arc, Mutex};
use std::thread;

use gglib_core::retry::{
    BreakerSettings, BreakerState, BudgetSettings, Outcome, RetryPolicy, Target, TargetSettings, Targets,
};

use super::at;

fn settings(capacity: usize) -> TargetSettings {
    TargetSettings {
        budget: Some(BudgetSettings::for_policy(&RetryPolicy::default())),
        breaker: Some(BreakerSettings::MODEL_LOAD),
        capacity,
    }
}

fn names(targets: &mut Targets) -> Vec<String> {
    targets.iter_mut().map(|(name, _)| name.to_owned()).collect()
}

fn open(target: &mut Target, now: f64) {
    let breaker = target.breaker.as_mut().expect("by the settings");
    let permit = breaker.admit(at(now)).expect("it is closed");
    breaker.settle(permit, Outcome::Failure, at(now));
}

fn state(targets: &mut Targets, name: &str, now: f64) -> BreakerState {
    targets.target(name, at(now)).breaker.as_ref().expect("by the settings").state()
}

#[test]
fn one_target_does_not_use_up_what_belongs_to_another() {
    let mut targets = Targets::new(settings(10));
    let first = targets.target("first", at(0.0));
    while first.budget.as_mut().expect("by the settings").withdraw(at(0.0)).is_some() {}
    open(first, 0.0);
    assert_eq!(state(&mut targets, "first", 1.0), BreakerState::Open);
    assert_eq!(state(&mut targets, "second", 1.0), BreakerState::Closed);
    let second = targets.target("second", at(1.0)).budget.as_mut().expect("by the settings");
    assert_eq!(second.usage(at(1.0)).available, 3);
    // It is remembered.
    let first = targets.target("first", at(1.0)).budget.as_mut().expect("by the settings");
    assert_eq!(first.usage(at(1.0)).available, 0);
}

#[test]
fn targets_have_what_the_settings_say() {
    let mut neither = Targets::new(TargetSettings { budget: None, breaker: None, capacity: 1 });
    let target = neither.target("any", at(0.0));
    assert!(target.budget.is_none() && target.breaker.is_none());
}

#[test]
fn the_number_of_targets_is_bounded() {
    let mut targets = Targets::new(settings(3));
    for (now, name) in [(0.0, "a"), (1.0, "b"), (2.0, "c"), (3.0, "a"), (4.0, "d")] {
        targets.target(name, at(now));
    }
    // `b` was asked for longest ago.
    assert_eq!(names(&mut targets), ["a", "c", "d"]);
    // `c` is next, but its breaker is open, and to forget that would let everybody through.
    open(targets.target("c", at(2.5)), 2.5);
    targets.target("e", at(5.0));
    assert_eq!(names(&mut targets), ["c", "d", "e"]);
    for number in 0..100_u32 {
        let now = 6.0 + f64::from(number);
        open(targets.target(&number.to_string(), at(now)), now);
    }
    assert_eq!(targets.iter_mut().count(), 3);

    let mut single = Targets::new(settings(0));
    single.target("a", at(0.0));
    single.target("b", at(0.0));
    assert_eq!(names(&mut single), ["b"]);
}

#[test]
fn what_a_forgotten_target_has_given_out_is_void() {
    let mut targets = Targets::new(settings(1));
    let before = targets.target("a", at(0.0));
    let withdrawal = before.budget.as_mut().and_then(|budget| budget.withdraw(at(0.0))).expect("the minimum");
    let permit = before.breaker.as_mut().expect("by the settings").admit(at(0.0)).expect("it is closed");

    targets.target("b", at(0.0));
    let after = targets.target("a", at(0.0));
    let budget = after.budget.as_mut().expect("by the settings");
    let _ = budget.withdraw(at(0.0));
    budget.refund(withdrawal, at(0.0));
    assert_eq!(budget.usage(at(0.0)).retries, 1);
    let breaker = after.breaker.as_mut().expect("by the settings");
    assert!(!breaker.honours(&permit));
    breaker.settle(permit, Outcome::Failure, at(0.0));
    assert_eq!(breaker.state(), BreakerState::Closed);
}

/// Behind the lock that a driver has, threads can only interleave whole steps.
#[test]
fn threads_that_share_targets_share_their_budget() {
    let settings = BudgetSettings { percent: 10, ..BudgetSettings::for_policy(&RetryPolicy::disabled()) };
    let targets = Arc::new(Mutex::new(Targets::new(TargetSettings {
        budget: Some(settings),
        breaker: None,
        capacity: 4,
    })));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let targets = Arc::clone(&targets);
            thread::spawn(move || {
                let mut granted = 0;
                for _ in 0..250 {
                    let mut targets = targets.lock().expect("nobody panics");
                    let budget = targets.target("shared", at(0.0)).budget.as_mut().expect("by the settings");
                    budget.deposit(at(0.0));
                    granted += usize::from(budget.withdraw(at(0.0)).is_some());
                }
                granted
            })
        })
        .collect();
    let granted: usize = workers.into_iter().map(|worker| worker.join().expect("nobody panics")).sum();
    assert_eq!(granted, 200);
}
