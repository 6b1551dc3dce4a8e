//! The world around the machine, which checks every command against the rules as it is issued.

use std::collections::{BTreeMap, BTreeSet};

use gglib_core::admission::{Admission, Event, Generation, LeaseId, LoadFailure, Profile, Settings, Ticket};
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

use super::{Step, machine};
use crate::desk::{gib, seconds};

mod changes;
mod loads;
mod rules;

pub(super) struct World {
    machine: Admission,
    settings: Settings,
    /// As it began.
    all: (Settings, BTreeMap<ModelName, Profile>),
    names: Vec<ModelName>,
    profiles: BTreeMap<ModelName, Profile>,
    now: Moment,
    tickets: u64,
    waiting: BTreeMap<Ticket, (ModelName, Moment)>,
    leases: BTreeSet<LeaseId>,
    engines: BTreeMap<Generation, Engine>,
    ended: Vec<Generation>,
    /// What is known of each model's size.
    known: BTreeMap<ModelName, Known>,
    /// Until when each model must not be launched, and how long the next pause is.
    pauses: BTreeMap<ModelName, (Moment, u64)>,
    /// How many engines of each model in a row have died before they had answered anything.
    short_lives: BTreeMap<ModelName, u32>,
    /// Models whose last load has died of memory, for the first time.
    short: BTreeSet<ModelName>,
    /// The model whose second load has died of memory in this event.
    failed_twice: Option<ModelName>,
    /// Engines that no configuration knows any more.
    outdated: BTreeSet<Generation>,
    condemned: BTreeSet<Generation>,
    /// Loads that were given up.
    cancelled: BTreeSet<Generation>,
    outgrown: BTreeSet<Generation>,
    /// Models that this event wants loaded although nobody waits.
    unasked: BTreeSet<ModelName>,
    draining: bool,
}

/// The latest numbers, of which a later one here wins.
#[derive(Clone, Copy, Default)]
struct Known {
    estimate: Option<Memory>,
    remembered: Option<Memory>,
    measured: Option<Memory>,
}

impl Known {
    fn of(profile: &Profile) -> Self {
        Self { estimate: profile.footprint, ..Self::default() }
    }

    fn measured(self) -> Option<Memory> {
        self.measured.or(self.remembered)
    }
}

struct Engine {
    model: ModelName,
    profile: Profile,
    process: Process,
    has_answered: bool,
    charge: Memory,
    measured: Option<Memory>,
    second_try: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    Loading,
    Ready,
    Stopping,
}

