//! Several residents: what fits together, and who goes when it does not.

use gglib_core::admission::{EngineState, Event, Generation, Profile, Refusal, Settings, Ticket};
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;

use crate::desk::{Desk, gib, seconds, settings, sized};

fn several(max_resident: usize, budget: u64) -> Settings {
    Settings { max_resident, budget: gib(budget), ..settings() }
}

#[test]
fn what_fits_is_resident_together() {
    let mut desk = Desk::with(several(8, 8), &[("a", sized(5)), ("b", sized(3)), ("c", sized(1))]);
    assert_eq!(desk.arrive("a"), "launch a as g1");
    assert_eq!(desk.arrive("b"), "launch b as g2");
    assert_eq!(desk.arrive("c"), "", "one GiB too much");
    assert_eq!(desk.loaded(1), "grant t1 on g1");
    assert_eq!(desk.loaded(2), "grant t2 on g2");
    assert_eq!(desk.release(2, 2), "stop g2", "the idle one goes, and not the one in use");
    assert_eq!(desk.ended(2), "launch c as g3");
}

#[test]
fn no_more_engines_than_slots_also_if_nothing_is_known_of_their_memory() {
    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[]);
    desk.arrive("a");
    assert_eq!(desk.arrive("b"), "launch b as g2");
    assert_eq!(desk.arrive("c"), "");
}

#[test]
fn a_model_that_exceeds_the_budget_alone_is_refused_with_the_numbers() {
    let mut desk = Desk::with(several(8, 8), &[("a", sized(9))]);
    let mut out = Vec::new();
    let arrive = Event::Arrive { ticket: Ticket(1), model: ModelName::new("a") };
    desk.machine.handle(arrive, desk.now, &mut out);
    let refusal = Refusal::InsufficientMemory { needed: Some(gib(9)), budget: gib(8), reason: None };
    assert_eq!(
        out,
        [gglib_core::admission::Command::Refuse { ticket: Ticket(1), refusal, retry_after: None }]
    );
    assert_eq!(desk.arrive("b"), "launch b as g1");
}

#[test]
fn memory_of_gpus_counts_for_itself() {
    let on_gpu = Profile { footprint: Some(Memory { ram: 0, vram: 6 << 30 }), ..Profile::default() };
    let budget = Memory { ram: 8 << 30, vram: 8 << 30 };
    let settings = Settings { max_resident: 8, budget, ..settings() };
    let mut desk = Desk::with(settings, &[("a", on_gpu.clone()), ("b", on_gpu), ("c", sized(6))]);
    desk.arrive("a");
    assert_eq!(desk.arrive("b"), "");
    desk.leave(2);
    assert_eq!(desk.arrive("c"), "launch c as g2");
}

#[test]
fn an_engine_is_charged_with_its_memory_until_that_is_back() {
    let mut desk = Desk::with(several(8, 8), &[("a", sized(5)), ("b", sized(5))]);
    desk.arrive("a");
    desk.loaded(1);
    desk.release(1, 1);
    assert_eq!(desk.arrive("b"), "stop g1");
    assert_eq!(desk.arrive("b"), "");
    assert_eq!(desk.ended(1), "launch b as g2");
}

#[test]
fn what_was_measured_replaces_the_estimate() {
    let mut desk = Desk::with(several(8, 8), &[("a", sized(5)), ("b", sized(4))]);
    desk.arrive("a");
    desk.measured(1, gib(3));
    assert_eq!(desk.arrive("b"), "launch b as g2");
    let engine = &desk.snapshot().engines[0];
    assert_eq!((engine.estimated, engine.measured), (Some(gib(5)), Some(gib(3))));
    // And it is remembered: 3 GiB beside the 4 of b, and 1 of nobody.
    desk.release(1, 1);
    desk.ended(1);
    assert_eq!(desk.arrive("a"), "launch a as g3");
}

#[test]
fn what_was_measured_of_one_file_is_not_charged_for_another() {
    let estimated = |desk: &mut Desk, ram| {
        desk.tell(Event::Estimated { model: ModelName::new("a"), footprint: gib(ram), measured: None })
    };
    let mut desk = Desk::with(several(8, 8), &[("a", sized(5))]);
    desk.arrive("a");
    desk.measured(1, gib(9));
    // As long as its engine is there, the measurement is the truth.
    estimated(&mut desk, 4);
    desk.release(1, 1);
    desk.ended(1);
    assert_eq!(desk.arrive("a"), "refuse t2: insufficient memory");
    // Somebody has put a smaller file in its place.
    estimated(&mut desk, 4);
    assert_eq!(desk.arrive("a"), "launch a as g2");
    assert_eq!(desk.snapshot().engines[0].estimated, Some(gib(4)));
}

