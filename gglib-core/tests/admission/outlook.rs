//! What waiting requests are told.

use std::collections::BTreeMap;

use gglib_core::admission::{Event, ModelSnapshot, Outlook, Profile, QueueSnapshot, Settings, WaitPhase};
use gglib_core::model::ModelName;

use crate::desk::{Desk, gib, seconds, settings, sized};

fn outlook(position: usize, estimate: Option<u64>, phase: WaitPhase) -> Outlook {
    Outlook { position, estimate: estimate.map(seconds), phase, percent: None }
}

/// The same while a load is so far.
fn loading(position: usize, estimate: u64, percent: u8) -> Outlook {
    Outlook { percent: Some(percent), ..outlook(position, Some(estimate), WaitPhase::Loading) }
}

/// A desk at which a load of `a` takes 30 s and a request 8 s; its engine is being loaded for t2.
fn measured(parallel: u32) -> Desk {
    let mut desk = Desk::with(settings(), &[("a", Profile { parallel, ..Profile::default() })]);
    desk.arrive("a");
    desk.later(30);
    desk.loaded(1);
    desk.later(8);
    desk.release(1, 1);
    desk.ended(1);
    desk.arrive("a");
    desk
}

/// A desk at which both have been loaded, one after the other: a in 30 s, b in 10 s, and each has served in 4 s. The second
/// one is there, idle.
fn swapped(models: [&str; 2]) -> Desk {
    let mut desk = Desk::new();
    for (generation, model) in (1..).zip(models) {
        desk.arrive(model);
        desk.ended(generation - 1);
        desk.later(if model == "a" { 30 } else { 10 });
        desk.loaded(generation);
        desk.later(4);
        desk.release(generation, generation);
    }
    desk
}

#[test]
fn nothing_is_estimated_that_has_not_been_measured() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.arrive("a");
    assert_eq!(desk.outlook(1), Some(outlook(1, None, WaitPhase::Loading)));
    assert_eq!(desk.outlook(2), Some(outlook(2, None, WaitPhase::Loading)));
    desk.loaded(1);
    assert_eq!(desk.outlook(1), None, "it waits no more");
    assert_eq!(desk.outlook(2), Some(outlook(1, None, WaitPhase::Place)));
    assert_eq!(desk.outlook_for("x"), None);
}

#[test]
fn a_load_in_progress_and_those_ahead_make_the_estimate() {
    let mut desk = measured(2);
    for _ in 0..3 {
        desk.arrive("a");
    }
    desk.later(10);
    let at = |desk: &Desk, ticket| desk.outlook(ticket).unwrap().estimate.unwrap().as_secs();
    assert_eq!(desk.outlook(2), Some(loading(1, 20, 33)));
    assert_eq!(desk.outlook(5), Some(loading(4, 28, 33)), "the second round of two");
    assert_eq!(desk.outlook_for("a"), Some(loading(5, 36, 33)));
    desk.later(20);
    desk.loaded(2);
    desk.later(3);
    assert_eq!(desk.outlook(4), Some(outlook(1, Some(5), WaitPhase::Place)));
    assert_eq!(at(&desk, 5), 5);
    assert_eq!(desk.outlook_for("a").unwrap().estimate, Some(seconds(13)));
}

#[test]
fn the_snapshot_shows_the_first_waiters_and_what_was_measured() {
    let mut desk = measured(2);
    desk.later(10);
    (0..6).for_each(|_| drop(desk.arrive("a")));
    let snapshot = desk.snapshot();
    let queue = &snapshot.queue[0];
    assert_eq!((queue.waiting, queue.first.len()), (7, QueueSnapshot::SHOWN));
    for (waiter, ticket) in queue.first.iter().zip(2..) {
        assert_eq!(Some(waiter.outlook), desk.outlook(ticket));
    }
    assert_eq!([queue.first[0].waited, queue.first[1].waited], [seconds(10), seconds(0)]);
    let model = ModelName::new("a");
    // A request takes 8 s, and two are served at once.
    let known = ModelSnapshot { model, loads: 1, loading: seconds(30), interval: Some(seconds(4)) };
    assert_eq!(snapshot.models[0], known);
    desk.later(20);
    desk.loaded(2);
    let known = &desk.snapshot().models[0];
    assert_eq!((known.loads, known.loading), (2, seconds(60)));
}

