//! The world around the machine, which checks every command against the rules as it is issued.

use std::collections::{BTreeMap, BTreeSet};

use gglib_core::admission::{Admission, Event, Generation, LeaseId, LoadFailure, Profile, Settings, Ticket};
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

use super::{Change, Step, machine};
use crate::desk::{gib, seconds};

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
    /// What is known of each model's size: the latest estimate, and the latest measurement, which wins.
    known: BTreeMap<ModelName, (Option<Memory>, Option<Memory>)>,
    /// Until when each model must not be launched, and how long the next pause is.
    pauses: BTreeMap<ModelName, (Moment, u64)>,
    /// How many engines of each model in a row have died before they had answered anything.
    short_lives: BTreeMap<ModelName, u32>,
    /// Models whose last load has died of memory, for the first time.
    short: BTreeSet<ModelName>,
    /// Engines that may be stopped whatever they are: condemned, unloaded, outdated, or at the end.
    may_go: BTreeSet<Generation>,
    outgrown: BTreeSet<Generation>,
    /// Models that this event wants loaded although nobody waits.
    unasked: BTreeSet<ModelName>,
    draining: bool,
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
            known: profiles.iter().map(|(name, profile)| (name.clone(), (profile.footprint, None))).collect(),
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
            may_go: BTreeSet::new(),
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
                if let Some(generation) = self.one(Process::Ready, which) {
                    self.dies(generation);
                    self.may_go.insert(generation);
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
            Step::Wait(by) => {
                self.now = self.now.saturating_add(seconds(by));
                self.tell(Event::Tick);
            }
            Step::Estimate(which, size) => {
                let model = self.names[which % self.names.len()].clone();
                if let Some((estimate, _)) = self.known.get_mut(&model) {
                    *estimate = Some(gib(size));
                }
                self.tell(Event::Estimated { model, footprint: gib(size) });
            }
            Step::Spoil(which) => self.spoil(which),
            Step::Preload => {
                let wanted = self.profiles.iter().filter(|(_, profile)| profile.preload);
                self.unasked = wanted.map(|(name, _)| name.clone()).collect();
                self.tell(Event::Preload);
            }
            Step::Unload(which) => {
                let model = self.names[which % self.names.len()].clone();
                let of_it = self.engines.iter().filter(|(_, engine)| engine.model == model);
                self.may_go.extend(of_it.map(|(generation, _)| *generation));
                self.tell(Event::Unload { model });
            }
            Step::Configure(which, change) => self.configure(which, change),
            Step::Drain => {
                self.draining = true;
                self.tell(Event::Drain);
                assert!(self.waiting.is_empty(), "draining leaves nobody waiting");
            }
        }
    }

    fn load(&mut self, which: usize, footprint: Option<Memory>) {
        let Some(generation) = self.one(Process::Loading, which) else { return };
        let outdated = self.may_go.contains(&generation);
        let engine = self.engines.get_mut(&generation).expect("it has been found");
        engine.process = Process::Ready;
        engine.measured = footprint;
        engine.charge = footprint.unwrap_or(engine.charge);
        if !outdated {
            if self.short_lives.get(&engine.model).is_none_or(|count| *count < 3) {
                self.pauses.remove(&engine.model);
            }
            if let Some((_, measured)) = self.known.get_mut(&engine.model) {
                *measured = footprint.or(*measured);
            }
        }
        self.tell(Event::Loaded { generation, footprint });
    }

    fn fail_load(&mut self, which: usize, out_of_memory: bool) {
        let Some(generation) = self.one(Process::Loading, which) else { return };
        let engine = self.engines.remove(&generation).expect("it has been found");
        self.is_gone(generation);
        let tried_again = out_of_memory && !engine.second_try && self.is_awaited(&engine.model);
        if self.may_go.contains(&generation) {
        } else if tried_again {
            self.short.insert(engine.model);
        } else {
            self.pause(engine.model);
        }
        let failure = LoadFailure { reason: "broken".into(), out_of_memory };
        self.tell(Event::LoadFailed { generation, failure });
    }

    /// The model is not launched for a while, and for twice as long the next time.
    fn pause(&mut self, model: ModelName) {
        let (_, pause) = self.pauses.get(&model).copied().unwrap_or((self.now, 10));
        let until = self.now.saturating_add(seconds(pause));
        self.pauses.insert(model, (until, (2 * pause).min(300)));
    }

    /// The model's file cannot be loaded: that ends every wait for it, unless there is no need of the file, or no try.
    fn spoil(&mut self, which: usize) {
        let model = self.names[which % self.names.len()].clone();
        let stays = |(generation, engine): (&Generation, &Engine)| {
            engine.model == model && engine.process != Process::Stopping && !self.may_go.contains(generation)
        };
        let is_needless = !self.draining && self.engines.iter().any(stays);
        let is_tried = self.pauses.get(&model).is_none_or(|(until, _)| *until <= self.now);
        let fails = self.profiles.contains_key(&model) && !is_needless && is_tried;
        let failed = self.machine.snapshot(self.now).totals.failed_loads;
        if fails {
            self.pause(model.clone());
        }
        self.tell(Event::Unloadable { model: model.clone(), reason: "spoilt".into() });
        assert!(!fails || !self.is_awaited(&model), "somebody still waits for what cannot be loaded");
        assert_eq!(self.machine.snapshot(self.now).totals.failed_loads, failed + u64::from(fails));
    }

    /// An engine dies that was ready.
    fn dies(&mut self, generation: Generation) {
        let Engine { model, has_answered, .. } = &self.engines[&generation];
        if self.is_outdated(generation) || *has_answered {
            return;
        }
        let model = model.clone();
        let count = self.short_lives.entry(model.clone()).or_default();
        *count += 1;
        if *count >= 3 {
            self.pause(model);
        }
    }

    /// It is not of what the model is configured with now, or at the end.
    fn is_outdated(&self, generation: Generation) -> bool {
        self.draining || self.may_go.contains(&generation)
    }

    /// An engine gives a whole answer, which ends a row of engines that have not.
    fn answer(&mut self, which: usize) {
        let Some(generation) = self.one(Process::Ready, which) else { return };
        let engine = self.engines.get_mut(&generation).expect("it has been found");
        engine.has_answered = true;
        let model = engine.model.clone();
        if !self.is_outdated(generation) && self.short_lives.remove(&model).is_some_and(|count| count >= 3) {
            self.pauses.remove(&model);
        }
        self.tell(Event::Answered { generation });
    }

    fn end(&mut self, process: Process, which: usize) {
        let Some(generation) = self.one(process, which) else { return };
        if process == Process::Ready {
            self.dies(generation);
        }
        let engine = self.engines.remove(&generation).expect("it has been found");
        self.is_gone(generation);
        if self.outgrown.contains(&generation) && engine.profile.pinned {
            self.unasked.insert(engine.model);
        }
        self.tell(Event::Ended { generation });
    }

    /// A lease of an engine that is gone is given back some time, and changes nothing then.
    fn is_gone(&mut self, generation: Generation) {
        self.leases.retain(|lease| lease.generation != generation);
        self.ended.push(generation);
    }

    /// One thing is different from now on.
    fn configure(&mut self, which: usize, change: Change) {
        let changed = self.names[which % self.names.len()].clone();
        let (mut settings, mut profiles) = (self.settings, self.profiles.clone());
        match change {
            Change::Revision => {
                if let Some(profile) = profiles.get_mut(&changed) {
                    profile.revision += 1;
                }
            }
            Change::Presence => {
                if profiles.remove(&changed).is_none() {
                    profiles.insert(changed.clone(), self.all.1[&changed].clone());
                }
            }
            Change::Pin => {
                if let Some(profile) = profiles.get_mut(&changed) {
                    profile.pinned = !profile.pinned;
                }
            }
            Change::Bounds(less) => {
                let Settings { budget, max_resident, .. } = self.all.0;
                settings.budget = budget.saturating_sub(gib(less));
                settings.max_resident = max_resident.saturating_sub(usize::from(less == 3)).max(1);
            }
        }
        // What an engine takes is never in a configuration.
        for profile in profiles.values_mut() {
            profile.footprint = None;
        }
        self.take_over(settings, profiles);
    }

    fn take_over(&mut self, settings: Settings, profiles: BTreeMap<ModelName, Profile>) {
        for name in &self.names {
            let (before, after) = (self.profiles.get(name), profiles.get(name));
            if before.map(|profile| profile.revision) == after.map(|profile| profile.revision) {
                continue;
            }
            self.pauses.remove(name);
            self.short_lives.remove(name);
            self.short.remove(name);
            self.known.remove(name);
            self.known.extend(after.map(|_| (name.clone(), (None, None))));
            if before.is_none() && after.is_some_and(|profile| profile.preload) {
                self.unasked.insert(name.clone());
            }
            let of_it = self.engines.iter().filter(|(_, engine)| engine.model == *name);
            self.may_go.extend(of_it.map(|(generation, _)| *generation));
        }
        for engine in self.engines.values_mut() {
            let same = |profile: &&Profile| profile.revision == engine.profile.revision;
            if let Some(profile) = profiles.get(&engine.model).filter(same) {
                engine.profile = Profile { parallel: engine.profile.parallel, ..profile.clone() };
                let known = size(&self.known, &engine.model);
                engine.charge = engine.measured.or(known).unwrap_or(engine.charge);
            }
        }
        self.settings = settings;
        self.profiles.clone_from(&profiles);
        self.tell(Event::Configure { settings, profiles });
    }

    /// Events of generations that are over change nothing.
    fn stale(&mut self, which: usize) {
        let Some(generation) = choose(self.ended.iter(), which) else { return };
        let before = self.machine.snapshot(self.now);
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
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        assert_eq!(out, [], "a stale event caused commands");
        assert_eq!(self.machine.snapshot(self.now), before);
    }

    fn tell(&mut self, event: Event) {
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        for command in out {
            self.check(command);
        }
        self.unasked.clear();
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
fn size(known: &BTreeMap<ModelName, (Option<Memory>, Option<Memory>)>, model: &ModelName) -> Option<Memory> {
    known.get(model).and_then(|(estimate, measured)| measured.or(*estimate))
}
