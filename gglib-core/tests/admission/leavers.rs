//! Requests whose client has gone, and loads that nobody wants any more.

use gglib_core::admission::EngineState;

use crate::desk::Desk;

/// A desk at which a's load takes 60 s, as it did before, and has just begun for t2.
fn known_load() -> Desk {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.later(60);
    desk.loaded(1);
    desk.ended(1);
    assert_eq!(desk.arrive("a"), "launch a as g2");
    desk
}

#[test]
fn a_leaver_frees_its_place() {
    let mut desk = Desk::new();
    for _ in 0..8 {
        desk.arrive("a");
    }
    assert_eq!(desk.arrive("a"), "refuse t9: queue full");
    assert_eq!(desk.arrive("b"), "", "the limit is per model");
    desk.leave(3);
    assert_eq!(desk.arrive("a"), "");
    desk.loaded(1);
    desk.release(1, 1);
    assert_eq!(desk.release(1, 2), "grant t4 on g1");
}

#[test]
fn who_is_unknown_cannot_leave() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    assert_eq!(desk.leave(1), "", "it has its lease");
    assert_eq!(desk.leave(7), "");
    assert_eq!(desk.snapshot().engines[0].in_flight, 1);
}

#[test]
fn a_load_that_nobody_wants_is_finished_if_nobody_else_waits() {
    let mut desk = Desk::new();
    desk.arrive("a");
    assert_eq!(desk.leave(1), "");
    assert_eq!(desk.loaded(1), "");
    assert_eq!(desk.state("a"), Some(EngineState::Resident));
    assert_eq!(desk.arrive("a"), "grant t2 on g1");
}

#[test]
fn a_load_of_unknown_length_that_nobody_wants_is_cancelled_for_a_rival() {
    let mut desk = Desk::new();
    desk.arrive("a");
    assert_eq!(desk.leave(1), "");
    assert_eq!(desk.arrive("b"), "kill g1");
    assert_eq!(desk.load_failed(1), "launch b as g2", "the cancelled load is nobody's failure");
    let totals = desk.totals();
    assert_eq!((totals.cancelled_loads, totals.failed_loads, totals.swaps), (1, 0, 0));
    assert_eq!(desk.snapshot().breakers, []);
}

#[test]
fn a_load_that_is_no_more_than_half_done_is_cancelled_for_a_rival_and_the_slot_is_reusable() {
    let mut desk = known_load();
    desk.later(30);
    desk.leave(2);
    assert_eq!(desk.arrive("b"), "kill g2");
    assert_eq!(desk.arrive("a"), "", "who comes now waits for its turn");
    assert_eq!(desk.ended(2), "launch b as g3");
    desk.loaded(3);
    assert_eq!(desk.release(3, 3), "stop g3");
    assert_eq!(desk.ended(3), "launch a as g4");
}

#[test]
fn a_load_that_is_more_than_half_done_goes_on_and_whoever_comes_joins_it() {
    let mut desk = known_load();
    desk.later(31);
    desk.leave(2);
    assert_eq!(desk.arrive("b"), "");
    assert_eq!(desk.arrive("a"), "", "its client tries again");
    assert_eq!(desk.loaded(2), "grant t4 on g2");
    assert_eq!(desk.release(2, 4), "stop g2");

    let mut desk = known_load();
    desk.later(31);
    desk.leave(2);
    desk.arrive("b");
    assert_eq!(desk.loaded(2), "stop g2", "nobody has come for it");
    assert_eq!(desk.ended(2), "launch b as g3");
}

#[test]
fn fifty_leavers_leave_nothing_behind() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    for round in 0..50 {
        let ticket = 2 + round;
        desk.arrive(if round % 2 == 0 { "b" } else { "c" });
        desk.leave(ticket);
    }
    assert_eq!(desk.snapshot().queue, []);
    assert_eq!(desk.state("a"), Some(EngineState::Resident));
    assert_eq!(desk.machine.next_deadline(), None);
    assert_eq!(desk.arrive("a"), "");
    assert_eq!(desk.release(1, 1), "grant t52 on g1");
}
