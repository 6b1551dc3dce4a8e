//! The two bounds of waiting.

use gglib_core::admission::Settings;
use gglib_core::moment::Moment;

use crate::desk::{Desk, settings};

#[test]
fn the_stall_clock_is_held_by_a_load_and_reset_by_movement() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.arrive("a");
    assert_eq!(desk.after(300), "", "a load in progress holds the clock");
    assert_eq!(desk.loaded(1), "grant t1 on g1");
    assert_eq!(desk.after(179), "");
    assert_eq!(desk.after(1), "refuse t2: stalled");
    desk.arrive("a");
    desk.after(100);
    desk.release(1, 1);
    desk.arrive("a");
    assert_eq!(desk.after(179), "", "the grant to t3 moved the queue");
    assert!(desk.after(1).starts_with("refuse t4: stalled (again in "));
    assert_eq!(desk.totals().expired, 2);
}

#[test]
fn the_stall_clock_starts_over_when_a_load_is_cancelled() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.after(1);
    desk.arrive("b");
    desk.after(300);
    assert_eq!(desk.leave(1), "kill g1");
    assert_eq!(desk.after(179), "", "b's clock was held by a's load and runs from its end");
    assert_eq!(desk.after(1), "refuse t2: stalled");
}

#[test]
fn another_model_that_moves_does_not_hide_that_a_resident_stands_still() {
    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[]);
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("b");
    desk.loaded(2);
    desk.arrive("a");
    for ticket in 4..7 {
        desk.arrive("b");
        assert_eq!(desk.after(59), "");
        desk.release(2, if ticket == 4 { 2 } else { ticket - 1 });
    }
    assert_eq!(desk.after(3), "refuse t3: stalled");
}

#[test]
fn who_waits_for_a_slot_sees_the_movement_of_those_before_it() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.arrive("a");
    desk.arrive("b");
    desk.loaded(1);
    desk.after(50);
    desk.release(1, 1);
    assert_eq!(desk.after(179), "", "t2 was served meanwhile");
    assert!(desk.after(1).starts_with("refuse t3: stalled"));
}

#[test]
fn no_wait_outlives_its_hard_bound_even_under_a_load() {
    let mut desk = Desk::new();
    desk.arrive("a");
    assert_eq!(desk.machine.next_deadline(), Some(Moment::from_nanos(600_000_000_000)));
    assert_eq!(desk.after(600), "refuse t1: waited too long");
    assert_eq!(desk.machine.next_deadline(), None);
}

#[test]
fn only_those_expire_whose_time_is_over() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.later(200);
    desk.arrive("a");
    desk.arrive("b");
    assert_eq!(desk.after(400), "refuse t1: waited too long");
    assert_eq!(desk.after(199), "");
    assert_eq!(desk.after(1), "refuse t2: waited too long, refuse t3: waited too long");
}

#[test]
fn who_is_about_to_get_the_room_of_an_engine_does_not_see_its_stop_as_a_standstill() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("b");
    desk.after(175);
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.after(20), "", "slots are saved, and memory is waited for");
    assert_eq!(desk.ended(1), "launch b as g2");
}