#[test]
fn when_engines_take_more_than_estimated_one_of_them_goes_when_it_can() {
    let mut desk = Desk::with(several(8, 8), &[("a", sized(4)), ("b", sized(4))]);
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("b");
    assert_eq!(desk.measured(2, gib(6)), "grant t2 on g2");
    assert_eq!(desk.release(1, 1), "stop g1");
    desk.ended(1);
    assert_eq!(desk.release(2, 2), "", "one that is alone is left alone");
}

#[test]
fn the_cheapest_set_goes_and_no_more_than_need_to() {
    let profiles = [("a", sized(1)), ("b", sized(1)), ("c", sized(4)), ("d", sized(4)), ("e", sized(1))];
    let mut desk = Desk::with(several(8, 6), &profiles);
    for (generation, model) in [(1, "a"), (2, "b"), (3, "c")] {
        desk.arrive(model);
        desk.later(10);
        desk.loaded(generation);
        desk.release(generation, generation);
    }
    // All three are idle, a for the longest time, and all cost 10 s.
    assert_eq!(desk.arrive("e"), "stop g1");
    assert_eq!(desk.ended(1), "launch e as g4");
    desk.loaded(4);
    desk.release(4, 4);
    // d does not fit by the small ones, although they come first.
    assert_eq!(desk.arrive("d"), "stop g3");
}

#[test]
fn of_idle_engines_the_one_that_loads_fastest_goes_first() {
    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[]);
    desk.arrive("a");
    desk.later(60);
    desk.loaded(1);
    desk.release(1, 1);
    desk.arrive("b");
    desk.later(5);
    desk.loaded(2);
    desk.release(2, 2);
    desk.later(60);
    // a has been idle for 65 s and b for 60 s, but b is back in 5 s and a in 60 s.
    assert_eq!(desk.arrive("c"), "stop g2");
}

#[test]
fn a_rival_is_not_overtaken_for_the_room_that_is_made_for_it() {
    let profiles = [("a", sized(3)), ("b", sized(6)), ("c", sized(2))];
    let mut desk = Desk::with(several(8, 7), &profiles);
    desk.arrive("a");
    desk.loaded(1);
    assert_eq!(desk.arrive("b"), "");
    assert_eq!(desk.arrive("c"), "", "2 GiB are free, but b needs them");
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g2");
    desk.loaded(2);
    assert_eq!(desk.release(2, 2), "stop g2");
    assert_eq!(desk.ended(2), "launch c as g3");
}

#[test]
fn who_fits_beside_the_room_that_is_made_is_launched_meanwhile() {
    let profiles = [("a", sized(6)), ("b", sized(6)), ("c", sized(1))];
    let mut desk = Desk::with(several(8, 7), &profiles);
    desk.arrive("a");
    desk.loaded(1);
    assert_eq!(desk.arrive("b"), "");
    assert_eq!(desk.arrive("c"), "launch c as g2");
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g3");
}

#[test]
fn two_rivals_make_two_residents_stand_aside() {
    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[("d", Profile::default())]);
    for (generation, model) in [(1, "a"), (2, "b")] {
        desk.arrive(model);
        desk.loaded(generation);
    }
    desk.later(60);
    desk.arrive("c");
    assert_eq!(
        (desk.state("a"), desk.state("b")),
        (Some(EngineState::Draining), Some(EngineState::Resident))
    );
    desk.arrive("d");
    assert_eq!(desk.state("b"), Some(EngineState::Draining));
    assert_eq!(desk.release(2, 2), "stop g2");
    assert_eq!(desk.ended(2), "launch c as g3", "the first that can go makes room for the first that waits");
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.ended(1), "launch d as g4");
}

