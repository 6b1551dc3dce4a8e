//! Sequences and the breaker of their target.

use super::*;

#[test]
fn the_breaker_counts_sequences_and_not_attempts() {
    let rules = preset::gglib();
    let target = &mut with_breaker(BreakerSettings::TARGET);
    for sequence_number in 1..=3 {
        let mut sequence = begin(&rules, 0.0, target);
        for _ in 1..4 {
            assert_eq!(state(target), BreakerState::Closed);
            let _ = fail(&mut sequence, &RESET, 0.0, target);
            let _ = sequence.on_wake(at(0.0), target);
        }
        let step = fail(&mut sequence, &RESET, 0.0, target);
        if sequence_number < 3 {
            assert_eq!(step.next, gave_up(GiveUpReason::AttemptsExhausted));
        } else {
            assert_eq!(step.next, gave_up_until(GiveUpReason::AttemptsExhausted, 60.0));
            let change = RetryEvent::BreakerChanged {
                from: BreakerState::Closed,
                to: BreakerState::Open,
                retry_at: Some(at(60.0)),
            };
            assert_eq!(events(step.events)[1], change);
        }
    }
}

#[test]
fn c117_only_some_failures_are_about_the_targets_health() {
    let code = |code, status| Failure { code: Some(code), ..Failure::new(Cause::Status(status)) };
    for (failure, opens) in [
        (RESET, true),
        (BUSY, true),
        (Failure::new(Cause::Malformed), true),
        (Failure::new(Cause::Timeout(Phase::MidBody)), true),
        (Failure::new(Cause::Status(StatusCode::INTERNAL_SERVER_ERROR)), true),
        (Failure { window: IdempotencyWindow::Closed, ..RESET }, true),
        (hinted(BUSY, 1.0), false),
        (LIMITED, false),
        (hinted(LIMITED, 1.0), false),
        (NOT_FOUND, false),
        (Failure::new(Cause::Status(StatusCode::NOT_IMPLEMENTED)), false),
        (code("context_length_exceeded", StatusCode::INTERNAL_SERVER_ERROR), false),
        (code("insufficient_quota", StatusCode::TOO_MANY_REQUESTS), false),
    ] {
        let rules = RetryRules { policy: RetryPolicy::disabled(), ..preset::gglib() };
        let target = &mut with_breaker(BreakerSettings::MODEL_LOAD);
        let _ = fail(&mut begin(&rules, 0.0, target), &failure, 0.0, target);
        let expected = if opens { BreakerState::Open } else { BreakerState::Closed };
        assert_eq!(state(target), expected, "{failure:?}");
    }
}

#[test]
fn c118_an_open_breaker_refuses_before_the_first_attempt() {
    let rules = preset::gglib();
    let target = &mut with_budget(10, 3);
    target.breaker = Some(CircuitBreaker::new(BreakerSettings::MODEL_LOAD));
    let mut failed = begin(&rules, 0.0, target);
    let _ = fail(&mut failed, &Failure { advice: Some(Advice::GiveUp), ..RESET }, 0.0, target);

    let (_, step) = RetrySequence::begin(&rules, RetriesAbove::NONE, at(4.0), target);
    assert_eq!(step.next, gave_up_until(GiveUpReason::CircuitOpen, 10.0));
    assert_eq!(
        events(step.events),
        [RetryEvent::GaveUp {
            reason: GiveUpReason::CircuitOpen,
            attempts: 0,
            total_delay: Duration::ZERO,
            class: None,
            retry_at: Some(at(10.0)),
        }]
    );
    // A request that was never made earns no retries.
    assert_eq!(usage(target, 4.0), (1, 0));
}