#[test]
fn a_free_place_is_no_wait() {
    let mut desk = measured(2);
    desk.loaded(2);
    assert_eq!(desk.outlook_for("a"), Some(outlook(1, Some(0), WaitPhase::Place)));
}

#[test]
fn who_needs_a_turn_waits_for_the_resident_and_for_its_own_load() {
    let mut desk = swapped(["a", "b"]);
    desk.arrive("b");
    desk.later(1);
    assert_eq!(desk.outlook_for("a"), Some(outlook(1, Some(33), WaitPhase::Turn)), "3 s of b, 30 s of load");
    desk.arrive("a");
    assert_eq!(desk.outlook(4), Some(outlook(1, Some(33), WaitPhase::Turn)));
    assert_eq!(desk.outlook_for("a"), Some(outlook(2, Some(37), WaitPhase::Turn)));
}

/// Who waited before the rival came is served within the turn; who comes now is not.
#[test]
fn each_waiter_is_told_of_its_own_part_in_a_turn() {
    let mut desk = swapped(["b", "a"]);
    desk.later(3600);
    desk.arrive("a");
    desk.arrive("a");
    desk.arrive("b");
    desk.later(1);
    assert_eq!(desk.outlook(4), Some(outlook(1, Some(3), WaitPhase::Place)), "3 s of t3 are left");
    // t3's rest of 3 s, b's load of 10 s and its answer of 4 s, a's load of 30 s, and t4's 4 s.
    assert_eq!(desk.outlook_for("a"), Some(outlook(2, Some(51), WaitPhase::Turn)));
}

/// A full queue that a swap will interrupt is not told a time as if there were none.
#[test]
fn a_place_behind_the_end_of_the_turn_costs_a_swap_more() {
    let mut desk = measured(1);
    desk.loaded(2);
    desk.arrive("b");
    for _ in 0..4 {
        desk.arrive("a");
    }
    // An answer takes 8 s, and a's turn 20 s. What comes on top for the others is b's turn of 90 s (four loads of a) and
    // a's load of 22.5 s.
    let waits = [4, 5, 6, 7].map(|ticket| desk.outlook(ticket).unwrap().estimate.unwrap().as_millis());
    assert_eq!(waits, [8_000, 16_000, 24_000 + 112_500, 32_000 + 112_500]);
}

/// Queue depth × measured service + measured load. Who is told of the first free place comes back to a full queue.
#[test]
fn a_full_queue_tells_when_all_who_wait_will_have_been_served() {
    let mut desk = measured(1);
    desk.loaded(2);
    for _ in 0..8 {
        desk.arrive("a");
    }
    desk.later(3);
    assert_eq!(desk.arrive("a"), "refuse t11: queue full (again in 69s)", "nine answers, 3 s over");

    let mut loading = measured(2);
    for _ in 0..7 {
        loading.arrive("a");
    }
    loading.later(10);
    assert_eq!(loading.arrive("a"), "refuse t10: queue full (again in 52s)", "20 s of load, four rounds");
}

#[test]
fn ten_thousand_waiters_are_told_their_place_at_once() {
    let mut desk = Desk::with(Settings { queue: 10_000, ..settings() }, &[]);
    for _ in 0..10_000 {
        desk.arrive("a");
    }
    for ticket in 1..=10_000 {
        let position = usize::try_from(ticket).unwrap();
        assert_eq!(desk.outlook(ticket).map(|outlook| outlook.position), Some(position));
    }
    assert_eq!(desk.arrive("a"), "refuse t10001: queue full");
}

/// A desk at which a request at `a` takes 8 s, of which 3 are over, `b` has been loaded in 10 s, and `c` is idle.
fn beside(settings: Settings, profiles: &[(&str, Profile)]) -> Desk {
    let mut desk = Desk::with(settings, profiles);
    desk.arrive("b");
    desk.later(10);
    desk.loaded(1);
    desk.ended(1);
    for (generation, model) in [(2, "a"), (3, "c")] {
        desk.arrive(model);
        desk.loaded(generation);
        desk.later(8);
        desk.release(generation, generation);
    }
    assert_eq!(desk.arrive("a"), "grant t4 on g2");
    desk.later(3);
    desk
}

