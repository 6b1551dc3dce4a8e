//! Launches and what becomes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::command::{Command, Urgency};
use super::engine::{Engine, Stage};
use super::event::LoadFailure;
use super::machine::Admission;
use super::slots::Plan;
use super::{Generation, Refusal};
use crate::memory::Memory;
use crate::model::ModelName;
use crate::moment::Moment;
use crate::retry::Outcome;

impl Admission {
    /// Launches an engine of the model, if its breaker admits that; else its waiters are told.
    pub(super) fn launch(&mut self, name: &ModelName, now: Moment, out: &mut Vec<Command>) {
        let Some(model) = self.models.get_mut(name) else { return };
        let permit = match model.breaker.admit(now) {
            Ok(permit) => permit,
            Err(rejection) => {
                let refusal = model.breaker_open();
                model.refuse_all(&refusal, Some(rejection.retry_at.saturating_since(now)), out);
                return;
            }
        };
        self.launches += 1;
        let generation = Generation(self.launches);
        self.engines.push(Engine {
            model: name.clone(),
            generation,
            profile: model.profile.clone(),
            launched: now,
            stage: Stage::Loading,
            leases: Vec::new(),
            idle_since: now,
            charge: model.footprint().unwrap_or_default(),
            estimated: model.footprint(),
            measured: None,
            pressure: None,
            retiring: false,
            outgrown: false,
            permit: Some(permit),
            first_answer: None,
            second_try: std::mem::take(&mut model.second_try),
        });
        self.totals.swaps += u64::from(std::mem::take(&mut model.room_was_made));
        out.push(Command::Launch { generation, model: name.clone() });
    }

    pub(super) fn loaded(&mut self, generation: Generation, footprint: Option<Memory>, now: Moment) {
        let loading = |engine: &&mut Engine| engine.generation == generation && engine.is_loading();
        let Some(engine) = self.engines.iter_mut().find(loading) else { return };
        engine.stage = Stage::Resident { since: now };
        engine.idle_since = now;
        engine.measured = footprint;
        engine.charge = footprint.unwrap_or(engine.charge);
        if let Some(pressure) = &mut engine.pressure {
            pressure.since = now;
            pressure.gate = self.last_ticket;
        }
        self.totals.loads += 1;
        self.moved = now;
        // What a retiring engine was started with is not what the model is configured with now.
        if let Some(model) = self.models.get_mut(&engine.model).filter(|_| !engine.retiring) {
            model.moved = now;
            model.measured.loaded(now.saturating_since(engine.launched));
            model.measured.footprint = footprint.or(model.measured.footprint);
            if model.is_looping() {
                return;
            }
            model.failures = 0;
            model.reason = None;
            if let Some(permit) = engine.permit.take() {
                model.breaker.settle(permit, Outcome::Success, now);
            }
        }
    }

    pub(super) fn load_failed(
        &mut self,
        generation: Generation,
        failure: LoadFailure,
        now: Moment,
        out: &mut Vec<Command>,
    ) {
        let Some(engine) = self.take_out(generation, now) else { return };
        // A load that was cancelled is not the model's fault, and who came for it since then still waits.
        if !engine.is_loading() {
            return;
        }
        self.totals.failed_loads += 1;
        // The configuration has changed while it loaded; what failed is not what is waited for.
        let Some(model) = self.models.get_mut(&engine.model).filter(|_| !engine.retiring) else { return };
        let permit = engine.permit.expect("a load that was not cancelled has its permit");
        if failure.out_of_memory && !engine.second_try && !model.queue.is_empty() {
            model.breaker.settle(permit, Outcome::Neutral, now);
            self.evict_and_load_again(&engine.model);
            return;
        }
        model.breaker.settle(permit, Outcome::Failure, now);
        model.failures += 1;
        model.reason = Some(failure.reason.clone());
        let refusal = if failure.out_of_memory {
            Refusal::InsufficientMemory {
                needed: model.footprint(),
                budget: self.settings.budget,
                reason: Some(failure.reason),
            }
        } else {
            Refusal::LoadFailed { reason: failure.reason }
        };
        let retry_after = model.breaker.retry_at(now).map(|at| at.saturating_since(now));
        model.refuse_all(&refusal, retry_after, out);
    }

