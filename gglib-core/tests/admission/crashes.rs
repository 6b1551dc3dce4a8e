//! Engines that come up and do not last.

use gglib_core::admission::Event;
use gglib_core::retry::BreakerState;

use crate::desk::Desk;

/// Loads the engine of model a that `ticket` waits for, and lets it die after `lived` seconds: found out by its holder,
/// or by itself.
fn short_life(desk: &mut Desk, ticket: u64, generation: u64, lived: u64, condemned: bool) {
    assert_eq!(desk.arrive("a"), format!("launch a as g{generation}"));
    assert_eq!(desk.loaded(generation), format!("grant t{ticket} on g{generation}"));
    desk.later(lived);
    if condemned {
        assert_eq!(desk.condemn(generation), format!("kill g{generation}"));
    }
    desk.release(generation, ticket);
    desk.ended(generation);
}

#[test]
fn the_third_engine_in_a_row_that_does_not_last_opens_the_breaker_for_longer_each_time() {
    for condemned in [true, false] {
        let mut desk = Desk::new();
        for life in 1..=3 {
            assert_eq!(desk.snapshot().breakers, [], "{life}");
            short_life(&mut desk, life, life, 5, condemned);
        }
        assert_eq!(desk.arrive("a"), "refuse t4: breaker open (again in 10s)");
        let breaker = desk.snapshot().breakers[0].clone();
        assert_eq!((breaker.state, breaker.failures), (BreakerState::Open, 3));
        assert_eq!(&*breaker.reason, "its engines have died soon after they were ready");
        // Others come up, and do not last either.
        for (ticket, generation, pause) in [(5, 4, 20), (7, 5, 40)] {
            desk.later(pause / 2);
            short_life(&mut desk, ticket, generation, 5, condemned);
            assert_eq!(desk.arrive("a"), format!("refuse t{}: breaker open (again in {pause}s)", ticket + 1));
        }
    }
}

#[test]
fn the_breaker_closes_when_an_engine_has_lasted() {
    let mut desk = Desk::new();
    for life in 1..=3 {
        short_life(&mut desk, life, life, 5, true);
    }
    desk.later(10);
    assert_eq!(desk.arrive("a"), "launch a as g4");
    assert_eq!(desk.loaded(4), "grant t4 on g4");
    assert_eq!(desk.snapshot().breakers[0].state, BreakerState::HalfOpen, "it is on probation");
    desk.later(599);
    desk.tell(Event::Tick);
    assert_eq!(desk.snapshot().breakers.len(), 1);
    desk.later(1);
    desk.tell(Event::Tick);
    assert_eq!(desk.snapshot().breakers, []);
    // The row is over with it.
    desk.release(4, 4);
    desk.ended(4);
    short_life(&mut desk, 5, 5, 5, true);
    assert_eq!(desk.arrive("a"), "launch a as g6");
}

#[test]
fn a_death_after_a_long_life_and_an_end_that_was_asked_for_are_no_part_of_a_row() {
    let mut desk = Desk::new();
    for life in 1..=5 {
        short_life(&mut desk, life, life, 600, true);
    }
    // Evicted three times for another model, each time soon after it was ready.
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
    assert_eq!((desk.totals().evictions, desk.totals().crashes), (5, 0));
    assert_eq!(desk.snapshot().breakers, []);
}
