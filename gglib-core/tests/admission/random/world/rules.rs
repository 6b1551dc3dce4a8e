//! What may be ordered, granted and refused, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use gglib_core::admission::{Command, Generation, Profile, Refusal, Urgency};
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

use super::{Engine, Process, World, size};

impl World {
    pub(super) fn check(&mut self, command: Command) {
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
                let (model, since) = self.waiting.remove(&ticket).expect("refused twice, or after its grant");
                self.check_refusal(&model, since, &refusal, retry_after);
            }
        }
    }

    /// Nobody is refused without its reason.
    fn check_refusal(
        &self,
        model: &ModelName,
        since: Moment,
        refusal: &Refusal,
        retry_after: Option<Duration>,
    ) {
        let waited = self.now.saturating_since(since);
        match refusal {
            Refusal::BreakerOpen { .. } | Refusal::LoadFailed { .. } => {
                let (until, _) = self.pauses[model];
                assert_eq!(retry_after, Some(until.saturating_since(self.now)), "{refusal}");
            }
            Refusal::InsufficientMemory { needed, budget, reason: None } => {
                assert_eq!((*needed, *budget), (size(&self.known, model), self.settings.budget));
                assert!(self.is_too_large(model), "it fits");
            }
            Refusal::InsufficientMemory { reason: Some(_), .. } => {
                assert_eq!(self.failed_twice.as_ref(), Some(model), "no second load has failed");
            }
            Refusal::PinnedOut => {
                let profile = &self.profiles[model];
                assert!(
                    !self.has_room_beside(model, profile, |generation, engine| {
                        self.keeps_its_place(generation, engine)
                    }),
                    "the pinned leave room"
                );
            }
            Refusal::QueueFull { limit } => {
                let others = self.waiting.values().filter(|(wanted, _)| wanted == model).count();
                assert_eq!((*limit, waited), (self.settings.queue, Duration::ZERO));
                assert!(others >= *limit, "there is a place");
            }
            Refusal::QueueTooLong { wait, limit } => {
                let others = self.waiting.values().filter(|(wanted, _)| wanted == model).count();
                assert_eq!((*limit, waited), (self.settings.max_wait, Duration::ZERO));
                assert!(wait > limit && others >= self.profiles[model].parallel as usize, "{refusal}");
            }
            Refusal::Stalled { after } => {
                assert!(waited >= *after && *after == self.settings.stall, "after {waited:?}");
            }
            Refusal::WaitedTooLong { after } => {
                assert!(waited >= *after && *after == self.settings.max_wait, "after {waited:?}");
            }
            Refusal::Renamed => panic!("nothing has an alias"),
            Refusal::NotConfigured => assert!(!self.profiles.contains_key(model)),
            Refusal::Draining => assert!(self.draining),
        }
    }

    fn check_launch(&mut self, generation: Generation, model: ModelName) {
        assert!(!self.draining);
        let profile = self.profiles.get(&model).expect("it is configured").clone();
        assert!(self.is_awaited(&model) || self.unasked.remove(&model), "nobody wants {model}");
        assert!(self.pauses.get(&model).is_none_or(|(until, _)| *until <= self.now), "its breaker is open");
        assert!(self.engines.values().all(|other| other.model != model), "two engines of one model");
        assert!(!self.is_too_large(&model), "over the budget by itself");
        assert!(self.has_room_for(&model, &profile), "over the slots, over the budget, or two of a group");
        let charge = size(&self.known, &model).unwrap_or_default();
        let second_try = self.short.remove(&model);
        let engine = Engine {
            model,
            profile,
            process: Process::Loading,
            has_answered: false,
            charge,
            measured: None,
            second_try,
        };
        assert!(self.engines.insert(generation, engine).is_none() && !self.ended.contains(&generation));
    }

    fn check_stop(&mut self, generation: Generation, urgency: Urgency) {
        let is_needed = self.is_needed(generation);
        let is_outdated = self.is_outdated(generation);
        let leased = self.leases.iter().any(|lease| lease.generation == generation);
        let engine = self.engines.get_mut(&generation).expect("stopped nothing");
        let was = std::mem::replace(&mut engine.process, Process::Stopping);
        assert_ne!(was, Process::Stopping, "stopped twice");
        let condemned = self.condemned.contains(&generation);
        if was == Process::Loading {
            self.cancelled.insert(generation);
        }
        match urgency {
            Urgency::Graceful => assert!(was == Process::Ready && !leased, "stopped under a lease"),
            Urgency::Immediate => assert!(was == Process::Loading || condemned, "killed"),
        }
        let goes_by_itself = condemned || is_outdated || self.outgrown.contains(&generation);
        let may_go = goes_by_itself || !engine.profile.pinned;
        assert!(may_go || was == Process::Loading, "a pinned engine was stopped");
        assert!(goes_by_itself || engine.profile.ttl.is_some() || is_needed, "stopped for nobody");
    }

    /// Whether the room of this engine may be wanted: by a model that can be launched, or because too much is there.
    fn is_needed(&self, generation: Generation) -> bool {
        let own = &self.engines[&generation].model;
        let is_paused = |model| self.pauses.get(model).is_some_and(|(until, _)| *until > self.now);
        let is_wanted = self.waiting.values().any(|(model, _)| model != own && !is_paused(model));
        let staying: Vec<_> = self.staying().map(|(_, engine)| engine).collect();
        let charges = staying.iter().fold(Memory::ZERO, |sum, engine| sum.saturating_add(engine.charge));
        let is_overdrawn =
            staying.len() > self.settings.max_resident || !charges.fits_in(self.settings.budget);
        let clash = staying.iter().any(|one| staying.iter().any(|other| are_apart(one, other)));
        is_wanted || is_overdrawn || clash
    }

    /// Whether an engine of the model fits beside all that are there.
    pub(super) fn has_room_for(&self, model: &ModelName, profile: &Profile) -> bool {
        self.has_room_beside(model, profile, |_, _| true)
    }

    /// The same beside those for which `kept` holds.
    fn has_room_beside(
        &self,
        model: &ModelName,
        profile: &Profile,
        kept: impl Fn(Generation, &Engine) -> bool,
    ) -> bool {
        let kept = self.engines.iter().filter(|(generation, engine)| kept(**generation, engine));
        let others: Vec<_> = kept.map(|(_, engine)| engine).collect();
        let charge = size(&self.known, model).unwrap_or_default();
        let charges = others.iter().fold(charge, |sum, engine| sum.saturating_add(engine.charge));
        let group = profile.group.as_ref();
        let is_alone = others.iter().all(|other| group.is_none() || other.profile.group.as_ref() != group);
        let is_within = charges.fits_in(self.settings.budget) || others.is_empty();
        is_within && others.len() < self.settings.max_resident && is_alone
    }

    /// Whether the model exceeds the budget alone: by its estimate, or by a tenth as it was measured.
    pub(super) fn is_too_large(&self, model: &ModelName) -> bool {
        let budget = self.settings.budget;
        let tenth = Memory { ram: budget.ram / 10, vram: budget.vram / 10 };
        let Some(known) = self.known.get(model) else { return false };
        match known.measured() {
            Some(measured) => !measured.fits_in(budget.saturating_add(tenth)),
            None => !known.estimate.unwrap_or_default().fits_in(budget),
        }
    }

    /// Whether the engine is pinned, and is there or will be back.
    fn keeps_its_place(&self, generation: Generation, engine: &Engine) -> bool {
        let is_there = engine.process != Process::Stopping || self.outgrown.contains(&generation);
        engine.profile.pinned && is_there && !self.is_outdated(generation)
    }

    /// Whether nobody uses the engine, and it may be stopped for others.
    fn is_to_be_had(&self, generation: Generation, engine: &Engine) -> bool {
        engine.process == Process::Ready
            && !engine.profile.pinned
            && self.leases.iter().all(|lease| lease.generation != generation)
    }

    /// Whoever is idle and may be stopped is not in the way of anybody: not beside its group, not while too much is
    /// there, and not of a model that waits.
    pub(super) fn check_the_idle(&self) {
        for (generation, engine) in self.staying() {
            let is_beside = self.staying().any(|(_, other)| are_apart(engine, other));
            assert!(!is_beside || !self.is_to_be_had(*generation, engine), "two of a group");
        }
        let is_too_much = |engines: &[&Engine]| {
            let charges = engines.iter().fold(Memory::ZERO, |sum, engine| sum.saturating_add(engine.charge));
            let is_over =
                engines.len() > self.settings.max_resident || !charges.fits_in(self.settings.budget);
            engines.len() > 1 && is_over
        };
        let staying: Vec<_> = self.staying().map(|(_, engine)| engine).collect();
        let used = self.staying().filter(|(generation, engine)| !self.is_to_be_had(**generation, engine));
        let used: Vec<_> = used.map(|(_, engine)| engine).collect();
        let is_cured = used.len() < staying.len() && !is_too_much(&used);
        assert!(!is_too_much(&staying) || !is_cured, "too much is there, and somebody is idle");

        let applicants: BTreeSet<_> = self.waiting.values().map(|(model, _)| model).collect();
        let applicants: Vec<_> = applicants.into_iter().filter(|model| !self.is_staying(model)).collect();
        if let [model] = applicants[..]
            && self.engines.values().all(|engine| engine.model != *model)
        {
            let profile = &self.profiles[model];
            // Whoever is being stopped is as good as gone, unless it comes back.
            let stays = |generation, engine: &Engine| {
                engine.process != Process::Stopping || self.keeps_its_place(generation, engine)
            };
            let is_used = |generation, engine: &Engine| {
                stays(generation, engine) && !self.is_to_be_had(generation, engine)
            };
            let will_fit = self.has_room_beside(model, profile, stays);
            let would_fit = self.has_room_beside(model, profile, is_used);
            assert!(will_fit || !would_fit, "{model} waits for one in use, and others are idle");
        }
    }
}

/// Whether they are two that must not be there together.
fn are_apart(one: &Engine, other: &Engine) -> bool {
    one.model != other.model && one.profile.group.is_some() && one.profile.group == other.profile.group
}
