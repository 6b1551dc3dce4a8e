//! What becomes of engines, and what is expected of the machine then.

use gglib_core::admission::{Event, Generation, LoadFailure};
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;

use super::{Engine, Process, World};
use crate::desk::seconds;

impl World {
    pub(super) fn load(&mut self, which: usize, footprint: Option<Memory>) {
        let Some(generation) = self.one(Process::Loading, which) else { return };
        let outdated = self.outdated.contains(&generation);
        let engine = self.engines.get_mut(&generation).expect("it has been found");
        engine.process = Process::Ready;
        engine.measured = footprint;
        engine.charge = footprint.unwrap_or(engine.charge);
        if !outdated {
            if self.short_lives.get(&engine.model).is_none_or(|count| *count < 3) {
                self.pauses.remove(&engine.model);
            }
            if let Some(known) = self.known.get_mut(&engine.model) {
                known.measured = footprint.or(known.measured);
            }
        }
        self.tell(Event::Loaded { generation, footprint });
    }

    pub(super) fn fail_load(&mut self, which: usize, out_of_memory: bool) {
        let Some(generation) = self.one(Process::Loading, which) else { return };
        let engine = self.engines.remove(&generation).expect("it has been found");
        self.is_gone(generation);
        let tried_again = out_of_memory && !engine.second_try && self.is_awaited(&engine.model);
        if self.outdated.contains(&generation) {
        } else if tried_again {
            self.short.insert(engine.model);
        } else {
            self.failed_twice = (out_of_memory && engine.second_try).then(|| engine.model.clone());
            self.pause(engine.model);
        }
        let failure = LoadFailure { reason: "broken".into(), out_of_memory };
        self.tell(Event::LoadFailed { generation, failure });
    }

    /// The model is not launched for a while, and for twice as long the next time.
    pub(super) fn pause(&mut self, model: ModelName) {
        let (_, pause) = self.pauses.get(&model).copied().unwrap_or((self.now, 10));
        let until = self.now.saturating_add(seconds(pause));
        self.pauses.insert(model, (until, (2 * pause).min(300)));
    }

    /// The model's file cannot be loaded: that ends every wait for it, unless there is no need of the file, or no try.
    pub(super) fn spoil(&mut self, which: usize) {
        let model = self.names[which % self.names.len()].clone();
        let is_needless = self.is_staying(&model);
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
    pub(super) fn dies(&mut self, generation: Generation) {
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
    pub(super) fn is_outdated(&self, generation: Generation) -> bool {
        self.draining || self.outdated.contains(&generation)
    }

    /// Whether there is an engine of the model that may go on.
    pub(super) fn is_staying(&self, model: &ModelName) -> bool {
        self.staying().any(|(_, engine)| engine.model == *model)
    }

    pub(super) fn staying(&self) -> impl Iterator<Item = (&Generation, &Engine)> {
        let stays = |(generation, engine): &(&Generation, &Engine)| {
            engine.process != Process::Stopping && !self.is_outdated(**generation)
        };
        self.engines.iter().filter(stays)
    }

    /// An engine gives a whole answer, which ends a row of engines that have not.
    pub(super) fn answer(&mut self, which: usize) {
        let Some(generation) = self.one(Process::Ready, which) else { return };
        let engine = self.engines.get_mut(&generation).expect("it has been found");
        engine.has_answered = true;
        let model = engine.model.clone();
        if !self.is_outdated(generation) && self.short_lives.remove(&model).is_some_and(|count| count >= 3) {
            self.pauses.remove(&model);
        }
        self.tell(Event::Answered { generation });
    }

    pub(super) fn end(&mut self, process: Process, which: usize) {
        let Some(generation) = self.one(process, which) else { return };
        if process == Process::Ready {
            self.dies(generation);
        }
        let engine = self.engines.remove(&generation).expect("it has been found");
        self.is_gone(generation);
        let comes_back = process == Process::Stopping
            && self.outgrown.contains(&generation)
            && engine.profile.pinned
            && !self.is_outdated(generation);
        if comes_back {
            self.unasked.insert(engine.model.clone());
        }
        let is_paused = self.pauses.get(&engine.model).is_some_and(|(until, _)| *until > self.now);
        let is_due = comes_back
            && !is_paused
            && !self.is_too_large(&engine.model)
            && self.has_room_for(&engine.model, &engine.profile);
        if self.cancelled.contains(&generation) && which.is_multiple_of(2) {
            // The load has failed before it could be given up.
            let failure = LoadFailure { reason: "broken".into(), out_of_memory: which.is_multiple_of(4) };
            self.tell(Event::LoadFailed { generation, failure });
        } else {
            self.tell(Event::Ended { generation });
        }
        assert!(!is_due || self.is_staying(&engine.model), "a pinned engine has lost its place");
    }

    /// A lease of an engine that is gone is given back some time, and changes nothing then.
    pub(super) fn is_gone(&mut self, generation: Generation) {
        self.leases.retain(|lease| lease.generation != generation);
        self.ended.push(generation);
    }
}
