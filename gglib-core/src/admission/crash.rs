//! Engines that come up and do not last: a loop of them meets the model's breaker, as failed loads do.

use std::time::Duration;

use super::Generation;
use super::command::{Command, Urgency};
use super::engine::{Engine, Stage};
use super::machine::Admission;
use super::model::Model;
use crate::moment::Moment;
use crate::retry::Outcome;

/// Engines of one model in a row that have not lasted, which make a loop. A first one may be bad luck, and the second
/// one is the relaunch for the request that met it.
const LOOP: u32 = 3;

/// An engine that has been ready for this long has lasted. Longer than a hang takes to be found out.
const LASTS: Duration = Duration::from_secs(600);

impl Model {
    /// Whether its next engine is on probation: its breaker closes when that has lasted.
    pub(super) fn is_looping(&self) -> bool {
        self.short_lives >= LOOP
    }

    /// An engine has died that had been ready since a moment.
    pub(super) fn died(&mut self, engine: &mut Engine, since: Moment, now: Moment) {
        if now.saturating_since(since) >= LASTS {
            self.lasted(engine, now);
            return;
        }
        self.short_lives = self.short_lives.saturating_add(1);
        if !self.is_looping() {
            return;
        }
        self.failures = self.short_lives;
        self.reason = Some("its engines have died soon after they were ready".into());
        if let Some(permit) = engine.permit.take().or_else(|| self.breaker.admit(now).ok()) {
            self.breaker.settle(permit, Outcome::Failure, now);
        }
    }

    /// An engine has been ready for long enough.
    fn lasted(&mut self, engine: &mut Engine, now: Moment) {
        self.short_lives = 0;
        if let Some(permit) = engine.permit.take() {
            self.failures = 0;
            self.reason = None;
            self.breaker.settle(permit, Outcome::Success, now);
        }
    }
}

impl Admission {
    /// Stops an engine that is dead or does no work, whoever uses it.
    pub(super) fn condemn(&mut self, generation: Generation, now: Moment, out: &mut Vec<Command>) {
        let condemned = |engine: &&mut Engine| engine.generation == generation;
        if let Some(engine) = self.engines.iter_mut().find(condemned)
            && let Stage::Resident { since } = engine.stage
            && let Some(model) = self.models.get_mut(&engine.model).filter(|_| !engine.retiring)
        {
            model.died(engine, since, now);
        }
        self.stop(generation, Urgency::Immediate, now, out);
    }

    /// Ends the rows, and the probations, of engines that have lasted.
    pub(super) fn end_probations(&mut self, now: Moment) {
        for engine in &mut self.engines {
            if let Stage::Resident { since } = engine.stage
                && !engine.retiring
                && now.saturating_since(since) >= LASTS
                && let Some(model) = self.models.get_mut(&engine.model).filter(|model| model.short_lives > 0)
            {
                model.lasted(engine, now);
            }
        }
    }
}
