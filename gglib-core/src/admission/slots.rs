//! Who gets a slot: the models that are waited for and not resident, in the order of their turns.
//!
//! The first of them that does not fit beside the engines that are there makes others stand aside. Its room is
//! set apart from then on: whoever comes later in the order is launched only if it fits beside that, too. So small
//! models cannot keep a large one out.

use std::time::Duration;

use super::command::{Command, Urgency};
use super::engine::{Engine, Stage};
use super::machine::Admission;
use super::model::Model;
use super::turn::{Pressure, quantum};
use super::{Generation, Refusal};
use crate::memory::Memory;
use crate::model::ModelName;
use crate::moment::Moment;

/// What one model needs to be resident.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub(super) memory: Memory,
    pub(super) group: Option<String>,
}

/// What has been decided so far in one pass over the models.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The engines that have to go, each with the model that it has to go for, if it is for one.
    pub(super) leaving: Vec<(Generation, Option<ModelName>)>,
    /// What is set apart for models earlier in the order.
    pub(super) claims: Vec<Demand>,
    /// A load has died of memory, and nothing is launched beside its second try.
    pub(super) is_reserved: bool,
}

impl Plan {
    pub(super) fn spares(&self, engine: &Engine) -> bool {
        self.leaving.iter().all(|(generation, _)| *generation != engine.generation)
    }
}

impl Admission {
    /// Launches what fits, and makes those stand aside, or go, who are in the way of what does not.
    ///
    /// Says whether some engine need no longer stand aside, so that it may serve again.
    pub(super) fn make_room(&mut self, now: Moment, out: &mut Vec<Command>) -> bool {
        let mut lifted = false;
        while self.has_room_to_make() {
            self.evict_for_a_second_try(now, out);
            let mut plan = Plan { is_reserved: self.is_trying_again(), ..Plan::default() };
            self.choose_overdrawn(&mut plan, now);
            for (generation, _) in &plan.leaving {
                self.press(*generation, None, now);
            }
            for name in &self.applicants() {
                self.find_room(name, &mut plan, now, out);
            }
            self.launch_unasked(&plan, now, out);
            lifted |= self.lift_pressure(&plan);
            // Whoever is left waiting for an engine that has been stopped needs room in turn.
            if !self.clear(plan, now, out) {
                break;
            }
        }
        lifted
    }

    /// Whether a load is in progress, and waited for, that is the second try of one that has died of memory.
    fn is_trying_again(&self) -> bool {
        let is_awaited =
            |engine: &Engine| self.models.get(&engine.model).is_some_and(|model| !model.queue.is_empty());
        self.engines.iter().any(|engine| engine.is_loading() && engine.second_try && is_awaited(engine))
    }

    /// Whether anything has to be decided at all; mostly not.
    fn has_room_to_make(&self) -> bool {
        let waits = |(name, model): (&ModelName, &Model)| {
            model.preload || (!model.queue.is_empty() && !self.engine_of(name).is_some_and(Engine::stays))
        };
        !self.draining
            && (self.engines.iter().any(|engine| engine.pressure.is_some())
                || self.models.iter().any(waits)
                || self.has_overdrawn())
    }