impl World {
    pub(super) fn new(number: usize) -> Self {
        let (settings, profiles) = machine(number);
        let profiles: BTreeMap<_, _> =
            profiles.into_iter().map(|(name, profile)| (ModelName::new(name), profile)).collect();
        let mut world = Self {
            machine: Admission::new(settings, profiles.clone()),
            settings,
            all: (settings, profiles.clone()),
            names: profiles.keys().cloned().collect(),
            known: profiles.iter().map(|(name, profile)| (name.clone(), Known::of(profile))).collect(),
            profiles,
            now: Moment::ORIGIN,
            tickets: 0,
            waiting: BTreeMap::new(),
            leases: BTreeSet::new(),
            engines: BTreeMap::new(),
            ended: Vec::new(),
            pauses: BTreeMap::new(),
            short_lives: BTreeMap::new(),
            short: BTreeSet::new(),
            outdated: BTreeSet::new(),
            condemned: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            failed_twice: None,
            outgrown: BTreeSet::new(),
            unasked: BTreeSet::new(),
            draining: false,
        };
        world.step(Step::Preload);
        world
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Arrive(which) => {
                self.tickets += 1;
                let ticket = Ticket(self.tickets);
                let model = self.names[which % self.names.len()].clone();
                if !self.is_awaited(&model) {
                    self.short.remove(&model);
                }
                self.waiting.insert(ticket, (model.clone(), self.now));
                self.tell(Event::Arrive { ticket, model });
            }
            Step::Leave(which) => {
                if let Some(ticket) = choose(self.waiting.keys(), which) {
                    self.waiting.remove(&ticket);
                    self.tell(Event::Leave { ticket });
                }
            }
            Step::Release(which) => {
                if let Some(lease) = choose(self.leases.iter(), which) {
                    self.leases.remove(&lease);
                    self.tell(Event::Release { lease });
                }
            }
            Step::Load(which, footprint) => self.load(which, footprint.map(gib)),
            Step::FailLoad(which, memory) => self.fail_load(which, memory == super::Memory::Short),
            Step::End(which) => self.end(Process::Stopping, which),
            Step::Crash(which) => self.end(Process::Ready, which),
            Step::Condemn(which) => {
                let loading = which.is_multiple_of(4).then_some(Process::Loading);
                if let Some(generation) = self.one(loading.unwrap_or(Process::Ready), which / 4) {
                    if loading.is_none() {
                        self.dies(generation);
                    }
                    self.condemned.insert(generation);
                    self.tell(Event::Condemn { generation });
                    assert_eq!(self.engines[&generation].process, Process::Stopping);
                }
            }
            Step::Outgrow(which) => {
                if let Some(generation) = self.one(Process::Ready, which) {
                    self.outgrown.insert(generation);
                    let is_used = self.leases.iter().any(|lease| lease.generation == generation);
                    self.tell(Event::Outgrown { generation });
                    assert_eq!(self.engines[&generation].process == Process::Stopping, !is_used);
                }
            }
            Step::Answer(which) => self.answer(which),
            Step::Stale(which) => self.stale(which),
            Step::Late(which) => self.late(which),
            Step::Foreign(which) => self.foreign(which),
            Step::Wait(by) => {
                self.now = self.now.saturating_add(seconds(by));
                self.tell(Event::Tick);
            }
            Step::Estimate(which, size) => self.estimate(which, gib(size), None),
            Step::Recall(which, size) => {
                let percent = if size.is_multiple_of(3) { 120 } else { 105 };
                let ram = self.settings.budget.ram.saturating_mul(percent) / 100;
                self.estimate(which, gib(size), Some(Memory { ram, vram: 0 }));
            }
            Step::Spoil(which) => self.spoil(which),
            Step::Preload => {
                let wanted = self.profiles.iter().filter(|(_, profile)| profile.preload);
                self.unasked = wanted.map(|(name, _)| name.clone()).collect();
                self.tell(Event::Preload);
            }
            Step::Configure(which, change) => self.configure(which, change),
            Step::Drain => {
                self.draining = true;
                self.tell(Event::Drain);
                assert!(self.waiting.is_empty(), "draining leaves nobody waiting");
            }
        }
    }

    fn estimate(&mut self, which: usize, footprint: Memory, remembered: Option<Memory>) {
        let model = self.names[which % self.names.len()].clone();
        let is_there = self.is_staying(&model);
        if let Some(known) = self.known.get_mut(&model) {
            let measured = known.measured.filter(|_| is_there);
            *known = Known { estimate: Some(footprint), remembered, measured };
        }
        self.tell(Event::Estimated { model, footprint, measured: remembered });
    }

    /// Events of generations that are over change nothing.
    fn stale(&mut self, which: usize) {
        let Some(generation) = choose(self.ended.iter(), which) else { return };
        let failure = LoadFailure { reason: "late".into(), out_of_memory: which.is_multiple_of(2) };
        let event = match which % 7 {
            0 => Event::Loaded { generation, footprint: Some(gib(1)) },
            1 => Event::LoadFailed { generation, failure },
            2 => Event::Ended { generation },
            3 => Event::Condemn { generation },
            4 => Event::Answered { generation },
            5 => Event::Outgrown { generation },
            _ => Event::Release { lease: LeaseId { generation, ticket: Ticket(self.tickets) } },
        };
        self.check_ignored(&event);
    }

    /// What is told of an engine that is being stopped comes too late.
    fn late(&mut self, which: usize) {
        let Some(generation) = self.one(Process::Stopping, which / 4) else { return };
        self.check_ignored(&match which % 4 {
            0 => Event::Loaded { generation, footprint: Some(gib(1)) },
            1 => Event::Condemn { generation },
            2 => Event::Answered { generation },
            _ => Event::Outgrown { generation },
        });
    }

    /// A lease that the engine has not given, or no longer, changes nothing.
    fn foreign(&mut self, which: usize) {
        let Some(generation) = choose(self.engines.keys(), which) else { return };
        let lease = LeaseId { generation, ticket: Ticket(which as u64 % (self.tickets + 1)) };
        if !self.leases.contains(&lease) {
            self.check_ignored(&Event::Release { lease });
        }
    }

    fn check_ignored(&mut self, event: &Event) {
        let before = self.machine.snapshot(self.now);
        let mut out = Vec::new();
        self.machine.handle(event.clone(), self.now, &mut out);
        assert_eq!(out, [], "{event:?} caused commands");
        assert_eq!(self.machine.snapshot(self.now), before, "{event:?}");
    }

    fn tell(&mut self, event: Event) {
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        for command in out {
            self.check(command);
        }
        self.unasked.clear();
        self.failed_twice = None;
        let mut more = Vec::new();
        self.machine.handle(Event::Tick, self.now, &mut more);
        assert_eq!(more, [], "the machine was not at rest");
        let oldest = self.waiting.values().map(|(_, since)| *since).min();
        let ends = oldest.map(|since| since.saturating_add(self.settings.max_wait));
        assert!(ends.is_none_or(|end| end > self.now), "somebody waits past its hard bound");
        let due = self.machine.next_deadline();
        assert!(due.is_none_or(|due| due > self.now), "what is due has not been done");
        assert!(
            ends.is_none_or(|end| due.is_some_and(|due| due <= end)),
            "nobody looks after the oldest waiter"
        );
        self.check_the_idle();
        for (ticket, (model, _)) in &self.waiting {
            assert!(self.profiles.contains_key(model), "{ticket:?} waits for what is not configured");
            assert!(self.machine.outlook(*ticket, self.now).is_some(), "{ticket:?} was lost");
        }
    }

    /// Lets everything finish: with leases given back and launches answered, nobody may be left.
    pub(super) fn settle(&mut self) {
        for _ in 0..200 {
            if self.waiting.is_empty() {
                return;
            }
            self.load(0, None);
            self.end(Process::Stopping, 0);
            while let Some(lease) = self.leases.pop_first() {
                self.tell(Event::Release { lease });
            }
        }
        panic!("waiters are left: {:?}", self.waiting);
    }

    fn is_awaited(&self, model: &ModelName) -> bool {
        self.waiting.values().any(|(wanted, _)| wanted == model)
    }

    fn one(&self, process: Process, which: usize) -> Option<Generation> {
        let those = self.engines.iter().filter(|(_, engine)| engine.process == process);
        choose(those.map(|(generation, _)| generation), which)
    }
}

fn choose<'a, T: Copy + 'a>(from: impl Iterator<Item = &'a T> + Clone, which: usize) -> Option<T> {
    let count = from.clone().count();
    (count > 0).then(|| from.copied().nth(which % count).expect("there are so many"))
}

/// What is known of the model's size.
fn size(known: &BTreeMap<ModelName, Known>, model: &ModelName) -> Option<Memory> {
    known.get(model).and_then(|known| known.measured().or(known.estimate))
}