    /// A ready engine takes too much: it stands aside from now on, and ends as soon as nobody uses it.
    pub(super) fn outgrown(&mut self, generation: Generation, now: Moment) {
        let resident = |engine: &&mut Engine| {
            engine.generation == generation && matches!(engine.stage, Stage::Resident { .. })
        };
        if let Some(engine) = self.engines.iter_mut().find(resident) {
            engine.outgrown = true;
            self.press(generation, None, now);
        }
    }

    /// Plans with another estimate from now on. An engine that is there is charged with what it was launched for, and
    /// what it was measured to take still counts; else that was another engine's, perhaps of another file.
    pub(super) fn estimated(&mut self, name: &ModelName, footprint: Memory, measured: Option<Memory>) {
        let is_there = self.engine_of(name).is_some_and(Engine::stays);
        if let Some(model) = self.models.get_mut(name) {
            (model.profile.footprint, model.profile.measured) = (Some(footprint), measured);
            model.measured.footprint = model.measured.footprint.filter(|_| is_there);
        }
    }

    /// A load that failed before it began, so that nobody was evicted for it.
    pub(super) fn unloadable(
        &mut self,
        name: &ModelName,
        reason: &Arc<str>,
        now: Moment,
        out: &mut Vec<Command>,
    ) {
        if self.engine_of(name).is_some_and(Engine::stays) {
            return;
        }
        let Some(model) = self.models.get_mut(name) else { return };
        // While the breaker is open nothing is tried, and so nothing fails.
        let Ok(permit) = model.breaker.admit(now) else { return };
        model.breaker.settle(permit, Outcome::Failure, now);
        model.failures += 1;
        model.reason = Some(Arc::clone(reason));
        self.totals.failed_loads += 1;
        let retry_after = model.breaker.retry_at(now).map(|at| at.saturating_since(now));
        model.refuse_all(&Refusal::LoadFailed { reason: Arc::clone(reason) }, retry_after, out);
    }

    /// The files of these models have been looked at because the configuration has changed.
    pub(super) fn refuse_unloadable(
        &mut self,
        models: BTreeMap<ModelName, Arc<str>>,
        now: Moment,
        out: &mut Vec<Command>,
    ) {
        for (name, reason) in models {
            let Some(model) = self.models.get_mut(&name) else { continue };
            model.preload = false;
            // Without waiters nothing was tried, and so nothing has failed.
            if !model.queue.is_empty() {
                self.unloadable(&name, &reason, now, out);
            }
        }
    }

    pub(super) fn ended(&mut self, generation: Generation, now: Moment, out: &mut Vec<Command>) {
        let Some(index) = self.engines.iter().position(|engine| engine.generation == generation) else {
            return;
        };
        if self.engines[index].is_loading() {
            let reason = "the engine ended while loading".into();
            self.load_failed(generation, LoadFailure { reason, out_of_memory: false }, now, out);
            return;
        }
        let Stage::Stopping { since } = self.engines[index].stage else {
            self.crashed(index, now);
            self.take_out(generation, now);
            return;
        };
        let Some(engine) = self.take_out(generation, now) else { return };
        let Some(model) = self.models.get_mut(&engine.model).filter(|_| !engine.retiring) else { return };
        model.measured.stop.add(now.saturating_since(since));
        if engine.keeps_its_place() {
            // Back at once, before anybody else is looked at.
            model.preload = true;
            self.launch_unasked(&Plan::default(), now, out);
        }
    }

    /// Removes an engine whose memory is back.
    fn take_out(&mut self, generation: Generation, now: Moment) -> Option<Engine> {
        let index = self.engines.iter().position(|engine| engine.generation == generation)?;
        self.moved = now;
        Some(self.engines.swap_remove(index))
    }

    /// A load that has died of memory is tried once more, with all the room that can be made.
    fn evict_and_load_again(&mut self, name: &ModelName) {
        if let Some(model) = self.models.get_mut(name) {
            model.second_try = true;
        }
    }

    /// Stops whoever is idle by the time of a second try.
    pub(super) fn evict_for_a_second_try(&mut self, now: Moment, out: &mut Vec<Command>) {
        if !self.models.values().any(|model| model.second_try && !model.queue.is_empty()) {
            return;
        }
        for index in 0..self.engines.len() {
            let engine = &self.engines[index];
            if engine.is_idle() && !engine.profile.pinned {
                self.totals.evictions += 1;
                self.stop(engine.generation, Urgency::Graceful, now, out);
            }
        }
    }
}
