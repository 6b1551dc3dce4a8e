//! What a waiting request can be told: its position, what it waits for, and for how long as far as is known.

use std::time::Duration;

use super::Ticket;
use super::engine::{Engine, Stage};
use super::machine::Admission;
use super::model::Model;
use super::slots::{Demand, Plan};
use super::turn::quantum;
use crate::model::ModelName;
use crate::moment::Moment;

/// How a wait stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The place in the model's queue; 1 is the next one to be served.
    pub position: usize,
    /// How long the wait still takes, from live facts: what is in progress, who is ahead, and how long loads and
    /// requests took so far. `None` when one of the numbers has not been measured yet.
    pub estimate: Option<Duration>,
    /// What is waited for.
    pub phase: WaitPhase,
    /// How much of the load is done, in percent below 100, if it takes as long as the loads before it. `None` in other
    /// phases, and until a load of the model has been measured.
    pub percent: Option<u8>,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitPhase {
    /// For its model's turn: other models have the memory.
    Turn,
    /// For its model's engine, which is being loaded.
    Loading,
    /// For a place at its model's engine, which is ready and busy.
    Place,
}

impl WaitPhase {
    /// Stable text for status, events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Loading => "loading",
            Self::Place => "place",
        }
    }
}

impl Admission {
    /// How the wait of `ticket` stands; `None` if it does not wait.
    ///
    /// Takes time in proportion to the number of models, not to that of waiters; it changes nothing.
    pub fn outlook(&self, ticket: Ticket, now: Moment) -> Option<Outlook> {
        let place = |(name, model): (&ModelName, &Model)| Some((name.clone(), model.queue.rank(ticket)?));
        let (name, rank) = self.models.iter().find_map(place)?;
        Some(self.outlook_at(&name, rank, ticket, now))
    }

    /// How the wait of a request for `name` would stand that came at `now`, behind `ahead` others that are to come
    /// before it; `None` if nobody configured it.
    pub fn outlook_for(&self, name: &ModelName, ahead: usize, now: Moment) -> Option<Outlook> {
        let rank = self.models.get(name)?.queue.len() + ahead;
        Some(self.outlook_at(name, rank, Ticket::NEWCOMER, now))
    }

    pub(super) fn outlook_at(&self, name: &ModelName, rank: usize, ticket: Ticket, now: Moment) -> Outlook {
        let (phase, percent) = match self.engine_of(name).filter(|engine| engine.stays()) {
            Some(engine) if engine.is_loading() => {
                (WaitPhase::Loading, self.models.get(name).and_then(|model| engine.percent(model, now)))
            }
            Some(engine) if engine.serves(ticket, now) => (WaitPhase::Place, None),
            _ => (WaitPhase::Turn, None),
        };
        Outlook { position: rank + 1, estimate: self.estimate(name, rank, ticket, now), phase, percent }
    }

    /// How long `ticket`, which has `rank` others before it in the model's queue, still waits.
    pub(super) fn estimate(
        &self,
        name: &ModelName,
        rank: usize,
        ticket: Ticket,
        now: Moment,
    ) -> Option<Duration> {
        let model = self.models.get(name)?;
        let load = model.measured.load.value();
        let Some(engine) = self.engine_of(name).filter(|engine| engine.stays()) else {
            let pause = model.breaker.retry_at(now).map_or(Duration::ZERO, |at| at.saturating_since(now));
            let turn = self.until_turn(name, model, now).max(pause);
            return Some(turn.saturating_add(load?).saturating_add(model.rounds(rank)?));
        };
        if engine.is_loading() {
            return Some(engine.until_ready(model, now)?.saturating_add(model.rounds(rank)?));
        }
        // The turns of the others, and the way back.
        let swap = || Some(self.turns_of(&self.applicants(), name).saturating_add(load?));
        if !engine.serves(ticket, now) {
            let rest = engine.until_released(model, now);
            return Some(rest.saturating_add(swap()?).saturating_add(model.rounds(rank)?));
        }
        let wait = engine.until_place(model, rank, now)?;
        let ends = engine.turn_ends(ticket).map(|end| end.saturating_since(now));
        // The same requests go first, on whatever engine.
        if ends.is_some_and(|end| end <= wait) { Some(wait.saturating_add(swap()?)) } else { Some(wait) }
    }

    /// How long it takes until a model without an engine gets its slot.
    fn until_turn(&self, name: &ModelName, model: &Model, now: Moment) -> Duration {
        let applicants = self.applicants();
        let ahead = applicants.iter().position(|other| other == name).unwrap_or(applicants.len());
        let demand =
            Demand { memory: model.footprint().unwrap_or_default(), group: model.profile.group.clone() };
        let own = self.engine_of(name).map_or(Duration::ZERO, |engine| self.until_gone(engine, now));
        let room = self.until_room(name, &demand, now).max(own);
        room.saturating_add(self.turns_of(&applicants[..ahead], name))
    }