#[test]
fn who_is_left_waiting_for_an_engine_that_makes_room_needs_room_in_turn() {
    let mut desk = Desk::with(several(2, 8), &[]);
    for (generation, model) in [(1, "a"), (2, "c")] {
        desk.arrive(model);
        desk.loaded(generation);
    }
    desk.later(30);
    desk.arrive("b");
    desk.arrive("a");
    assert_eq!(
        (desk.state("a"), desk.state("c")),
        (Some(EngineState::Draining), Some(EngineState::Resident))
    );
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.state("c"), Some(EngineState::Draining), "at once, and not with the next event");
}

#[test]
fn models_of_one_group_are_never_there_together() {
    let grouped = Profile { group: Some("large".to_owned()), ..Profile::default() };
    let settings = Settings { max_resident: 3, ..settings() };
    let mut desk = Desk::with(settings, &[("a", grouped.clone()), ("b", grouped)]);
    desk.arrive("a");
    desk.loaded(1);
    assert_eq!(desk.arrive("b"), "");
    assert_eq!(desk.arrive("c"), "launch c as g2");
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g3");
}

#[test]
fn a_pinned_model_stays_and_who_cannot_fit_beside_it_hears_so() {
    let pinned = Profile { pinned: true, ttl: Some(seconds(1)), ..Profile::default() };
    let mut desk = Desk::with(settings(), &[("a", pinned.clone())]);
    desk.arrive("a");
    assert_eq!(desk.arrive("b"), "refuse t2: pinned out");
    desk.loaded(1);
    desk.release(1, 1);
    assert_eq!(desk.after(3600), "", "its ttl does not count");
    assert_eq!(desk.machine.next_deadline(), None);
    assert_eq!(desk.arrive("b"), "refuse t3: pinned out");

    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[("a", pinned)]);
    desk.arrive("a");
    desk.loaded(1);
    desk.release(1, 1);
    desk.arrive("b");
    desk.later(60);
    desk.loaded(2);
    desk.release(2, 2);
    assert_eq!(desk.arrive("c"), "stop g2", "not a, which has been idle for longer");
}

#[test]
fn an_idle_engine_is_stopped_after_its_ttl_and_who_comes_then_is_not_lost() {
    let mut desk = Desk::with(settings(), &[("a", Profile { ttl: Some(seconds(60)), ..Profile::default() })]);
    desk.arrive("a");
    desk.loaded(1);
    assert_eq!(desk.after(100), "", "it is in use");
    desk.release(1, 1);
    let end = desk.now.saturating_add(seconds(60));
    assert_eq!(desk.machine.next_deadline(), Some(end));
    assert_eq!(desk.after(59), "");
    desk.later(1);
    assert_eq!(desk.arrive("a"), "grant t2 on g1", "in the instant of its end");
    desk.release(1, 2);
    assert_eq!(desk.after(60), "stop g1");
    assert_eq!(desk.arrive("a"), "", "an instant later");
    assert_eq!(desk.ended(1), "launch a as g2");
    assert_eq!(desk.loaded(2), "grant t3 on g2");
}

#[test]
fn preloading_fills_the_room_that_is_there_and_takes_it_from_nobody() {
    let preload = |ram| Profile { preload: true, ..sized(ram) };
    let profiles = [("a", preload(5)), ("b", preload(5)), ("c", preload(2))];
    let mut desk = Desk::with(several(8, 8), &profiles);
    assert_eq!(desk.tell(Event::Preload), "launch a as g1, launch c as g2");
    assert_eq!(desk.loaded(1), "");
    assert_eq!(desk.arrive("b"), "stop g1", "who waits goes before who does not");
    desk.ended(1);
    assert_eq!(desk.tell(Event::Tick), "");
}

#[test]
fn nothing_is_preloaded_while_somebody_waits_for_room() {
    let preload = Profile { preload: true, ..sized(1) };
    let mut desk = Desk::with(several(8, 8), &[("a", sized(6)), ("b", sized(6)), ("d", preload)]);
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("b");
    assert_eq!(desk.tell(Event::Preload), "", "it would fit beside either, but is not waited for");
}

