//! A new configuration takes over by what is different.

use std::collections::BTreeMap;

use gglib_core::admission::{EngineState, Event, Profile, Settings};
use gglib_core::model::ModelName;

use crate::desk::{Desk, gib, seconds, settings, sized};

fn configure(settings: Settings, profiles: &[(&str, Profile)]) -> Event {
    let profiles: BTreeMap<_, _> =
        profiles.iter().map(|(name, profile)| (ModelName::new(*name), profile.clone())).collect();
    Event::Configure { settings, profiles, renamed: [].into(), unloadable: BTreeMap::new() }
}

/// The same with a file of this model that cannot be loaded.
fn configure_spoilt(settings: Settings, profiles: &[(&str, Profile)], model: &str) -> Event {
    match configure(settings, profiles) {
        Event::Configure { settings, profiles, .. } => {
            let unloadable = [(ModelName::new(model), "spoilt".into())].into();
            Event::Configure { settings, profiles, renamed: [].into(), unloadable }
        }
        other => other,
    }
}

fn revision(revision: u64) -> Profile {
    Profile { revision, ..Profile::default() }
}

#[test]
fn a_model_that_stays_as_it_was_keeps_its_engine_its_waiters_and_what_was_measured() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.later(7);
    desk.loaded(1);
    desk.arrive("a");
    let with_ttl = Profile { ttl: Some(seconds(60)), ..Profile::default() };
    assert_eq!(desk.tell(configure(settings(), &[("a", with_ttl)])), "");
    assert_eq!(desk.release(1, 1), "grant t2 on g1");
    assert_eq!(desk.release(1, 2), "");
    assert_eq!(desk.after(60), "stop g1", "the new ttl counts");
    desk.ended(1);
    desk.arrive("a");
    assert_eq!(desk.outlook(3).unwrap().estimate, Some(seconds(7)), "the load is remembered");
}

#[test]
fn a_model_that_was_changed_is_launched_anew_when_its_leases_are_back() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("a");
    assert_eq!(desk.tell(configure(settings(), &[("a", revision(1))])), "");
    assert_eq!(desk.state("a"), Some(EngineState::Draining));
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.ended(1), "launch a as g2");
    assert_eq!(desk.loaded(2), "grant t2 on g2");

    // A load of it is of no use.
    desk.ended(2);
    desk.arrive("a");
    assert_eq!(desk.tell(configure(settings(), &[("a", revision(2))])), "kill g3");
    assert_eq!(desk.load_failed(3), "launch a as g4");
}

#[test]
fn a_model_that_was_removed_is_refused_and_its_engine_ends() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("a");
    assert_eq!(desk.tell(configure(settings(), &[("b", revision(0))])), "refuse t2: not configured");
    assert_eq!(desk.arrive("a"), "refuse t3: not configured");
    assert_eq!(desk.arrive("b"), "");
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g2");
}

#[test]
fn a_change_closes_the_breaker_and_anything_else_does_not() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.load_failed(1);
    desk.tell(configure(settings(), &[("a", Profile { pinned: true, ..revision(0) })]));
    assert_eq!(desk.arrive("a"), "refuse t2: breaker open (again in 10s)");
    desk.tell(configure(settings(), &[("a", revision(1))]));
    assert_eq!(desk.arrive("a"), "launch a as g2");
}

#[test]
fn fewer_slots_make_the_idle_go() {
    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[]);
    for (generation, model) in [(1, "a"), (2, "b")] {
        desk.arrive(model);
        desk.loaded(generation);
    }
    desk.release(1, 1);
    let all = ["a", "b", "c"].map(|name| (name, revision(0)));
    assert_eq!(desk.tell(configure(settings(), &all)), "stop g1");
}

#[test]
fn a_smaller_budget_counts_at_once() {
    let mut desk = Desk::with(Settings { budget: gib(8), ..settings() }, &[("a", sized(5))]);
    desk.tell(configure(Settings { budget: gib(4), ..settings() }, &[("a", sized(5))]));
    assert_eq!(desk.arrive("a"), "refuse t1: insufficient memory");
}

