//! Loads that fail: who is told, when it is tried again, and what is different when memory was short.

use gglib_core::admission::{Event, Profile, Settings, Totals};
use gglib_core::model::ModelName;
use gglib_core::retry::BreakerState;

use crate::desk::{Desk, seconds, settings};

#[test]
fn a_failed_load_is_told_to_all_who_waited_for_it_and_to_nobody_else() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.arrive("b");
    desk.arrive("a");
    assert_eq!(
        desk.load_failed(1),
        "refuse t1: load failed (again in 10s), refuse t3: load failed (again in 10s), launch b as g2"
    );
}

#[test]
fn after_a_failed_load_the_breaker_is_open_for_longer_each_time_and_one_load_probes() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.load_failed(1);
    assert_eq!(desk.arrive("a"), "refuse t2: breaker open (again in 10s)");
    let breaker = desk.snapshot().breakers[0].clone();
    assert_eq!((breaker.state, breaker.retry_in), (BreakerState::Open, Some(seconds(10))));
    assert_eq!((breaker.failures, &*breaker.reason), (1, "broken"));
    desk.later(4);
    assert_eq!(desk.arrive("a"), "refuse t3: breaker open (again in 6s)");
    desk.later(6);
    assert_eq!(desk.arrive("a"), "launch a as g2");
    let breaker = desk.snapshot().breakers[0].clone();
    assert_eq!((breaker.state, breaker.retry_in), (BreakerState::HalfOpen, None));
    assert_eq!(desk.arrive("a"), "", "who comes during the probe waits for it");
    assert_eq!(
        desk.load_failed(2),
        "refuse t4: load failed (again in 20s), refuse t5: load failed (again in 20s)"
    );
    for (generation, pause) in [(3, 40), (4, 80), (5, 160), (6, 300), (7, 300)] {
        desk.later(300);
        desk.arrive("a");
        assert!(desk.load_failed(generation).ends_with(&format!("load failed (again in {pause}s)")));
    }
    desk.later(300);
    desk.arrive("a");
    assert!(desk.loaded(8).starts_with("grant"));
    assert_eq!(desk.snapshot().breakers, []);
    assert_eq!(desk.totals(), Totals { loads: 1, failed_loads: 7, ..Totals::default() });
    desk.ended(8);
    desk.arrive("a");
    assert!(desk.load_failed(9).ends_with("(again in 10s)"), "success has reset it");
}

#[test]
fn a_file_that_cannot_be_loaded_counts_as_a_failed_load_and_evicts_nobody() {
    let mut desk = Desk::new();
    let unloadable = || Event::Unloadable { model: ModelName::new("b"), reason: "no such file".into() };
    desk.arrive("a");
    desk.loaded(1);
    desk.release(1, 1);
    assert_eq!(desk.tell(unloadable()), "");
    assert_eq!(desk.arrive("b"), "refuse t2: breaker open (again in 10s)");
    assert_eq!(desk.tell(unloadable()), "", "nothing was tried, so nothing failed");
    assert_eq!(desk.totals().failed_loads, 1);
    desk.later(10);
    desk.arrive("a");
    desk.arrive("b");
    assert_eq!(desk.tell(unloadable()), "refuse t4: load failed (again in 20s)");
    assert_eq!(desk.release(1, 3), "", "a has not been asked to go for it");
}

#[test]
fn a_file_that_has_gone_does_not_matter_to_an_engine_that_is_there() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    let unloadable = Event::Unloadable { model: ModelName::new("a"), reason: "no such file".into() };
    assert_eq!(desk.tell(unloadable), "");
    assert_eq!((desk.snapshot().breakers, desk.totals().failed_loads), (vec![], 0));
}

#[test]
fn an_engine_that_ends_while_it_loads_has_failed() {
    let mut desk = Desk::new();
    desk.arrive("a");
    assert_eq!(desk.ended(1), "refuse t1: load failed (again in 10s)");
}

#[test]
fn a_load_that_dies_of_memory_is_tried_once_more_when_the_idle_have_gone() {
    let pinned = Profile { pinned: true, ..Profile::default() };
    let mut desk = Desk::with(Settings { max_resident: 8, ..settings() }, &[("p", pinned)]);
    for (generation, model) in [(1, "a"), (2, "b"), (3, "p")] {
        desk.arrive(model);
        desk.loaded(generation);
        if model != "b" {
            desk.release(generation, generation);
        }
    }
    assert_eq!(desk.arrive("c"), "launch c as g4");
    assert_eq!(desk.out_of_memory(4), "stop g1", "not b, which is in use, nor p, which is pinned");
    assert_eq!(desk.arrive("c"), "", "the room is not there yet");
    assert_eq!(desk.ended(1), "launch c as g5");
    assert_eq!(
        desk.out_of_memory(5),
        "refuse t4: insufficient memory (again in 10s), refuse t5: insufficient memory (again in 10s)"
    );
    assert_eq!(desk.arrive("c"), "refuse t6: breaker open (again in 10s)");
    desk.later(10);
    desk.arrive("c");
    assert_eq!(desk.out_of_memory(6), "launch c as g7", "whoever waits then has both tries");
    assert_eq!(desk.loaded(7), "grant t7 on g7");
}

#[test]
fn a_second_try_may_succeed_and_then_nothing_has_failed() {
    let mut desk = Desk::new();
    desk.arrive("a");
    assert_eq!(desk.out_of_memory(1), "launch a as g2");
    assert_eq!(desk.loaded(2), "grant t1 on g2");
    assert_eq!(desk.snapshot().breakers, []);
}

#[test]
fn when_its_waiters_have_left_there_is_no_second_try() {
    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[]);
    desk.arrive("b");
    desk.loaded(1);
    desk.release(1, 1);
    desk.arrive("a");
    assert_eq!(desk.out_of_memory(2), "stop g1");
    desk.leave(2);
    assert_eq!(desk.ended(1), "");
    assert_eq!(desk.arrive("a"), "launch a as g3");
    assert_eq!(desk.out_of_memory(3), "launch a as g4", "this is the first try of t3");
}

#[test]
fn a_preload_that_dies_of_memory_is_not_tried_again() {
    let mut desk = Desk::with(settings(), &[("a", Profile { preload: true, ..Profile::default() })]);
    assert_eq!(desk.tell(Event::Preload), "launch a as g1");
    assert_eq!(desk.out_of_memory(1), "");
    assert_eq!(desk.snapshot().breakers[0].failures, 1);
}

#[test]
fn nobody_takes_the_room_that_is_made_for_a_second_try() {
    let mut desk = Desk::with(Settings { max_resident: 8, ..settings() }, &[("d", Profile::default())]);
    for (generation, model) in [(1, "a"), (2, "b")] {
        desk.arrive(model);
        desk.loaded(generation);
    }
    desk.release(1, 1);
    desk.arrive("c");
    assert_eq!(desk.out_of_memory(3), "stop g1");
    assert_eq!(desk.arrive("d"), "", "there is a place, but the memory is c's");
    assert_eq!(desk.release(2, 2), "stop g2", "it has become idle before the second try");
    assert_eq!(desk.ended(1), "");
    assert_eq!(desk.ended(2), "launch c as g4");
    assert_eq!(desk.loaded(4), "grant t3 on g4, launch d as g5");
}