#[test]
fn who_stands_aside_first_goes_on_to_even_if_another_has_to_in_the_same_instant() {
    let mut desk = Desk::with(several(3, 6), &[("a", sized(4)), ("b", sized(3)), ("c", sized(2))]);
    desk.arrive("b");
    desk.arrive("c");
    desk.loaded(2);
    desk.later(55);
    // Together they take a GiB too much.
    desk.measured(1, gib(5));
    assert_eq!(
        (desk.state("b"), desk.state("c")),
        (Some(EngineState::Resident), Some(EngineState::Draining))
    );
    assert_eq!(desk.arrive("c"), "");
    assert_eq!(desk.arrive("a"), "", "b has to go for a");
    assert_eq!(desk.tell(Event::Tick), "");
    assert_eq!(desk.state("c"), Some(EngineState::Draining));
}

#[test]
fn an_engine_that_has_outgrown_its_room_ends_when_nobody_uses_it_and_a_pinned_one_comes_back() {
    let pinned = Profile { pinned: true, ..Profile::default() };
    let mut desk = Desk::with(Settings { max_resident: 2, ..settings() }, &[("p", pinned)]);
    let outgrown =
        |desk: &mut Desk, generation| desk.tell(Event::Outgrown { generation: Generation(generation) });
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("a");
    assert_eq!(outgrown(&mut desk, 1), "", "it is in use");
    assert_eq!(desk.release(1, 1), "grant t2 on g1", "and goes on to be");
    assert_eq!(desk.release(1, 2), "stop g1");
    assert_eq!(desk.ended(1), "", "nobody wants it");
    desk.arrive("p");
    desk.loaded(2);
    desk.release(2, 3);
    assert_eq!(outgrown(&mut desk, 2), "stop g2");
    assert_eq!(desk.ended(2), "launch p as g3", "it was to stay");
    assert_eq!(desk.totals().recycles, 2);
    assert_eq!(desk.snapshot().breakers, []);
}

#[test]
fn nobody_is_given_the_room_of_a_pinned_engine_that_is_launched_anew() {
    let pinned = Profile { pinned: true, ..sized(3) };
    let mut desk = Desk::with(several(2, 8), &[("p", pinned), ("b", sized(6)), ("c", sized(5))]);
    desk.arrive("p");
    desk.loaded(1);
    desk.release(1, 1);
    assert_eq!(desk.arrive("c"), "launch c as g2");
    desk.loaded(2);
    assert_eq!(desk.tell(Event::Outgrown { generation: Generation(1) }), "stop g1");
    assert_eq!(desk.arrive("b"), "refuse t3: pinned out", "as a moment before");
    assert_eq!(desk.arrive("p"), "", "it will be back");
    assert_eq!(desk.arrive("a"), "", "a might take the slot, but waits for c");
    assert_eq!(desk.ended(1), "launch p as g3");
    assert_eq!(desk.loaded(3), "grant t4 on g3");
}

#[test]
fn an_idle_engine_that_is_enough_goes_although_a_busy_one_has_to_go_anyway() {
    let bounds = Settings { max_resident: 2, ..settings() };
    let mut desk = Desk::with(bounds, &[]);
    for (generation, model) in [(1, "a"), (2, "c")] {
        desk.arrive(model);
        desk.loaded(generation);
    }
    desk.release(2, 2);
    let changed = Profile { revision: 1, ..Profile::default() };
    let profiles = [("a", changed), ("b", Profile::default()), ("c", Profile::default())];
    let profiles = profiles.map(|(name, profile)| (ModelName::new(name), profile)).into();
    let configure =
        Event::Configure { settings: bounds, profiles, renamed: [].into(), unloadable: [].into() };
    assert_eq!(desk.tell(configure), "", "a's old engine serves t1");
    assert_eq!(desk.arrive("a"), "", "the new one takes the room of the old one");
    assert_eq!(desk.state("c"), Some(EngineState::Resident));
    desk.leave(3);
    assert_eq!(desk.arrive("b"), "stop g2");
    assert_eq!(desk.ended(2), "launch b as g3");
}

#[test]
fn an_idle_engine_that_is_enough_goes_although_two_of_a_group_have_to_part() {
    let bounds = Settings { max_resident: 3, ..settings() };
    let mut desk = Desk::with(bounds, &[("d", Profile::default())]);
    for (generation, model) in [(1, "a"), (2, "b"), (3, "c")] {
        desk.arrive(model);
        desk.loaded(generation);
    }
    desk.release(3, 3);
    let grouped = || Profile { group: Some("large".to_owned()), ..Profile::default() };
    let profiles = [("a", grouped()), ("b", grouped()), ("c", Profile::default()), ("d", Profile::default())];
    let profiles = profiles.map(|(name, profile)| (ModelName::new(name), profile)).into();
    assert_eq!(
        desk.tell(Event::Configure { settings: bounds, profiles, renamed: [].into(), unloadable: [].into() }),
        ""
    );
    assert_eq!(desk.arrive("d"), "stop g3", "a or b may take its time");
}

