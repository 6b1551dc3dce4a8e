//! The circuit breaker: its cases, and its invariants over random histories.

use std::time::Duration;

use gglib_core::moment::Moment;
use gglib_core::retry::{BreakerSettings, BreakerState, CircuitBreaker, Outcome, Permit, Rejection};
use proptest::prelude::*;

use super::at;

const FAST: BreakerSettings = BreakerSettings {
    threshold: 3,
    open_for: Duration::from_secs(10),
    max_open_for: Duration::from_secs(40),
    probe_timeout: Duration::from_secs(5),
};

fn admit(breaker: &mut CircuitBreaker, now: f64) -> Permit {
    breaker.admit(at(now)).unwrap_or_else(|rejection| panic!("refused at {now} s: {rejection:?}"))
}

fn fail(breaker: &mut CircuitBreaker, now: f64) {
    let permit = admit(breaker, now);
    breaker.settle(permit, Outcome::Failure, at(now));
}

/// A breaker that opened at 0 s and stays open until 10 s.
fn opened() -> CircuitBreaker {
    let mut breaker = CircuitBreaker::new(FAST);
    for _ in 0..3 {
        fail(&mut breaker, 0.0);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
    breaker
}

#[test]
fn only_consecutive_failures_open_it() {
    let mut breaker = CircuitBreaker::new(FAST);
    for outcome in [Outcome::Success, Outcome::Failure, Outcome::Failure, Outcome::Success, Outcome::Failure]
    {
        let permit = admit(&mut breaker, 0.0);
        breaker.settle(permit, outcome, at(0.0));
    }
    // Neutral results neither count nor interrupt.
    fail(&mut breaker, 1.0);
    let permit = admit(&mut breaker, 1.0);
    breaker.settle(permit, Outcome::Neutral, at(1.0));
    assert_eq!(breaker.state(), BreakerState::Closed);
    fail(&mut breaker, 2.0);
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[test]
fn c116_below_the_threshold_it_stays_closed_though_all_fails() {
    let mut breaker = CircuitBreaker::new(BreakerSettings { threshold: 10, ..FAST });
    for _ in 0..9 {
        fail(&mut breaker, 0.0);
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    assert_eq!(breaker.retry_at(at(0.0)), None);
}

#[test]
fn a_threshold_of_none_is_one() {
    let mut breaker = CircuitBreaker::new(BreakerSettings { threshold: 0, ..FAST });
    fail(&mut breaker, 0.0);
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[test]
fn c118_a_refusal_tells_when_to_come_back() {
    let mut breaker = opened();
    for now in [0.0, 3.0, 9.999] {
        assert_eq!(breaker.admit(at(now)), Err(Rejection { retry_at: at(10.0) }), "{now}");
    }
    let _probe = admit(&mut breaker, 10.0);
    // While a probe is under way, its lease is the longest that anyone has to wait for an answer.
    assert_eq!(breaker.admit(at(12.0)), Err(Rejection { retry_at: at(15.0) }));
}

#[test]
fn c111_a_probe_that_never_reports_gives_its_place_to_the_next() {
    let mut breaker = opened();
    let lost = admit(&mut breaker, 10.0);
    assert!(breaker.admit(at(14.999)).is_err());
    let second = admit(&mut breaker, 15.0);
    assert!(second.is_probe());
    // What the first says now is too late to be counted, in either direction.
    breaker.settle(lost, Outcome::Failure, at(15.5));
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    breaker.settle(second, Outcome::Success, at(16.0));
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[test]
fn c112_a_cancelled_probe_is_neither_success_nor_failure() {
    let mut breaker = opened();
    let probe = admit(&mut breaker, 10.0);
    breaker.settle(probe, Outcome::Neutral, at(11.0));
    assert_eq!(breaker.state(), BreakerState::Open);
    // The next one probes at once, and the pause has not become longer.
    let probe = admit(&mut breaker, 11.0);
    assert!(probe.is_probe());
    breaker.settle(probe, Outcome::Failure, at(11.0));
    assert_eq!(breaker.retry_at(at(11.0)), Some(at(31.0)));
}

#[test]
fn c113_c114_results_from_before_it_opened_are_ignored() {
    for outcome in [Outcome::Success, Outcome::Failure, Outcome::Neutral] {
        let mut breaker = CircuitBreaker::new(FAST);
        let [in_open, in_half_open, in_closed] = [(); 3].map(|()| admit(&mut breaker, 0.0));
        for _ in 0..3 {
            fail(&mut breaker, 0.0);
        }
        assert!(!breaker.honours(&in_open));
        breaker.settle(in_open, outcome, at(9.0));
        assert_eq!(breaker.retry_at(at(9.0)), Some(at(10.0)), "{outcome:?}");

        let probe = admit(&mut breaker, 10.0);
        breaker.settle(in_half_open, outcome, at(11.0));
        assert_eq!(breaker.state(), BreakerState::HalfOpen, "{outcome:?}");
        breaker.settle(probe, Outcome::Success, at(11.0));

        // Closed again, two failures and one of the old era do not make three.
        fail(&mut breaker, 12.0);
        fail(&mut breaker, 12.0);
        breaker.settle(in_closed, outcome, at(12.0));
        assert_eq!(breaker.state(), BreakerState::Closed, "{outcome:?}");
        fail(&mut breaker, 12.0);
        assert_eq!(breaker.state(), BreakerState::Open, "{outcome:?}");
    }
}

#[test]
fn the_pause_doubles_with_each_failed_probe_and_starts_anew_after_success() {
    let mut breaker = opened();
    let mut now = 0.0;
    for pause in [10.0, 20.0, 40.0, 40.0] {
        assert_eq!(breaker.retry_at(at(now)), Some(at(now + pause)));
        now += pause;
        fail(&mut breaker, now);
    }
    now += 40.0;
    let probe = admit(&mut breaker, now);
    breaker.settle(probe, Outcome::Success, at(now));
    for _ in 0..3 {
        fail(&mut breaker, now);
    }
    assert_eq!(breaker.retry_at(at(now)), Some(at(now + 10.0)));
}

#[test]
fn a_model_that_does_not_load_is_left_alone_for_longer_each_time() {
    let mut breaker = CircuitBreaker::new(BreakerSettings::MODEL_LOAD);
    let mut now = 0.0;
    for pause in [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0] {
        fail(&mut breaker, now);
        assert_eq!(breaker.retry_at(at(now)), Some(at(now + pause)));
        now += pause;
    }
}

#[test]
fn targets_open_for_a_minute_every_time() {
    let mut breaker = CircuitBreaker::new(BreakerSettings::TARGET);
    for _ in 0..3 {
        fail(&mut breaker, 0.0);
    }
    assert_eq!(breaker.retry_at(at(0.0)), Some(at(60.0)));
    fail(&mut breaker, 60.0);
    assert_eq!(breaker.retry_at(at(60.0)), Some(at(120.0)));
}

#[test]
fn the_longest_pauses_saturate() {
    let endless = BreakerSettings {
        threshold: 1,
        open_for: Duration::MAX,
        max_open_for: Duration::ZERO,
        probe_timeout: Duration::MAX,
    };
    let mut breaker = CircuitBreaker::new(endless);
    fail(&mut breaker, 1.0);
    let last = Moment::from_nanos(u64::MAX);
    assert_eq!(breaker.retry_at(at(2.0)), Some(last));
    let probe = breaker.admit(last).expect("the end of time");
    breaker.settle(probe, Outcome::Failure, last);
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[test]
fn states_print() {
    let states = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];
    assert_eq!(states.map(|state| state.to_string()), ["closed", "open", "half open"]);
}

#[derive(Clone, Debug)]
enum Act {
    Pass { millis: u64 },
    Admit,
    Settle { which: prop::sample::Index, outcome: Outcome },
    Lose { which: prop::sample::Index },
}

fn any_act() -> impl Strategy<Value = Act> {
    let outcome = prop_oneof![
        2 => Just(Outcome::Failure),
        1 => Just(Outcome::Success),
        1 => Just(Outcome::Neutral)
    ];
    prop_oneof![
        2 => (0..12_000_u64).prop_map(|millis| Act::Pass { millis }),
        4 => Just(Act::Admit),
        4 => (any::<prop::sample::Index>(), outcome)
            .prop_map(|(which, outcome)| Act::Settle { which, outcome }),
        1 => any::<prop::sample::Index>().prop_map(|which| Act::Lose { which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Over any history: at most one live probe, nothing admitted in a pause, no pause without an end, and only
    /// results of the current period change anything.
    #[test]
    fn any_history(acts in prop::collection::vec(any_act(), 0..80)) {
        let mut breaker = CircuitBreaker::new(FAST);
        let mut now = Moment::ORIGIN;
        let mut permits: Vec<Permit> = Vec::new();
        let mut probe_lease: Option<Moment> = None;
        let mut failures_in_a_row = 0;
        for act in acts {
            let state = breaker.state();
            match act {
                Act::Pass { millis } => now = now.saturating_add(Duration::from_millis(millis)),
                Act::Admit => {
                    let refused_until = breaker.retry_at(now);
                    match breaker.admit(now) {
                        Ok(permit) => {
                            prop_assert_eq!(refused_until, None);
                            prop_assert!(breaker.honours(&permit));
                            prop_assert_eq!(permit.is_probe(), state != BreakerState::Closed);
                            if permit.is_probe() {
                                // In flight at most one: the lease of any other has run out.
                                prop_assert!(probe_lease.is_none_or(|until| until <= now));
                                probe_lease = Some(now.saturating_add(FAST.probe_timeout));
                            }
                            permits.push(permit);
                        }
                        Err(Rejection { retry_at }) => {
                            prop_assert_eq!(refused_until, Some(retry_at));
                            prop_assert!(state != BreakerState::Closed && now < retry_at);
                            prop_assert!(retry_at <= now.saturating_add(FAST.max_open_for));
                        }
                    }
                }
                Act::Settle { which, outcome } if !permits.is_empty() => {
                    let permit = permits.swap_remove(which.index(permits.len()));
                    let (counts, is_probe) = (breaker.honours(&permit), permit.is_probe());
                    breaker.settle(permit, outcome, now);
                    if !counts {
                        prop_assert_eq!(breaker.state(), state);
                        continue;
                    }
                    failures_in_a_row = match outcome {
                        Outcome::Success => 0,
                        Outcome::Failure if is_probe => 0,
                        Outcome::Failure => failures_in_a_row + 1,
                        Outcome::Neutral => failures_in_a_row,
                    };
                    let expected = match (is_probe, outcome) {
                        (true, Outcome::Success) => BreakerState::Closed,
                        (true, _) => BreakerState::Open,
                        (false, _) if failures_in_a_row >= 3 => BreakerState::Open,
                        (false, _) => BreakerState::Closed,
                    };
                    prop_assert_eq!(breaker.state(), expected);
                    if expected == BreakerState::Open {
                        failures_in_a_row = 0;
                    }
                    if is_probe {
                        probe_lease = None;
                    }
                }
                Act::Lose { which } if !permits.is_empty() => {
                    drop(permits.swap_remove(which.index(permits.len())));
                }
                Act::Settle { .. } | Act::Lose { .. } => {}
            }
        }
        // However it went, whoever waits long enough is admitted.
        prop_assert!(breaker.admit(now.saturating_add(FAST.max_open_for)).is_ok());
    }
}
