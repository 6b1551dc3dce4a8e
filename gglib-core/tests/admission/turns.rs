//! Turns: who goes on while a rival waits, and for how long.

use gglib_core::admission::{EngineState, Profile, Settings};

use crate::desk::{Desk, seconds, settings};

fn parallel(parallel: u32) -> Profile {
    Profile { parallel, ..Profile::default() }
}

#[test]
fn forty_alternating_requests_at_once_cost_two_loads() {
    let mut desk = Desk::with(Settings { queue: 256, ..settings() }, &[]);
    for _ in 0..20 {
        desk.arrive("a");
        desk.arrive("b");
    }
    desk.loaded(1);
    for served in 0..19 {
        desk.later(1);
        assert_eq!(desk.release(1, 2 * served + 1), format!("grant t{} on g1", 2 * served + 3));
    }
    assert_eq!(desk.release(1, 39), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g2");
    desk.loaded(2);
    for served in 1..20 {
        desk.release(2, 2 * served);
    }
    assert_eq!(desk.release(2, 40), "", "nobody else waits, so b stays");
    let totals = desk.totals();
    assert_eq!((totals.loads, totals.swaps, totals.evictions), (2, 1, 1));
}

#[test]
fn a_burst_is_served_in_one_turn_even_if_it_takes_longer_than_a_quantum() {
    let mut desk = Desk::new();
    for _ in 0..4 {
        desk.arrive("a");
    }
    desk.arrive("b");
    desk.loaded(1);
    desk.later(19);
    desk.arrive("a");
    assert_eq!(desk.release(1, 1), "grant t2 on g1");
    desk.later(19);
    assert_eq!(desk.release(1, 2), "grant t3 on g1", "the quantum of 20 s is over for newcomers only");
    desk.later(22);
    assert_eq!(
        desk.release(1, 3),
        "stop g1",
        "t4 has waited since before the turn, but three quanta are over"
    );
    assert_eq!(desk.ended(1), "launch b as g2");
    assert_eq!(desk.loaded(2), "grant t5 on g2");
    assert_eq!(desk.release(2, 5), "stop g2");
    assert_eq!(desk.ended(2), "launch a as g3");
    assert_eq!(desk.loaded(3), "grant t4 on g3");
}

#[test]
fn newcomers_are_served_until_the_quantum_is_over_and_then_queue_behind() {
    let mut desk = Desk::with(settings(), &[("a", parallel(4))]);
    desk.arrive("a");
    desk.loaded(1);
    assert_eq!(desk.arrive("b"), "");
    assert_eq!(desk.state("a"), Some(EngineState::Resident));
    desk.later(19);
    assert_eq!(desk.arrive("a"), "grant t3 on g1");
    desk.later(1);
    assert_eq!(desk.arrive("a"), "", "overlapping traffic must not starve b");
    assert_eq!(desk.state("a"), Some(EngineState::Draining));
    assert_eq!(desk.release(1, 1), "");
    assert_eq!(desk.release(1, 3), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g2", "although a's t4 is older than whoever comes for b now");
    assert_eq!(desk.loaded(2), "grant t2 on g2");
    assert_eq!(desk.release(2, 2), "stop g2", "its queue is empty");
    assert_eq!(desk.ended(2), "launch a as g3");
}

#[test]
fn a_model_that_has_been_there_for_long_stands_aside_at_once_but_serves_who_came_before_the_rival() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.later(3600);
    desk.arrive("a");
    desk.arrive("b");
    desk.arrive("a");
    assert_eq!(desk.release(1, 1), "grant t2 on g1");
    assert_eq!(desk.release(1, 2), "stop g1");
}

#[test]
fn when_the_rival_leaves_the_turn_goes_on() {
    let mut desk = Desk::with(settings(), &[("a", parallel(2))]);
    desk.arrive("a");
    desk.loaded(1);
    desk.later(60);
    desk.arrive("b");
    assert_eq!(desk.arrive("a"), "");
    assert_eq!(desk.leave(2), "grant t3 on g1");
    assert_eq!(desk.state("a"), Some(EngineState::Resident));
}

#[test]
fn the_quantum_grows_with_the_measured_cost_of_the_switch() {
    let mut desk = Desk::with(settings(), &[("a", parallel(2))]);
    // Both have loaded once: b in 30 s, after a was stopped in 10 s.
    desk.arrive("a");
    desk.later(5);
    desk.loaded(1);
    desk.release(1, 1);
    assert_eq!(desk.arrive("b"), "stop g1");
    desk.later(10);
    desk.ended(1);
    desk.later(30);
    desk.loaded(2);
    desk.release(2, 2);
    assert_eq!(desk.arrive("a"), "stop g2");
    desk.ended(2);
    desk.later(5);
    assert_eq!(desk.loaded(3), "grant t3 on g3");
    desk.arrive("b");
    desk.later(159);
    assert_eq!(desk.arrive("a"), "grant t5 on g3", "4 × (10 s + 30 s) are not over");
    desk.release(3, 5);
    desk.later(1);
    assert_eq!(desk.arrive("a"), "");
    assert_eq!(desk.release(3, 3), "stop g3");
}

#[test]
fn two_crowds_swap_once_per_quantum_and_not_per_request() {
    let mut desk = Desk::with(settings(), &[]);
    // Four clients of each model, every one of which comes back as soon as it is served; a second each.
    for _ in 0..4 {
        desk.arrive("a");
        desk.arrive("b");
    }
    let mut line = desk.loaded(1);
    let mut tickets: u64 = 8;
    for _ in 0..600 {
        desk.later(1);
        while line.starts_with("stop") {
            let generation: u64 = line[6..].parse().unwrap();
            desk.ended(generation);
            line = desk.loaded(generation + 1);
        }
        let (ticket, generation) = line.strip_prefix("grant t").unwrap().split_once(" on g").unwrap();
        let (ticket, generation): (u64, u64) = (ticket.parse().unwrap(), generation.parse().unwrap());
        let model = desk.snapshot().engines[0].model.as_str().to_owned();
        tickets += 1;
        assert_eq!(desk.arrive(&model), "", "one at a time");
        line = desk.release(generation, ticket);
    }
    // 600 s of 20 s a turn, in each of which up to four more are served who waited at its beginning.
    let loads = desk.totals().loads;
    assert!((25..=31).contains(&loads), "{loads} loads for {tickets} requests");
}

#[test]
fn models_take_turns_in_the_order_of_their_oldest_waiter() {
    let mut desk = Desk::new();
    for model in ["a", "b", "a", "a", "c", "a", "b", "c"] {
        desk.arrive(model);
    }
    assert_eq!(desk.loaded(1), "grant t1 on g1");
    assert_eq!(desk.release(1, 1), "grant t3 on g1");
    assert_eq!(desk.release(1, 3), "grant t4 on g1");
    assert_eq!(desk.release(1, 4), "grant t6 on g1");
    assert_eq!(desk.release(1, 6), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g2", "8 requests for 3 models cost 3 loads");
}

#[test]
fn a_turn_without_a_rival_does_not_end() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    for ticket in 1..100 {
        desk.later(60);
        desk.arrive("a");
        assert_eq!(desk.release(1, ticket), format!("grant t{} on g1", ticket + 1));
    }
    assert_eq!(desk.totals().loads, 1);
}

#[test]
fn a_quantum_of_nothing_still_serves_somebody_in_each_turn() {
    let mut desk = Desk::with(Settings { quantum: seconds(0), ..settings() }, &[]);
    desk.arrive("a");
    desk.arrive("b");
    desk.arrive("a");
    assert_eq!(desk.loaded(1), "grant t1 on g1");
    desk.later(1);
    assert_eq!(desk.release(1, 1), "stop g1");
    desk.ended(1);
    assert_eq!(desk.loaded(2), "grant t2 on g2");
}
