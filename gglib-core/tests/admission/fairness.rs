//! The bound on everybody's wait, in virtual time: crowds of clients that come back as soon as they are served, on more
//! models than there are slots.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use gglib_core::admission::{
    Admission, Command, Event, Generation, LeaseId, LoadFailure, Profile, Refusal, SWITCH_COST_FACTOR,
    Settings, TURN_LIMIT, Ticket,
};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;
use proptest::prelude::*;

use crate::desk::{gib, seconds, settings, sized};
use crate::seeded::for_all;

/// Longest times of the world, in milliseconds.
const LOAD: u64 = 9_000;
const STOP: u64 = 1_000;
const ANSWER: u64 = 15_000;
/// The longest patience of a client that leaves.
const PATIENCE: u64 = 60_000;
/// The room for all models, in GiB.
const BUDGET: u64 = 6;
/// How long is watched.
const HORIZON: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Crowd {
    clients: u64,
    parallel: u32,
    /// Each client pauses for up to so many milliseconds between its requests.
    pause: u64,
    /// What its model takes, in GiB of [`BUDGET`].
    size: u64,
    /// So many of a hundred loads fail.
    failures: u64,
    /// So many of a hundred requests are given up while they wait.
    leavers: u64,
}

fn crowd() -> impl Strategy<Value = Crowd> {
    let share = || prop_oneof![Just(0), 1..50u64];
    let parts = (1..7u64, 1..4u32, prop_oneof![Just(0), 1..30_000u64], 0..=BUDGET, share(), share());
    parts.prop_map(|(clients, parallel, pause, size, failures, leavers)| Crowd {
        clients,
        parallel,
        pause,
        size,
        failures,
        leavers,
    })
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrive(usize),
    Leave(Ticket),
    Loaded(Generation),
    LoadFailed(Generation),
    Ended(Generation),
    Released(LeaseId),
}

struct World {
    machine: Admission,
    names: Vec<ModelName>,
    crowds: Vec<Crowd>,
    agenda: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    random: u64,
    /// The last number given to a ticket or an entry of the agenda.
    numbers: u64,
    /// Whose each waiting or leased ticket is.
    of: BTreeMap<Ticket, usize>,
    /// Per model: since when its oldest waiter has been the oldest; its waiters.
    waiting: Vec<(u64, BTreeSet<Ticket>)>,
    longest: u64,
}

impl World {
    fn new(crowds: Vec<Crowd>, slots: usize, seed: u64) -> Self {
        let names: Vec<_> = (0..crowds.len()).map(|number| ModelName::new(format!("m{number}"))).collect();
        let profile = |crowd: &Crowd| Profile { parallel: crowd.parallel, ..sized(crowd.size) };
        let profiles = names.iter().cloned().zip(crowds.iter().map(profile)).collect();
        let long = seconds(1 << 30);
        let settings =
            Settings { max_resident: slots, budget: gib(BUDGET), stall: long, max_wait: long, ..settings() };
        let mut world = Self {
            machine: Admission::new(settings, profiles),
            waiting: vec![<_>::default(); names.len()],
            names,
            agenda: BinaryHeap::new(),
            random: seed,
            numbers: 0,
            of: BTreeMap::new(),
            longest: 0,
            crowds,
        };
        for model in 0..world.crowds.len() {
            for _ in 0..world.crowds[model].clients {
                let at = world.up_to(world.crowds[model].pause);
                world.add(at, Happening::Arrive(model));
            }
        }
        world
    }

    /// A number up to `limit`, by a linear congruence.
    fn up_to(&mut self, limit: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % (limit + 1)
    }

    fn add(&mut self, at: u64, happening: Happening) {
        self.numbers += 1;
        self.agenda.push(Reverse((at, self.numbers, happening)));
    }