#[test]
fn a_probe_is_a_single_attempt() {
    let rules = preset::gglib();
    let open = || {
        let mut target = with_breaker(BreakerSettings::MODEL_LOAD);
        let mut failed = begin(&rules, 0.0, &mut target);
        let _ = fail(&mut failed, &Failure { advice: Some(Advice::GiveUp), ..RESET }, 0.0, &mut target);
        target
    };

    let target = &mut open();
    let (mut probe, step) = RetrySequence::begin(&rules, RetriesAbove::NONE, at(10.0), target);
    assert_eq!(names(step.events), ["breaker_changed", "attempt"]);
    let step = fail(&mut probe, &RESET, 11.0, target);
    assert_eq!(step.next, gave_up_until(GiveUpReason::CircuitOpen, 31.0));
    assert_eq!(names(step.events), ["exhausted", "breaker_changed"]);

    let target = &mut open();
    let probe = begin(&rules, 10.0, target);
    assert_eq!(names(probe.on_success(at(11.0), target)), ["success", "breaker_changed"]);
    assert_eq!(state(target), BreakerState::Closed);

    // C112: cancelled, it leaves its place to the next.
    let target = &mut open();
    let probe = begin(&rules, 10.0, target);
    assert_eq!(names(probe.on_cancel(at(11.0), target)), ["cancelled", "breaker_changed"]);
    let next = begin(&rules, 11.0, target);
    assert_eq!(names(next.on_success(at(12.0), target)), ["success", "breaker_changed"]);

    // A server that is merely busy proves nothing: the next may probe when it said.
    let target = &mut open();
    let mut probe = begin(&rules, 10.0, target);
    let step = fail(&mut probe, &hinted(BUSY, 2.0), 11.0, target);
    assert_eq!(step.next, gave_up_until(GiveUpReason::CircuitOpen, 13.0));
    assert_eq!(state(target), BreakerState::Open);
    let _ = begin(&rules, 13.0, target);
}

#[test]
fn of_hint_and_pause_the_later_tells_when_to_come_back() {
    let rules = RetryRules { policy: RetryPolicy::disabled(), ..preset::gglib() };
    let failing = Failure::new(Cause::Status(StatusCode::INTERNAL_SERVER_ERROR));
    for (hint, retry_at) in [(5.0, 10.0), (30.0, 30.0)] {
        let target = &mut with_breaker(BreakerSettings::MODEL_LOAD);
        let step = fail(&mut begin(&rules, 0.0, target), &hinted(failing, hint), 0.0, target);
        assert_eq!(step.next, gave_up_until(GiveUpReason::AttemptsExhausted, retry_at));
    }
}

#[test]
fn c119_nobody_retries_against_a_breaker_that_others_have_opened() {
    let rules = preset::gglib();
    let target = &mut with_breaker(BreakerSettings::MODEL_LOAD);
    let [mut trying, mut asleep, mut late, mut later, mut other] =
        [(); 5].map(|()| begin(&rules, 0.0, target));
    for sleeper in [&mut asleep, &mut late] {
        let _ = fail(sleeper, &RESET, 0.0, target);
    }
    let _ = fail(&mut other, &Failure { advice: Some(Advice::GiveUp), ..RESET }, 0.0, target);

    let step = fail(&mut trying, &RESET, 1.0, target);
    assert_eq!(step.next, gave_up_until(GiveUpReason::CircuitOpen, 10.0));
    let step = asleep.on_wake(at(1.0), target);
    assert_eq!(step.next, gave_up_until(GiveUpReason::CircuitOpen, 10.0));
    // When the pause is over it is the probe's turn, and not that of a sequence with attempts of its own.
    assert_eq!(late.on_wake(at(10.0), target).next, gave_up(GiveUpReason::CircuitOpen));
    assert_eq!(fail(&mut later, &RESET, 10.0, target).next, gave_up(GiveUpReason::CircuitOpen));
    assert_eq!(state(target), BreakerState::Open);
    // Nobody has lengthened the pause.
    assert_eq!(
        names(begin(&rules, 10.0, target).on_success(at(10.0), target)),
        ["success", "breaker_changed"]
    );
}

#[test]
fn a_sequence_from_before_an_open_period_goes_on_when_it_is_over() {
    let rules = preset::gglib();
    let target = &mut with_breaker(BreakerSettings::MODEL_LOAD);
    let [mut slow, mut other] = [(); 2].map(|()| begin(&rules, 0.0, target));
    let _ = fail(&mut other, &Failure { advice: Some(Advice::GiveUp), ..RESET }, 0.0, target);
    let _ = begin(&rules, 10.0, target).on_success(at(10.0), target);

    assert_eq!(fail(&mut slow, &RESET, 11.0, target).next, wait(0.5));
    // And counts again, as part of the new period.
    let _ = sequence_fails_for_good(&mut slow, target);
    assert_eq!(state(target), BreakerState::Open);
}

fn sequence_fails_for_good(sequence: &mut RetrySequence<'_>, target: &mut Target) -> Step {
    let _ = sequence.on_wake(at(12.0), target);
    fail(sequence, &Failure { advice: Some(Advice::GiveUp), ..RESET }, 12.0, target)
}
