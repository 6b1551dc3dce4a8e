//! The bound on everybody's wait, in virtual time: crowds of clients that come back as soon as they are served, on more
//! models than there are slots.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use gglib_core::admission::{
    Admission, Command, Event, Generation, LeaseId, Profile, SWITCH_COST_FACTOR, Settings, TURN_LIMIT, Ticket,
};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;
use proptest::prelude::*;

use crate::desk::{seconds, settings};
use crate::seeded::for_all;

/// Longest times of the world, in milliseconds.
const LOAD: u64 = 9_000;
const STOP: u64 = 1_000;
const ANSWER: u64 = 15_000;
/// How long is watched.
const HORIZON: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Crowd {
    clients: u64,
    parallel: u32,
    /// Each client pauses for up to so many milliseconds between its requests.
    pause: u64,
}

fn crowd() -> impl Strategy<Value = Crowd> {
    let parts = (1..7u64, 1..4u32, prop_oneof![Just(0), 1..30_000u64]);
    parts.prop_map(|(clients, parallel, pause)| Crowd { clients, parallel, pause })
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrive(usize),
    Loaded(Generation),
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
        let profile = |crowd: &Crowd| Profile { parallel: crowd.parallel, ..Profile::default() };
        let profiles = names.iter().cloned().zip(crowds.iter().map(profile)).collect();
        let long = seconds(1 << 30);
        let settings = Settings { max_resident: slots, stall: long, max_wait: long, ..settings() };
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
                    Event::Arrive { ticket, model: self.names[model].clone() }
                }
                Happening::Loaded(generation) => Event::Loaded { generation, footprint: None },
                Happening::Ended(generation) => Event::Ended { generation },
                Happening::Released(lease) => {
                    let model = self.of.remove(&lease.ticket).expect("it was granted");
                    let pause = self.up_to(self.crowds[model].pause);
                    self.add(at + pause, Happening::Arrive(model));
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
                Command::Launch { generation, .. } => {
                    let load = self.up_to(LOAD);
                    self.add(at + load, Happening::Loaded(generation));
                }
                Command::Stop { generation, .. } => {
                    let stop = self.up_to(STOP);
                    self.add(at + stop, Happening::Ended(generation));
                }
                Command::Grant { lease } => {
                    let (since, waiters) = &mut self.waiting[self.of[&lease.ticket]];
                    waiters.remove(&lease.ticket);
                    *since = at;
                    let answer = self.up_to(ANSWER);
                    self.add(at + answer, Happening::Released(lease));
                }
                Command::Refuse { ticket, refusal, .. } => panic!("{ticket:?}: {refusal}"),
            }
        }
    }
}

/// The bound of the module's documentation: number of waiting models × (`TURN_LIMIT` × quantum + switch cost +
/// longest running generation).
#[test]
fn the_oldest_waiter_of_every_model_is_served_within_the_bound() {
    let worlds = (prop::collection::vec(crowd(), 2..5), 1..3usize, any::<u64>());
    for_all(500, worlds, |(crowds, slots, seed)| {
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