    fn run(&mut self) {
        while let Some(Reverse((at, _, happening))) = self.agenda.pop() {
            if at > HORIZON {
                return;
            }
            let event = match happening {
                Happening::Arrive(model) => {
                    self.numbers += 1;
                    let ticket = Ticket(self.numbers);
                    self.of.insert(ticket, model);
                    let (since, waiters) = &mut self.waiting[model];
                    if waiters.is_empty() {
                        *since = at;
                    }
                    waiters.insert(ticket);
                    if self.up_to(99) < self.crowds[model].leavers {
                        let patience = self.up_to(PATIENCE);
                        self.add(at + patience, Happening::Leave(ticket));
                    }
                    Event::Arrive { ticket, model: self.names[model].clone() }
                }
                Happening::Leave(ticket) => {
                    let model = self.of.get(&ticket).copied();
                    let Some(model) = model.filter(|model| self.waiting[*model].1.contains(&ticket)) else {
                        continue;
                    };
                    self.of.remove(&ticket);
                    self.waits_no_more(ticket, model, at);
                    self.comes_back(model, at);
                    Event::Leave { ticket }
                }
                Happening::LoadFailed(generation) => {
                    let failure = LoadFailure { reason: "broken".into(), out_of_memory: false };
                    Event::LoadFailed { generation, failure }
                }
                Happening::Loaded(generation) => Event::Loaded { generation, footprint: None },
                Happening::Ended(generation) => Event::Ended { generation },
                Happening::Released(lease) => {
                    let model = self.of.remove(&lease.ticket).expect("it was granted");
                    self.comes_back(model, at);
                    Event::Release { lease }
                }
            };
            self.tell(event, at);
            let waits = self.waiting.iter().filter(|(_, waiters)| !waiters.is_empty());
            self.longest = waits.map(|(since, _)| at - since).max().unwrap_or(0).max(self.longest);
        }
    }

    fn tell(&mut self, event: Event, at: u64) {
        let mut out = Vec::new();
        self.machine.handle(event, Moment::from_nanos(at * 1_000_000), &mut out);
        for command in out {
            match command {
                Command::Launch { generation, model } => {
                    let model = self.names.iter().position(|name| *name == model).expect("it is one of them");
                    let fails = self.up_to(99) < self.crowds[model].failures;
                    let ends = if fails { Happening::LoadFailed } else { Happening::Loaded };
                    let load = self.up_to(LOAD);
                    self.add(at + load, ends(generation));
                }
                Command::Stop { generation, .. } => {
                    let stop = self.up_to(STOP);
                    self.add(at + stop, Happening::Ended(generation));
                }
                Command::Grant { lease } => {
                    self.waits_no_more(lease.ticket, self.of[&lease.ticket], at);
                    let answer = self.up_to(ANSWER);
                    self.add(at + answer, Happening::Released(lease));
                }
                Command::Refuse { ticket, refusal, retry_after } => {
                    let of_a_load =
                        matches!(refusal, Refusal::LoadFailed { .. } | Refusal::BreakerOpen { .. });
                    assert!(of_a_load, "{ticket:?}: {refusal}");
                    let model = self.of.remove(&ticket).expect("it waits");
                    self.waits_no_more(ticket, model, at);
                    let pause = retry_after.expect("it ends").as_millis();
                    let pause = u64::try_from(pause).expect("it is minutes at most");
                    self.comes_back(model, at + pause);
                }
            }
        }
    }

    /// The oldest waiter is another one from now on, if it was this one.
    fn waits_no_more(&mut self, ticket: Ticket, model: usize, at: u64) {
        let (since, waiters) = &mut self.waiting[model];
        let was_oldest = waiters.first() == Some(&ticket);
        waiters.remove(&ticket);
        if was_oldest {
            *since = at;
        }
    }

    fn comes_back(&mut self, model: usize, at: u64) {
        let pause = self.up_to(self.crowds[model].pause);
        self.add(at + pause, Happening::Arrive(model));
    }
}

/// The bound of the module's documentation: number of waiting models × (`TURN_LIMIT` × quantum + switch cost +
/// longest running generation).
#[test]
fn the_oldest_waiter_of_every_model_is_served_within_the_bound() {
    let worlds = (prop::collection::vec(crowd(), 2..5), 1..4usize, any::<u64>());
    for_all(1_000, worlds, |(crowds, slots, seed)| {
        let models = u32::try_from(crowds.len()).unwrap();
        let mut world = World::new(crowds, slots, seed);
        world.run();
        let switch = Duration::from_millis(STOP + LOAD);
        let quantum = settings().quantum.max(switch * SWITCH_COST_FACTOR);
        let bound = models * (TURN_LIMIT * quantum + switch + Duration::from_millis(ANSWER));
        let longest = Duration::from_millis(world.longest);
        prop_assert!(longest <= bound, "{longest:?} > {bound:?}");
        Ok(())
    });
}
