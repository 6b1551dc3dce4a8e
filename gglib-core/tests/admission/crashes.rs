//! Engines that come up and die before they have answered anything.

use gglib_core::retry::BreakerState;

use crate::desk::Desk;

/// Loads the engine of model a that `ticket` waits for, and lets it die over that: found out by its holder, or by itself.
fn short_life(desk: &mut Desk, ticket: u64, generation: u64, condemned: bool) {
    begin(desk, ticket, generation);
    die(desk, ticket, generation, condemned);
}

fn begin(desk: &mut Desk, ticket: u64, generation: u64) {
    assert_eq!(desk.arrive("a"), format!("launch a as g{generation}"));
    assert_eq!(desk.loaded(generation), format!("grant t{ticket} on g{generation}"));
}

fn die(desk: &mut Desk, ticket: u64, generation: u64, condemned: bool) {
    desk.later(5);
    if condemned {
        assert_eq!(desk.condemn(generation), format!("kill g{generation}"));
    }
    desk.release(generation, ticket);
    desk.ended(generation);
}

#[test]
fn the_third_engine_in_a_row_that_dies_without_an_answer_opens_the_breaker_for_longer_each_time() {
    for condemned in [true, false] {
        let mut desk = Desk::new();
        for life in 1..=3 {
            assert_eq!(desk.snapshot().breakers, [], "{life}");
            short_life(&mut desk, life, life, condemned);
        }
        assert_eq!(desk.arrive("a"), "refuse t4: breaker open (again in 10s)");
        let breaker = desk.snapshot().breakers[0].clone();
        assert_eq!((breaker.state, breaker.failures), (BreakerState::Open, 3));
        assert_eq!(&*breaker.reason, "its engines have died before they had answered anything");
        // Others come up, and die as soon.
        for (ticket, generation, pause) in [(5, 4, 20), (7, 5, 40)] {
            desk.later(pause / 2);
            short_life(&mut desk, ticket, generation, condemned);
            assert_eq!(desk.arrive("a"), format!("refuse t{}: breaker open (again in {pause}s)", ticket + 1));
        }
        assert_eq!((desk.totals().crashes, desk.totals().loads), (5, 5), "however it is found out");
    }
}

#[test]
fn the_breaker_closes_when_an_engine_has_answered() {
    let mut desk = Desk::new();
    for life in 1..=3 {
        short_life(&mut desk, life, life, true);
    }
    desk.later(10);
    begin(&mut desk, 4, 4);
    assert_eq!(desk.snapshot().breakers[0].state, BreakerState::HalfOpen, "it is on probation");
    desk.answered(4);
    assert_eq!(desk.snapshot().breakers, []);
    // The row is over with it, and its own death begins none.
    die(&mut desk, 4, 4, true);
    for life in 5..=6 {
        short_life(&mut desk, life, life, true);
    }
    assert_eq!(desk.snapshot().breakers, []);
    short_life(&mut desk, 7, 7, true);
    assert_eq!(desk.snapshot().breakers[0].state, BreakerState::Open);
}

#[test]
fn a_death_after_an_answer_and_an_end_that_was_asked_for_are_no_part_of_a_row() {
    let mut desk = Desk::new();
    for life in 1..=5 {
        begin(&mut desk, life, life);
        desk.answered(life);
        die(&mut desk, life, life, true);
    }
    // Evicted three times for another model, each time without an answer.
    for round in 3..6 {
        for (generation, model) in [(2 * round, "a"), (2 * round + 1, "b")] {
            desk.arrive(model);
            if generation > 6 {
                desk.ended(generation - 1);
            }
            desk.loaded(generation);
            desk.release(generation, generation);
        }
    }
    assert_eq!((desk.totals().evictions, desk.totals().crashes), (5, 5));
    assert_eq!(desk.snapshot().breakers, []);
}

#[test]
fn who_waits_when_the_breaker_opens_is_told_at_once_and_no_rival_is_stopped_for_it() {
    let mut desk = Desk::new();
    for life in 1..=2 {
        short_life(&mut desk, life, life, true);
    }
    begin(&mut desk, 3, 3);
    assert_eq!((desk.arrive("a"), desk.arrive("b")), (String::new(), String::new()));
    assert_eq!(desk.condemn(3), "kill g3, refuse t4: breaker open (again in 10s)");
    assert_eq!(
        desk.arrive("a"),
        "refuse t6: breaker open (again in 10s)",
        "also before the dead one is gone"
    );
    let breaker = desk.snapshot().breakers[0].clone();
    assert_eq!((breaker.state, breaker.retry_in), (BreakerState::Open, Some(crate::desk::seconds(10))));
    desk.release(3, 3);
    assert_eq!(desk.ended(3), "launch b as g4");
    assert_eq!(desk.loaded(4), "grant t5 on g4");
    assert_eq!(desk.release(4, 5), "", "b stays");
}
