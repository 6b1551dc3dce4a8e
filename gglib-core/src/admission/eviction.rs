//! Who has to go so that another model fits: the cheapest engines, and no more of them than need to.

use super::Generation;
use super::engine::{Engine, Stage};
use super::machine::Admission;
use super::slots::{Demand, Plan, shared};
use crate::memory::Memory;
use crate::model::ModelName;
use crate::moment::Moment;

/// How much an engine is missed, least first; see [`Admission::worth`].
type Worth = (Class, u128);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Nobody uses it, or waits for its load.
    Unused,
    /// It stands aside already.
    StandsAside,
    /// It is in use.
    Used,
    /// It is being loaded, and waited for.
    AwaitedLoad,
}

impl Admission {
    /// The engines that have to go so that `demand` of the model `name` fits beside what the plan has set apart; none if
    /// it will fit without, `None` if it does not fit yet whoever goes.
    pub(super) fn choose(
        &self,
        name: &ModelName,
        demand: &Demand,
        plan: &Plan,
        now: Moment,
    ) -> Option<Vec<Generation>> {
        self.cheapest(plan, now, |kept| {
            // The model's own engine is gone before it is launched anew, however long that takes.
            let kept = |engine: &Engine| kept(engine) && (engine.model != *name || engine.holds_room());
            self.fits(demand, &plan.claims, kept)
        })
    }

    /// Chooses who has to go because more is resident than may be: measured footprints turned out larger than
    /// the estimates, or the configuration has changed.
    pub(super) fn choose_overdrawn(&self, plan: &mut Plan, now: Moment) {
        for (_, generation) in self.candidates(plan, now) {
            if self.is_beside_its_group(generation, plan) {
                plan.leaving.push((generation, None));
            }
        }
        let too_many = self
            .cheapest(plan, now, |kept| !self.is_overdrawn(|engine| engine.stays() && kept(engine)))
            // That is not enough, but more cannot be done.
            .unwrap_or_else(|| self.candidates(plan, now).into_iter().map(|(_, it)| it).collect());
        plan.leaving.extend(too_many.into_iter().map(|generation| (generation, None)));
    }

    /// Who has to go until `fits` is content with those that are kept: unused engines, if they are enough while those
    /// that go anyway still serve somebody; else the cheapest of all.
    fn cheapest(
        &self,
        plan: &Plan,
        now: Moment,
        fits: impl Fn(&dyn Fn(&Engine) -> bool) -> bool,
    ) -> Option<Vec<Generation>> {
        let stays = |engine: &Engine| engine.holds_room() && plan.spares(engine);
        let is_there = |engine: &Engine| stays(engine) || self.is_in_use(engine, now);
        let candidates = self.candidates(plan, now);
        let unused = candidates.iter().filter(|(worth, _)| worth.0 == Class::Unused);
        let without = |chosen: &[Generation], engine: &Engine| !chosen.contains(&engine.generation);
        fewest(unused, |chosen| fits(&|engine| is_there(engine) && without(chosen, engine))).or_else(|| {
            fewest(candidates.iter(), |chosen| fits(&|engine| stays(engine) && without(chosen, engine)))
        })
    }

    /// Whether another engine of its group stays, too.
    fn is_beside_its_group(&self, generation: Generation, plan: &Plan) -> bool {
        let mut staying = self.engines.iter().filter(|engine| engine.stays() && plan.spares(engine));
        let Some(it) = staying.clone().find(|engine| engine.generation == generation) else { return false };
        staying.any(|other| {
            other.generation != generation && shared(it.profile.group.as_ref(), other.profile.group.as_ref())
        })
    }

    /// Whether anybody stays that may not, as [`choose_overdrawn`](Self::choose_overdrawn) sees it.
    pub(super) fn has_overdrawn(&self) -> bool {
        let plan = Plan::default();
        self.is_overdrawn(Engine::stays)
            || self.engines.iter().any(|engine| self.is_beside_its_group(engine.generation, &plan))
    }

    /// Whether those that are kept are more engines, or larger ones, than may be there. A single one always may.
    fn is_overdrawn(&self, kept: impl Fn(&Engine) -> bool) -> bool {
        let kept = self.engines.iter().filter(|engine| kept(engine));
        let (count, memory) = kept.fold((0, Memory::ZERO), |(count, memory), engine| {
            (count + 1, memory.saturating_add(engine.charge))
        });
        count > 1 && (count > self.settings.max_resident || !memory.fits_in(self.settings.budget))
    }

    /// Who may be made to go, the least worth first.
    fn candidates(&self, plan: &Plan, now: Moment) -> Vec<(Worth, Generation)> {
        let may_go = |engine: &&Engine| engine.stays() && !engine.profile.pinned && plan.spares(engine);
        let mut candidates: Vec<_> = self
            .engines
            .iter()
            .filter(may_go)
            .map(|engine| (self.worth(engine, now), engine.generation))
            .collect();
        candidates.sort_unstable();
        candidates
    }

    /// Whether its room is not to be had before somebody has been served.
    fn is_in_use(&self, engine: &Engine, now: Moment) -> bool {
        !engine.is_stopping() && self.worth(engine, now).0 != Class::Unused
    }

    /// An unused engine is worth what its reload costs, over the time since it was last needed. Of those that
    /// stand aside the first one goes on doing so, or else they would take turns at it; of the others the one whose
    /// turn began first is next.
    fn worth(&self, engine: &Engine, now: Moment) -> Worth {
        match engine.stage {
            Stage::Resident { .. } if engine.leases.is_empty() => {
                let reload = self
                    .models
                    .get(&engine.model)
                    .map_or(0, |model| model.measured.load.or_zero().as_nanos());
                let idle = now.saturating_since(engine.idle_since).as_nanos();
                (Class::Unused, reload.saturating_mul(1 << 32) / (idle + 1))
            }
            Stage::Loading if self.is_cancellable(engine, now) => (Class::Unused, 0),
            Stage::Resident { since } => match engine.pressure {
                Some(pressure) => (Class::StandsAside, pressure.number.into()),
                None => (Class::Used, since.as_nanos().into()),
            },
            Stage::Loading | Stage::Stopping { .. } => {
                (Class::AwaitedLoad, engine.launched.as_nanos().into())
            }
        }
    }

    /// Whether a load may be given up for a rival: nobody waits for it, and no more than half of it is done, as
    /// far as can be told from the loads before it.
    pub(super) fn is_cancellable(&self, engine: &Engine, now: Moment) -> bool {
        let Some(model) = self.models.get(&engine.model) else { return true };
        let elapsed = now.saturating_since(engine.launched);
        let half_done = model.measured.load.value().is_some_and(|load| elapsed.saturating_mul(2) > load);
        engine.is_loading() && model.queue.is_empty() && !half_done
    }
}

/// Of the candidates, the least worth first, as many as it takes until it `fits`; then whoever turns out to be needless
/// stays after all, the most valued first. `None` if it does not fit without all of them.
fn fewest<'a>(
    candidates: impl Iterator<Item = &'a (Worth, Generation)>,
    fits: impl Fn(&[Generation]) -> bool,
) -> Option<Vec<Generation>> {
    let mut chosen = Vec::new();
    let mut candidates = candidates.map(|(_, generation)| *generation);
    while !fits(&chosen) {
        chosen.push(candidates.next()?);
    }
    for index in (0..chosen.len()).rev() {
        let generation = chosen.remove(index);
        if !fits(&chosen) {
            chosen.insert(index, generation);
        }
    }
    Some(chosen)
}
