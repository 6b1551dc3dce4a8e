//! The world around the machine, which checks every command against the rules as it is issued.

use std::collections::{BTreeMap, BTreeSet};

use gglib_core::admission::{
    Admission, Command, Event, Generation, LeaseId, LoadFailure, Profile, Refusal, Settings, Ticket, Urgency,
};
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

use super::{Step, machine};
use crate::desk::{gib, seconds};

pub(super) struct World {
    machine: Admission,
    settings: Settings,
    names: Vec<ModelName>,
    profiles: BTreeMap<ModelName, Profile>,
    now: Moment,
    tickets: u64,
    waiting: BTreeMap<Ticket, (ModelName, Moment)>,
    leases: BTreeSet<LeaseId>,
    engines: BTreeMap<Generation, Engine>,
    ended: Vec<Generation>,
    /// What is known of each model's size.
    known: BTreeMap<ModelName, Memory>,
    /// Until when each model must not be launched, and how long the next pause is.
    pauses: BTreeMap<ModelName, (Moment, u64)>,
    /// How many engines of each model in a row have died within ten minutes after they were ready.
    short_lives: BTreeMap<ModelName, u32>,
    /// Models whose last load has died of memory, for the first time.
    short: BTreeSet<ModelName>,
    /// Engines that may be stopped whatever they are: condemned, unloaded, outdated, or at the end.
    may_go: BTreeSet<Generation>,
    draining: bool,
}

