//! The bounds of waiting: standstill and age.

use super::command::Command;
use super::engine::{Engine, Stage};
use super::machine::Admission;
use super::model::Model;
use super::queue::{Ticket, Waiter};
use super::{Refusal, Settings};
use crate::model::ModelName;
use crate::moment::Moment;

impl Admission {
    /// The next moment at which `Tick` is due, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Moment> {
        let ends = self.models.iter().filter_map(|(name, model)| {
            Some(self.deadline(self.stall_clock(name, model), model.queue.oldest()?).0)
        });
        ends.chain(self.engines.iter().filter_map(Engine::outlives)).min()
    }

    /// Refuses every waiter whose time is over. The oldest of a queue is always the first.
    pub(super) fn expire(&mut self, now: Moment, out: &mut Vec<Command>) {
        let is_over = |machine: &Self, name: &ModelName, model: &Model| {
            let oldest = model.queue.oldest()?;
            (machine.deadline(machine.stall_clock(name, model), oldest).0 <= now).then(|| name.clone())
        };
        let over =
            |machine: &Self| machine.models.iter().find_map(|(name, model)| is_over(machine, name, model));
        while let Some(name) = over(self) {
            let newcomer = self.models[&name].queue.len();
            let retry_after = self.estimate(&name, newcomer, Ticket::NEWCOMER, now);
            let clock = self.stall_clock(&name, &self.models[&name]);
            while let Some(oldest) = self.models[&name].queue.oldest() {
                let (end, refusal) = self.deadline(clock, oldest);
                if end > now {
                    break;
                }
                if let Some(model) = self.models.get_mut(&name) {
                    model.queue.pop();
                }
                self.totals.expired += 1;
                out.push(Command::Refuse { ticket: oldest.ticket, refusal, retry_after });
            }
        }
    }

    /// When a waiter's time is over, and what it is told then.
    fn deadline(&self, clock: Option<Moment>, waiter: Waiter) -> (Moment, Refusal) {
        let Settings { stall, max_wait, .. } = self.settings;
        let too_long = (waiter.since.saturating_add(max_wait), Refusal::WaitedTooLong { after: max_wait });
        let Some(moved) = clock else { return too_long };
        let stalled = (waiter.since.max(moved).saturating_add(stall), Refusal::Stalled { after: stall });
        if stalled.0 < too_long.0 { stalled } else { too_long }
    }

    /// Since when a model's waiters have seen nothing move; `None` while a load holds the clock.
    ///
    /// For a resident model, its own queue counts. One that waits for a slot sees everybody's movement, since
    /// all of it brings its turn nearer.
    fn stall_clock(&self, name: &ModelName, model: &Model) -> Option<Moment> {
        match self.engine_of(name).map(|engine| engine.stage) {
            Some(Stage::Loading) => None,
            Some(Stage::Resident { .. }) => Some(model.moved),
            _ if self.engines.iter().any(Engine::is_loading) => None,
            _ => Some(self.moved),
        }
    }
}

impl Engine {
    /// When an idle engine has not been used for its `ttl`.
    pub(super) fn outlives(&self) -> Option<Moment> {
        let ttl = self.profile.ttl.filter(|_| self.is_idle() && !self.profile.pinned)?;
        Some(self.idle_since.saturating_add(ttl))
    }
}