    /// The models that are waited for and have no engine that could serve them, or will be launched anew at once, in the
    /// order of their turns.
    pub(super) fn applicants(&self) -> Vec<ModelName> {
        let waiting = self.models.iter().filter_map(|(name, model)| Some((model.order()?, name)));
        let is_served = |name: &ModelName| self.engine_of(name).is_some_and(Engine::holds_room);
        let mut waiting: Vec<_> = waiting.filter(|(_, name)| !is_served(name)).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, name)| name.clone()).collect()
    }

    fn find_room(&mut self, name: &ModelName, plan: &mut Plan, now: Moment, out: &mut Vec<Command>) {
        let Some(model) = self.models.get_mut(name) else { return };
        if let Some(at) = model.breaker.retry_at(now) {
            // Nobody makes room for who will not be launched.
            let refusal = model.breaker_open();
            model.refuse_all(&refusal, Some(at.saturating_since(now)), out);
            return;
        }
        let second_try = model.second_try;
        let budget = self.settings.budget;
        if model.is_too_large(budget) {
            let refusal = Refusal::InsufficientMemory { needed: model.footprint(), budget, reason: None };
            model.refuse_all(&refusal, None, out);
            return;
        }
        let demand =
            Demand { memory: model.footprint().unwrap_or_default(), group: model.profile.group.clone() };
        if !self.fits(&demand, &[], Engine::keeps_its_place) {
            if let Some(model) = self.models.get_mut(name) {
                model.refuse_all(&Refusal::PinnedOut, None, out);
            }
            return;
        }
        let Some(chosen) = self.choose(name, &demand, plan, now) else {
            plan.claims.push(demand);
            return;
        };
        for generation in chosen {
            plan.leaving.push((generation, Some(name.clone())));
            self.press(generation, Some(name), now);
        }
        if !plan.is_reserved && self.has_room(name, &demand) {
            self.launch(name, now, out);
        } else {
            plan.claims.push(demand);
        }
        plan.is_reserved |= second_try;
    }

    /// Whether there is room now, beside everything that still takes memory.
    fn has_room(&self, name: &ModelName, demand: &Demand) -> bool {
        let second_try = self.models.get(name).is_some_and(|model| model.second_try);
        self.engine_of(name).is_none()
            && self.fits(demand, &[], |_| true)
            // The room that was made for a second try has to be there.
            && !(second_try && self.engines.iter().any(Engine::is_stopping))
    }

    /// Whether `demand` fits beside the claims and those engines for which `kept` holds. Without any, it does.
    pub(super) fn fits(&self, demand: &Demand, claims: &[Demand], kept: impl Fn(&Engine) -> bool) -> bool {
        let mut slots = 1 + claims.len();
        let mut memory = claims.iter().fold(demand.memory, |sum, claim| sum.saturating_add(claim.memory));
        let mut excluded = claims.iter().any(|claim| shared(claim.group.as_ref(), demand.group.as_ref()));
        for engine in self.engines.iter().filter(|engine| kept(engine)) {
            slots += 1;
            memory = memory.saturating_add(engine.charge);
            excluded |= shared(engine.profile.group.as_ref(), demand.group.as_ref());
        }
        let is_within = memory.fits_in(self.settings.budget) || slots == 1;
        !excluded && slots <= self.settings.max_resident.max(1) && is_within
    }

    /// Makes an engine stand aside from now on, for `rival` if it is for one, unless it does already.
    pub(super) fn press(&mut self, generation: Generation, rival: Option<&ModelName>, now: Moment) {
        let Some(index) = self.engines.iter().position(|engine| engine.generation == generation) else {
            return;
        };
        if self.engines[index].pressure.is_none() {
            let cost = rival.map(|rival| self.switch_cost(&self.engines[index].model, rival));
            let quantum = quantum(self.settings.quantum, cost.unwrap_or_default());
            self.pressures += 1;
            let (gate, number) = (self.last_ticket, self.pressures);
            self.engines[index].pressure = Some(Pressure { since: now, gate, quantum, number });
        }
    }

    /// From the order to stop one model until another one is ready, as far as both have been measured.
    pub(super) fn switch_cost(&self, from: &ModelName, to: &ModelName) -> Duration {
        let stop = self.models.get(from).map(|model| model.measured.stop.or_zero());
        let load = self.models.get(to).map(|model| model.measured.load.or_zero());
        stop.unwrap_or_default().saturating_add(load.unwrap_or_default())
    }

    fn lift_pressure(&mut self, plan: &Plan) -> bool {
        let mut lifted = false;
        for engine in &mut self.engines {
            if engine.pressure.is_some() && plan.spares(engine) && !engine.outgrown {
                engine.pressure = None;
                lifted = true;
            }
        }
        lifted
    }

    /// Stops those of the leaving whose turn is over and whose leases are back. Says whether one of them is still
    /// waited for.
    fn clear(&mut self, plan: Plan, now: Moment, out: &mut Vec<Command>) -> bool {
        let mut awaited = false;
        for (generation, rival) in plan.leaving {
            let Some(engine) = self.engines.iter().find(|engine| engine.generation == generation) else {
                continue;
            };
            let urgency = match engine.stage {
                Stage::Resident { .. } if engine.is_idle() => Urgency::Graceful,
                Stage::Loading if self.is_cancellable(engine, now) => Urgency::Immediate,
                _ => continue,
            };
            awaited |= self.models.get(&engine.model).is_some_and(|model| !model.queue.is_empty());
            self.totals.evictions += u64::from(urgency == Urgency::Graceful);
            self.stop(generation, urgency, now, out);
            if let Some(model) = rival.and_then(|rival| self.models.get_mut(&rival)) {
                model.room_was_made |= urgency == Urgency::Graceful;
            }
        }
        awaited
    }

    /// Launches the models that are to be loaded unasked, as far as there is room that nobody waits for.
    pub(super) fn launch_unasked(&mut self, plan: &Plan, now: Moment, out: &mut Vec<Command>) {
        let mut wanted = Vec::new();
        for (name, model) in &mut self.models {
            if std::mem::take(&mut model.preload) {
                wanted.push(name.clone());
            }
        }
        for name in wanted {
            let Some(model) = self.models.get(&name) else { continue };
            let memory = model.footprint().unwrap_or_default();
            let demand = Demand { memory, group: model.profile.group.clone() };
            let is_too_large = model.is_too_large(self.settings.budget);
            if !is_too_large && plan.claims.is_empty() && !plan.is_reserved && self.has_room(&name, &demand) {
                self.launch(&name, now, out);
            }
        }
    }
}

/// Whether both are of one group.
pub(super) fn shared(one: Option<&String>, other: Option<&String>) -> bool {
    one.is_some() && one == other
}