    /// How long it takes until enough of those have gone who have to go, or do so anyway.
    fn until_room(&self, name: &ModelName, demand: &Demand, now: Moment) -> Duration {
        let chosen = self.choose(name, demand, &Plan::default(), now).unwrap_or_default();
        let goes = |engine: &&Engine| !engine.holds_room() || chosen.contains(&engine.generation);
        let leaving = self.engines.iter().filter(goes);
        let mut leaving: Vec<_> =
            leaving.map(|engine| (self.until_gone(engine, now), engine.generation)).collect();
        leaving.sort_unstable();
        let fits_without = |gone: usize| {
            let gone = &leaving[..gone];
            self.fits(demand, &[], |engine| gone.iter().all(|(_, it)| *it != engine.generation))
        };
        let count = (0..leaving.len()).find(|gone| fits_without(*gone)).unwrap_or(leaving.len());
        count.checked_sub(1).map_or(Duration::ZERO, |last| leaving[last].0)
    }

    /// The loads and turns of `models`, one after the other; `waiter` comes after them.
    fn turns_of(&self, models: &[ModelName], waiter: &ModelName) -> Duration {
        models.iter().filter(|name| *name != waiter).fold(Duration::ZERO, |sum, name| {
            let Some(model) = self.models.get(name) else { return sum };
            let quantum = quantum(self.settings.quantum, self.switch_cost(name, waiter));
            let turn = model.rounds(model.queue.len()).map_or(quantum, |own| own.min(quantum));
            sum.saturating_add(model.measured.load.or_zero()).saturating_add(turn)
        })
    }

    /// How long an engine is still there, if it has to make room.
    fn until_gone(&self, engine: &Engine, now: Moment) -> Duration {
        let Some(model) = self.models.get(&engine.model) else { return Duration::ZERO };
        let stop = model.measured.stop.or_zero();
        let turn = match engine.stage {
            Stage::Stopping { since } => return stop.saturating_sub(now.saturating_since(since)),
            Stage::Loading => engine.until_ready(model, now).unwrap_or_default(),
            Stage::Resident { .. } => engine.until_released(model, now),
        };
        if engine.retiring {
            // It serves nobody any more.
            return turn.saturating_add(stop);
        }
        let own = model.rounds(model.queue.len()).unwrap_or(self.settings.quantum);
        let limit = engine.turn_ends(self.last_ticket);
        let own = limit.map_or(own, |end| own.min(end.saturating_since(now)));
        turn.saturating_add(own).saturating_add(stop)
    }
}

impl Model {
    /// How long it takes to serve `count` requests, as many at once as its engine takes; the first ones begin at
    /// once. `None` when that has to be known and is not.
    pub(super) fn rounds(&self, count: usize) -> Option<Duration> {
        let rounds = u32::try_from(count / self.parallel() as usize).unwrap_or(u32::MAX);
        if rounds == 0 {
            Some(Duration::ZERO)
        } else {
            Some(self.measured.service.value()?.saturating_mul(rounds))
        }
    }
}

impl Engine {
    /// What is left of a load; `None` when no load of the model has been measured.
    fn until_ready(&self, model: &Model, now: Moment) -> Option<Duration> {
        Some(model.measured.load.value()?.saturating_sub(now.saturating_since(self.launched)))
    }

    /// How much of a load is done, by the loads before it.
    fn percent(&self, model: &Model, now: Moment) -> Option<u8> {
        let (load, elapsed) = (model.measured.load.value()?, now.saturating_since(self.launched));
        let percent = elapsed.as_nanos().saturating_mul(100).checked_div(load.as_nanos()).unwrap_or(99);
        Some(u8::try_from(percent).unwrap_or(99).min(99))
    }

    /// Until the last of the present leases is back.
    fn until_released(&self, model: &Model, now: Moment) -> Duration {
        let youngest = self.leases.iter().map(|held| now.saturating_since(held.since)).min();
        youngest.map_or(Duration::ZERO, |age| model.measured.service.or_zero().saturating_sub(age))
    }

    /// Until the waiter with `rank` others before it has its place.
    fn until_place(&self, model: &Model, rank: usize, now: Moment) -> Option<Duration> {
        let parallel = self.parallel() as usize;
        let free = parallel.saturating_sub(self.leases.len());
        let Some(releases) = (rank + 1).checked_sub(free).filter(|count| *count > 0) else {
            return Some(Duration::ZERO);
        };
        let service = model.measured.service.value()?;
        let rounds = u32::try_from(releases.div_ceil(parallel)).unwrap_or(u32::MAX);
        let oldest = self.leases.iter().map(|held| now.saturating_since(held.since)).max();
        Some(service.saturating_mul(rounds).saturating_sub(oldest.unwrap_or_default().min(service)))
    }
}