#[test]
fn of_several_engines_those_in_the_way_make_the_estimate() {
    let wait = Some(outlook(1, Some(5 + 10), WaitPhase::Turn));
    let grouped = || Profile { group: Some("large".to_owned()), ..Profile::default() };
    let bounds = Settings { max_resident: 3, ..settings() };
    let desk = beside(bounds, &[("a", grouped()), ("b", grouped())]);
    assert_eq!(desk.outlook_for("b"), wait, "the group's other one is busy, whoever is idle");

    let bounds = Settings { max_resident: 3, budget: gib(8), ..settings() };
    let sizes = [("a", sized(4)), ("b", sized(6)), ("c", sized(2))];
    assert_eq!(beside(bounds, &sizes).outlook_for("b"), wait, "c is idle, but too small");

    let desk = beside(Settings { max_resident: 2, ..settings() }, &[]);
    assert_eq!(desk.outlook_for("b"), Some(outlook(1, Some(10), WaitPhase::Turn)), "c goes at once");
}

#[test]
fn a_model_is_launched_anew_when_its_last_engine_has_gone() {
    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[]);
    for generation in 1..3 {
        desk.arrive("a");
        desk.later(10);
        desk.loaded(generation);
        desk.condemn(generation);
        if generation == 1 {
            desk.later(6);
            desk.ended(1);
        }
    }
    desk.later(2);
    assert_eq!(desk.outlook_for("a"), Some(outlook(1, Some(4 + 10), WaitPhase::Turn)));
}

#[test]
fn a_lease_of_an_engine_that_hangs_says_nothing_about_the_time_of_an_answer() {
    let mut desk = measured(1);
    desk.loaded(2);
    desk.later(300);
    desk.condemn(2);
    desk.release(2, 2);
    assert_eq!(desk.snapshot().models[0].interval, Some(seconds(8)));
}

#[test]
fn an_engine_of_an_older_configuration_says_nothing_about_the_new_one() {
    let mut desk = Desk::new();
    desk.arrive("b");
    desk.later(10);
    desk.loaded(1);
    desk.ended(1);
    desk.arrive("a");
    desk.loaded(2);
    let changed = ("a", Profile { revision: 1, ..Profile::default() });
    let profiles: BTreeMap<_, _> =
        [changed, ("b", Profile::default())].map(|(name, profile)| (ModelName::new(name), profile)).into();
    desk.tell(Event::Configure {
        settings: settings(),
        profiles,
        renamed: [].into(),
        unloadable: BTreeMap::new(),
    });
    desk.later(50);
    assert_eq!(desk.release(2, 2), "stop g2");
    assert_eq!(desk.snapshot().models[0].interval, None);
    desk.later(7);
    desk.ended(2);
    desk.arrive("a");
    desk.loaded(3);
    desk.release(3, 3);
    let stop_and_load = desk.outlook_for("b").unwrap().estimate;
    assert_eq!(stop_and_load, Some(seconds(10)), "how long the new one takes to stop is not known");
}

#[test]
fn who_would_wait_too_long_by_the_measured_time_of_an_answer_is_refused_at_once() {
    let mut desk = Desk::with(Settings { max_wait: seconds(20), ..settings() }, &[]);
    desk.arrive("a");
    desk.later(15);
    desk.loaded(1);
    desk.later(8);
    desk.release(1, 1);
    for _ in 0..4 {
        assert!(!desk.arrive("a").starts_with("refuse"), "at most two answers go before");
    }
    assert_eq!(desk.arrive("a"), "refuse t6: queue too long (again in 32s)", "four answers of 8 s");
    desk.leave(5);
    assert_eq!(desk.arrive("a"), "");
}

/// Nobody would ever load it.
#[test]
fn a_load_that_takes_longer_than_anybody_may_wait_is_begun_all_the_same() {
    let mut desk = Desk::with(Settings { max_wait: seconds(20), ..settings() }, &[]);
    desk.arrive("a");
    desk.later(30);
    assert_eq!(desk.loaded(1), "refuse t1: waited too long");
    desk.arrive("a");
    desk.later(8);
    desk.release(1, 2);
    desk.ended(1);
    assert_eq!(desk.arrive("a"), "launch a as g2");
}
