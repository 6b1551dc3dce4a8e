//! What may be ordered, granted and refused, and when.

use std::time::Duration;

use gglib_core::admission::{Command, Generation, Refusal, Urgency};
use gglib_core::model::ModelName;

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
                let (model, _) = self.waiting.remove(&ticket).expect("refused twice, or after its grant");
                self.check_refusal(&model, &refusal, retry_after);
            }
        }
    }

    /// Nobody is refused without its reason.
    fn check_refusal(&self, model: &ModelName, refusal: &Refusal, retry_after: Option<Duration>) {
        match refusal {
            Refusal::BreakerOpen { .. } | Refusal::LoadFailed { .. } => {
                let (until, _) = self.pauses[model];
                assert_eq!(retry_after, Some(until.saturating_since(self.now)), "{refusal}");
            }
            Refusal::InsufficientMemory { needed, budget, reason: None } => {
                assert_eq!((*needed, *budget), (size(&self.known, model), self.settings.budget));
                assert!(!needed.unwrap_or_default().fits_in(*budget), "it fits");
            }
            Refusal::PinnedOut => {
                assert!(self.engines.values().any(|engine| engine.profile.pinned), "nothing is pinned");
            }
            Refusal::NotConfigured => assert!(!self.profiles.contains_key(model)),
            Refusal::Draining => assert!(self.draining),
            _ => {}
        }
    }

    fn check_launch(&mut self, generation: Generation, model: ModelName) {
        assert!(!self.draining);
        let profile = self.profiles.get(&model).expect("it is configured").clone();
        assert!(self.is_awaited(&model) || self.unasked.remove(&model), "nobody wants {model}");
        assert!(self.pauses.get(&model).is_none_or(|(until, _)| *until <= self.now), "its breaker is open");
        for other in self.engines.values() {
            assert_ne!(other.model, model, "two engines of one model");
            let apart = profile.group.is_none() || other.profile.group != profile.group;
            assert!(apart, "two of a group");
        }
        let charge = size(&self.known, &model).unwrap_or_default();
        let charges = self.engines.values().fold(charge, |sum, engine| sum.saturating_add(engine.charge));
        assert!(charges.fits_in(self.settings.budget), "over the budget: {charges:?}");
        assert!(self.engines.len() < self.settings.max_resident, "over the slots");
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
        let engine = self.engines.get_mut(&generation).expect("stopped nothing");
        let was = std::mem::replace(&mut engine.process, Process::Stopping);
        assert_ne!(was, Process::Stopping, "stopped twice");
        let leased = self.leases.iter().any(|lease| lease.generation == generation);
        let condemned = self.may_go.contains(&generation);
        let outgrown = self.outgrown.contains(&generation);
        match urgency {
            Urgency::Graceful => assert!(was == Process::Ready && !leased, "stopped under a lease"),
            Urgency::Immediate => assert!(was == Process::Loading || condemned, "killed"),
        }
        let may_go = condemned || outgrown || self.draining || !engine.profile.pinned;
        assert!(may_go || was == Process::Loading, "a pinned engine was stopped");
    }
}