#[test]
fn an_engine_of_a_model_that_was_removed_and_is_back_still_takes_what_it_takes() {
    let bounds = Settings { max_resident: 2, budget: gib(6), ..settings() };
    let mut desk = Desk::with(bounds, &[("a", sized(4)), ("b", sized(4))]);
    desk.arrive("a");
    desk.loaded(1);
    let b = ("b", sized(4));
    desk.tell(configure(bounds, std::slice::from_ref(&b)));
    desk.tell(configure(bounds, &[("a", revision(0)), b]));
    assert_eq!(desk.arrive("b"), "", "nothing is known of a, but its engine is there");
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g2");
}

#[test]
fn a_model_that_is_added_may_be_preloaded() {
    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[]);
    let preload = Profile { preload: true, ..Profile::default() };
    assert_eq!(desk.tell(configure(settings(), &[("d", preload)])), "launch d as g1");
}

#[test]
fn a_model_that_is_added_is_preloaded_only_into_room_that_is_there() {
    let bounds = Settings { max_resident: 2, budget: gib(6), ..settings() };
    let mut desk = Desk::with(bounds, &[("a", sized(4))]);
    desk.arrive("a");
    desk.loaded(1);
    let preload = |ram| Profile { preload: true, ..sized(ram) };
    let a = ("a", sized(4));
    assert_eq!(desk.tell(configure(bounds, &[a.clone(), ("d", preload(3))])), "");
    assert_eq!(desk.tell(configure(bounds, &[a, ("e", preload(2))])), "launch e as g2");
}

#[test]
fn nobody_is_stopped_for_a_changed_model_whose_file_cannot_be_loaded() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("b");
    let others = ["a", "c"].map(|name| (name, revision(0)));
    let all = [others[0].clone(), others[1].clone(), ("b", revision(1))];
    assert_eq!(
        desk.tell(configure_spoilt(settings(), &all, "b")),
        "refuse t2: load failed (again in 10s)",
        "who waits wants the new file"
    );
    assert_eq!(desk.release(1, 1), "", "a stays");
    assert_eq!(desk.arrive("b"), "refuse t3: breaker open (again in 10s)");
    // Nobody had waited: nothing was tried.
    desk.tell(configure_spoilt(
        settings(),
        &[others[0].clone(), ("b", revision(2)), ("c", revision(1))],
        "c",
    ));
    assert_eq!(desk.snapshot().breakers, []);
    let preload = Profile { preload: true, ..revision(3) };
    let settings = Settings { max_resident: 2, ..settings() };
    assert_eq!(desk.tell(configure_spoilt(settings, &[others[0].clone(), ("d", preload)], "d")), "");
}

#[test]
fn who_has_come_into_one_group_is_not_there_together_for_longer_than_it_takes() {
    let settings = Settings { max_resident: 3, ..settings() };
    let grouped = || Profile { group: Some("large".to_owned()), ..Profile::default() };
    let mut desk = Desk::with(settings, &[]);
    for (generation, model) in [(1, "a"), (2, "b"), (3, "c")] {
        desk.arrive(model);
        desk.loaded(generation);
    }
    desk.release(3, 3);
    desk.later(60);
    let all = [("a", grouped()), ("b", grouped()), ("c", revision(0))];
    assert_eq!(desk.tell(configure(settings, &all)), "", "both are in use");
    assert_eq!(desk.state("a"), Some(EngineState::Draining));
    assert_eq!(desk.release(2, 2), "stop g2", "b is done first");
    assert_eq!(desk.state("a"), Some(EngineState::Resident));
    assert_eq!(desk.state("c"), Some(EngineState::Resident), "c has no part in it");
}

#[test]
fn who_waits_for_a_name_that_is_an_alias_now_may_ask_again_at_once() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("a");
    desk.arrive("b");
    let profiles = [(ModelName::new("d"), revision(0))].into();
    let renamed = [ModelName::new("a")].into();
    let event = Event::Configure { settings: settings(), profiles, renamed, unloadable: BTreeMap::new() };
    assert_eq!(desk.tell(event), "refuse t2: renamed (again in 1s), refuse t3: not configured");
}