#[test]
fn who_gives_nothing_back_of_what_is_overdrawn_stays() {
    let on_gpu = Profile { footprint: Some(Memory { ram: 0, vram: 4 << 30 }), ..Profile::default() };
    let budget = Memory { ram: 8 << 30, vram: 8 << 30 };
    let settings = Settings { max_resident: 3, budget, ..settings() };
    let mut desk = Desk::with(settings, &[("a", sized(1)), ("b", on_gpu.clone()), ("c", on_gpu)]);
    desk.arrive("a");
    desk.loaded(1);
    desk.release(1, 1);
    desk.arrive("b");
    desk.loaded(2);
    desk.later(60);
    desk.arrive("c");
    assert_eq!(desk.measured(3, Memory { ram: 0, vram: 6 << 30 }), "grant t3 on g3", "a has no part in it");
    assert_eq!(
        (desk.state("b"), desk.state("c")),
        (Some(EngineState::Draining), Some(EngineState::Resident))
    );
}

#[test]
fn an_engine_that_has_outgrown_its_room_ends_under_steady_traffic_too() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("a");
    desk.later(60);
    assert_eq!(desk.tell(Event::Outgrown { generation: Generation(1) }), "");
    assert_eq!(desk.release(1, 1), "grant t2 on g1", "it has waited since before");
    assert_eq!(desk.arrive("a"), "");
    assert_eq!(desk.state("a"), Some(EngineState::Draining));
    assert_eq!(desk.release(1, 2), "stop g1");
    assert_eq!(desk.ended(1), "launch a as g2");
    assert_eq!(desk.loaded(2), "grant t3 on g2");
    assert_eq!(desk.totals().recycles, 1);
}

#[test]
fn an_engine_that_is_being_stopped_has_not_outgrown_its_room() {
    let mut desk = Desk::with(settings(), &[("a", Profile { pinned: true, ..Profile::default() })]);
    desk.arrive("a");
    desk.loaded(1);
    desk.release(1, 1);
    assert_eq!(desk.condemn(1), "kill g1");
    assert_eq!(desk.tell(Event::Outgrown { generation: Generation(1) }), "");
    assert_eq!(desk.ended(1), "", "nobody waits for it");
}

#[test]
fn a_model_that_was_measured_to_take_a_little_more_than_the_budget_has_it_for_itself() {
    let slightly_more = Memory { ram: (8 << 30) + (8 << 30) / 10, vram: 0 };
    let mut desk = Desk::with(several(8, 8), &[("a", sized(7)), ("b", sized(1))]);
    desk.arrive("a");
    desk.measured(1, slightly_more);
    desk.release(1, 1);
    desk.ended(1);
    assert_eq!(desk.arrive("b"), "launch b as g2");
    assert_eq!(desk.arrive("a"), "", "it has run before, but not beside b");
    desk.loaded(2);
    assert_eq!(desk.release(2, 2), "stop g2");
    assert_eq!(desk.ended(2), "launch a as g3");
    assert_eq!(desk.loaded(3), "grant t3 on g3");
    assert_eq!(desk.arrive("b"), "", "nobody has a place beside it");

    // Remembered from a run before, and how much is too much.
    let remembered = |ram| {
        let measured = Some(Memory { ram, vram: 0 });
        let mut desk = Desk::with(several(8, 8), &[]);
        desk.tell(Event::Estimated { model: ModelName::new("a"), footprint: gib(7), measured });
        desk.arrive("a")
    };
    assert_eq!(remembered(slightly_more.ram), "launch a as g1");
    assert_eq!(remembered(slightly_more.ram + 1), "refuse t1: insufficient memory");
}

#[test]
fn what_exceeds_the_budget_by_estimate_is_not_preloaded_either() {
    let mut desk = Desk::with(several(8, 8), &[("a", Profile { preload: true, ..sized(9) })]);
    assert_eq!(desk.tell(Event::Preload), "");
}
