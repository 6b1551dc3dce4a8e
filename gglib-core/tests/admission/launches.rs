//! One launch per model, leases, generations.

use gglib_core::admission::{EngineState, Profile};

use crate::desk::{Desk, settings};

#[test]
fn one_launch_however_many_wait_and_the_first_waiter_is_leased_as_it_becomes_ready() {
    let mut desk = Desk::new();
    assert_eq!(desk.arrive("a"), "launch a as g1");
    assert_eq!(desk.arrive("a"), "");
    assert_eq!(desk.arrive("a"), "");
    assert_eq!(desk.loaded(1), "grant t1 on g1");
    assert_eq!(desk.release(1, 1), "grant t2 on g1");
}

#[test]
fn an_engine_takes_as_many_as_it_was_started_for() {
    let mut desk = Desk::with(settings(), &[("a", Profile { parallel: 2, ..Profile::default() })]);
    desk.arrive("a");
    desk.arrive("a");
    desk.arrive("a");
    assert_eq!(desk.loaded(1), "grant t1 on g1, grant t2 on g1");
    assert_eq!(desk.release(1, 2), "grant t3 on g1");
}

#[test]
fn a_model_that_nobody_configured_is_refused() {
    assert_eq!(Desk::new().arrive("x"), "refuse t1: not configured");
}

#[test]
fn an_engine_that_ends_by_itself_frees_the_slot_and_its_leases_are_stale() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("a");
    assert_eq!(desk.ended(1), "launch a as g2");
    assert_eq!(desk.totals().crashes, 1);
    assert_eq!(desk.loaded(2), "grant t2 on g2");
    desk.arrive("a");
    assert_eq!(desk.release(1, 1), "", "the old lease must not free the new engine");
    assert_eq!(desk.snapshot().engines[0].in_flight, 1);
}

#[test]
fn an_engine_that_crashes_again_and_again_keeps_nobody_out() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("b");
    assert_eq!(desk.ended(1), "launch b as g2", "a has had its turn");
}

#[test]
fn a_condemned_engine_is_stopped_under_its_leases_but_an_older_generation_never_is() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    assert_eq!(desk.condemn(1), "kill g1");
    assert_eq!(desk.condemn(1), "");
    desk.arrive("a");
    assert_eq!(desk.ended(1), "launch a as g2");
    desk.loaded(2);
    assert_eq!(desk.condemn(1), "");
    assert_eq!(desk.state("a"), Some(EngineState::Resident));
}

#[test]
fn who_waits_for_an_engine_that_is_being_stopped_has_a_new_one_after_it() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.condemn(1);
    assert_eq!(desk.arrive("a"), "", "never two engines of one model");
    assert_eq!(desk.loaded(1), "", "it is too late");
    assert_eq!(desk.ended(1), "launch a as g2");
}

#[test]
fn draining_refuses_who_waits_and_who_comes_and_lets_leases_finish() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("a");
    assert_eq!(desk.tell(gglib_core::admission::Event::Drain), "refuse t2: draining");
    assert_eq!(desk.arrive("a"), "refuse t3: draining");
    assert_eq!(desk.state("a"), Some(EngineState::Draining));
    assert_eq!(desk.release(1, 1), "stop g1");
    assert!(!desk.machine.is_idle());
    assert_eq!(desk.ended(1), "");
    assert!(desk.machine.is_idle());
}

#[test]
fn draining_gives_up_a_load_and_stops_an_idle_engine_even_a_pinned_one() {
    let mut desk = Desk::new();
    desk.arrive("a");
    assert_eq!(desk.tell(gglib_core::admission::Event::Drain), "refuse t1: draining, kill g1");
    let mut desk = Desk::with(settings(), &[("a", Profile { pinned: true, ..Profile::default() })]);
    desk.arrive("a");
    desk.loaded(1);
    desk.release(1, 1);
    assert_eq!(desk.tell(gglib_core::admission::Event::Drain), "stop g1");
}