struct Engine {
    model: ModelName,
    profile: Profile,
    process: Process,
    /// When it became ready, if it has.
    ready_at: Option<Moment>,
    charge: Memory,
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
            names: profiles.keys().cloned().collect(),
            known: estimates(&profiles),
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
            draining: false,
        };
        world.tell(Event::Preload);
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
            Step::Stale(which) => self.stale(which),
            Step::Wait(by) => {
                self.now = self.now.saturating_add(seconds(by));
                self.tell(Event::Tick);
            }
            Step::Unload(which) => {
                let model = self.names[which % self.names.len()].clone();
                let of_it = self.engines.iter().filter(|(_, engine)| engine.model == model);
                self.may_go.extend(of_it.map(|(generation, _)| *generation));
                self.tell(Event::Unload { model });
            }
            Step::Configure(which) => self.configure(which),
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
        engine.ready_at = Some(self.now);
        engine.charge = footprint.unwrap_or(engine.charge);
        if !outdated {
            if self.short_lives.get(&engine.model).is_none_or(|count| *count < 3) {
                self.pauses.remove(&engine.model);
            }
            self.known.extend(footprint.map(|footprint| (engine.model.clone(), footprint)));
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

    fn pause(&mut self, model: ModelName) {
        let (_, pause) = self.pauses.get(&model).copied().unwrap_or((self.now, 10));
        let until = self.now.saturating_add(seconds(pause));
        self.pauses.insert(model, (until, (2 * pause).min(300)));
    }

    /// An engine dies that was ready.
    fn dies(&mut self, generation: Generation) {
        self.rows_end();
        let Engine { model, ready_at, .. } = &self.engines[&generation];
        let lived = self.now.saturating_since(ready_at.expect("it was ready"));
        if self.may_go.contains(&generation) || self.draining || lived >= seconds(600) {
            return;
        }
        let model = model.clone();
        let count = self.short_lives.entry(model.clone()).or_default();
        *count += 1;
        if *count >= 3 {
            self.pause(model);
        }
    }

    /// A row of short lives is over when an engine has lasted.
    fn rows_end(&mut self) {
        let lasting = |(generation, engine): &(&Generation, &Engine)| {
            engine.process == Process::Ready && !self.may_go.contains(generation)
        };
        for (_, engine) in self.engines.iter().filter(lasting) {
            let lived = engine.ready_at.map(|at| self.now.saturating_since(at));
            if lived >= Some(seconds(600))
                && self.short_lives.remove(&engine.model).is_some_and(|count| count >= 3)
            {
                self.pauses.remove(&engine.model);
            }
        }
    }

    fn end(&mut self, process: Process, which: usize) {
        let Some(generation) = self.one(process, which) else { return };
        if process == Process::Ready {
            self.dies(generation);
        }
        self.engines.remove(&generation);
        self.is_gone(generation);
        self.tell(Event::Ended { generation });
    }

    /// A lease of an engine that is gone is given back some time, and changes nothing then.
    fn is_gone(&mut self, generation: Generation) {
        self.leases.retain(|lease| lease.generation != generation);
        self.ended.push(generation);
    }

    /// One model is started in another way from now on.
    fn configure(&mut self, which: usize) {
        let changed = self.names[which % self.names.len()].clone();
        let mut profiles = self.profiles.clone();
        if let Some(profile) = profiles.get_mut(&changed) {
            profile.revision += 1;
        }
        for (generation, engine) in &self.engines {
            if engine.model == changed {
                self.may_go.insert(*generation);
            }
        }
        self.pauses.remove(&changed);
        self.short_lives.remove(&changed);
        self.short.remove(&changed);
        self.known.remove(&changed);
        self.known.extend(estimates(&profiles).remove_entry(&changed));
        self.profiles.clone_from(&profiles);
        self.tell(Event::Configure { settings: self.settings, profiles });
    }

    /// Events of generations that are over change nothing.
    fn stale(&mut self, which: usize) {
        let Some(generation) = choose(self.ended.iter(), which) else { return };
        let before = self.machine.snapshot(self.now);
        let failure = LoadFailure { reason: "late".into(), out_of_memory: which.is_multiple_of(2) };
        let event = match which % 5 {
            0 => Event::Loaded { generation, footprint: Some(gib(1)) },
            1 => Event::LoadFailed { generation, failure },
            2 => Event::Ended { generation },
            3 => Event::Condemn { generation },
            _ => Event::Release { lease: LeaseId { generation, ticket: Ticket(self.tickets) } },
        };
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        assert_eq!(out, [], "a stale event caused commands");
        assert_eq!(self.machine.snapshot(self.now), before);
    }

    fn tell(&mut self, event: Event) {
        self.rows_end();
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        for command in out {
            self.check(command);
        }
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
        if let Some(ticket) = self.waiting.keys().next_back() {
            assert!(self.machine.outlook(*ticket, self.now).is_some(), "{ticket:?} was lost");
        }
    }

    fn check(&mut self, command: Command) {
        match command {
            Command::Launch { generation, model } => self.check_launch(generation, model),
            Command::Stop { generation, urgency } => self.check_stop(generation, urgency),
            Command::Grant { lease } => {
                let engine = &self.engines[&lease.generation];
                assert_eq!(engine.process, Process::Ready);
                let first = self.waiting.iter().find(|(_, (model, _))| *model == engine.model);
                assert_eq!(
                    first.map(|(ticket, _)| *ticket),
                    Some(lease.ticket),
                    "not the first of its queue"
                );
                self.waiting.remove(&lease.ticket);
                self.leases.insert(lease);
                let used = self.leases.iter().filter(|other| other.generation == lease.generation).count();
                assert!(used <= engine.profile.parallel as usize, "over the engine's parallelism");
            }
            Command::Refuse { ticket, refusal, retry_after } => {
                let (model, _) = self.waiting.remove(&ticket).expect("refused twice, or after its grant");
                if let Refusal::BreakerOpen { .. } | Refusal::LoadFailed { .. } = refusal {
                    let (until, _) = self.pauses[&model];
                    assert_eq!(retry_after, Some(until.saturating_since(self.now)), "{refusal}");
                }
            }
        }
    }

    fn check_launch(&mut self, generation: Generation, model: ModelName) {
        assert!(!self.draining);
        let profile = self.profiles[&model].clone();
        assert!(self.is_awaited(&model) || profile.preload, "nobody wants {model}");
        assert!(self.pauses.get(&model).is_none_or(|(until, _)| *until <= self.now), "its breaker is open");
        for other in self.engines.values() {
            assert_ne!(other.model, model, "two engines of one model");
            let apart = profile.group.is_none() || other.profile.group != profile.group;
            assert!(apart, "two of a group");
        }
        let charge = self.known.get(&model).copied().unwrap_or_default();
        let charges = self.engines.values().fold(charge, |sum, engine| sum.saturating_add(engine.charge));
        assert!(charges.fits_in(self.settings.budget), "over the budget: {charges:?}");
        assert!(self.engines.len() < self.settings.max_resident, "over the slots");
        let second_try = self.short.remove(&model);
        let engine = Engine { model, profile, process: Process::Loading, ready_at: None, charge, second_try };
        assert!(self.engines.insert(generation, engine).is_none() && !self.ended.contains(&generation));
    }

    fn check_stop(&mut self, generation: Generation, urgency: Urgency) {
        let engine = self.engines.get_mut(&generation).expect("stopped nothing");
        let was = std::mem::replace(&mut engine.process, Process::Stopping);
        assert_ne!(was, Process::Stopping, "stopped twice");
        let leased = self.leases.iter().any(|lease| lease.generation == generation);
        let condemned = self.may_go.contains(&generation);
        match urgency {
            Urgency::Graceful => assert!(was == Process::Ready && !leased, "stopped under a lease"),
            Urgency::Immediate => assert!(was == Process::Loading || condemned, "killed"),
        }
        let may_go = condemned || self.draining || !engine.profile.pinned;
        assert!(may_go || was == Process::Loading, "a pinned engine was stopped");
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

fn estimates(profiles: &BTreeMap<ModelName, Profile>) -> BTreeMap<ModelName, Memory> {
    let known = profiles.iter().filter_map(|(name, profile)| Some((name.clone(), profile.footprint?)));
    known.collect()
}
