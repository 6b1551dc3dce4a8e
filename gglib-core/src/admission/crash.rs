//! Engines that come up and die before they have answered anything: a loop of them meets the model's breaker, as failed
//! loads do.

use super::Generation;
use super::command::{Command, Urgency};
use super::engine::{Engine, Stage};
use super::machine::Admission;
use super::model::Model;
use crate::moment::Moment;
use crate::retry::Outcome;

/// Engines of one model in a row that have died without an answer, which make a loop. A first one may be bad luck, and
/// the second one is the relaunch for the request that met it.
const LOOP: u32 = 3;

impl Model {
    /// Whether its next engine is on probation: its breaker closes when that has answered.
    pub(super) fn is_looping(&self) -> bool {
        self.short_lives >= LOOP
    }

    /// An engine has died that was ready.
    fn died(&mut self, engine: &mut Engine, now: Moment) {
        if engine.first_answer.is_some() {
            return;
        }
        self.short_lives = self.short_lives.saturating_add(1);
        if !self.is_looping() {
            return;
        }
        self.failures = self.short_lives;
        self.reason = Some("its engines have died before they had answered anything".into());
        if let Some(permit) = engine.permit.take().or_else(|| self.breaker.admit(now).ok()) {
            self.breaker.settle(permit, Outcome::Failure, now);
        }
    }
}

impl Admission {
    /// Stops an engine that is dead or does no work, whoever uses it.
    pub(super) fn condemn(&mut self, generation: Generation, now: Moment, out: &mut Vec<Command>) {
        if let Some(engine) = self.engines.iter().position(|engine| engine.generation == generation)
            && matches!(self.engines[engine].stage, Stage::Resident { .. })
        {
            self.crashed(engine, now);
        }
        self.stop(generation, Urgency::Immediate, now, out);
    }

    /// The ready engine at `index` has died, or was found to be as good as dead.
    pub(super) fn crashed(&mut self, index: usize, now: Moment) {
        self.totals.crashes += 1;
        let engine = &mut self.engines[index];
        let Some(model) = self.models.get_mut(&engine.model) else { return };
        // One that crashes again and again keeps nobody else out.
        model.behind = self.last_ticket;
        if !engine.retiring {
            model.died(engine, now);
        }
    }

    /// The engine has given a whole answer: it is none of a row that dies at once.
    pub(super) fn answered(&mut self, generation: Generation, now: Moment) {
        let resident = |engine: &&mut Engine| {
            engine.generation == generation && matches!(engine.stage, Stage::Resident { .. })
        };
        let Some(engine) = self.engines.iter_mut().find(resident) else { return };
        engine.first_answer.get_or_insert(now);
        let Some(model) = self.models.get_mut(&engine.model).filter(|_| !engine.retiring) else { return };
        model.short_lives = 0;
        if let Some(permit) = engine.permit.take() {
            model.failures = 0;
            model.reason = None;
            model.breaker.settle(permit, Outcome::Success, now);
        }
    }
}
