//! One engine: a launch, from the order to launch it until its memory is back.

use std::time::Duration;

use super::queue::Ticket;
use super::turn::Pressure;
use super::{Generation, Profile};
use crate::memory::Memory;
use crate::model::ModelName;
use crate::moment::Moment;
use crate::retry::Permit;

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) model: ModelName,
    pub(super) generation: Generation,
    /// The model's, as the engine was started.
    pub(super) profile: Profile,
    pub(super) launched: Moment,
    pub(super) stage: Stage,
    pub(super) leases: Vec<Held>,
    /// Since when nobody uses it, if nobody does.
    pub(super) idle_since: Moment,
    /// What the budget is charged with.
    pub(super) charge: Memory,
    /// What the launch was planned with.
    pub(super) estimated: Option<Memory>,
    pub(super) measured: Option<Memory>,
    /// Somebody who cannot be resident beside it waits.
    pub(super) pressure: Option<Pressure>,
    /// It takes nobody any more and ends when its leases are back, whoever waits.
    pub(super) retiring: bool,
    /// It takes much more than when it was ready: it stands aside, and ends as soon as nobody uses it.
    pub(super) outgrown: bool,
    /// When it gave its first whole answer, if it has.
    pub(super) first_answer: Option<Moment>,
    /// Of the model's breaker, while it loads, and until it has answered if others before it have died first.
    pub(super) permit: Option<Permit>,
    /// The load before this one has died of memory.
    pub(super) second_try: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Loading,
    Resident { since: Moment },
    Stopping { since: Moment },
}

/// One lease, and since when it is out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) ticket: Ticket,
    pub(super) since: Moment,
}

impl Engine {
    pub(super) fn parallel(&self) -> u32 {
        self.profile.parallel.max(1)
    }

    pub(super) fn has_room(&self) -> bool {
        self.leases.len() < self.parallel() as usize
    }

    pub(super) fn is_loading(&self) -> bool {
        self.stage == Stage::Loading
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.stage, Stage::Stopping { .. })
    }

    /// Ready and unused. (What may be granted has been, so nobody waits for it who may have it.)
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Resident { .. }) && self.leases.is_empty()
    }

    /// Whether it stays if nobody makes it go.
    pub(super) fn stays(&self) -> bool {
        !self.retiring && !self.is_stopping()
    }

    /// Whether its room is not to be had unless somebody makes it go.
    pub(super) fn holds_room(&self) -> bool {
        self.stays() || self.keeps_its_place()
    }

    /// Whether nobody else is ever given its room: it is pinned, and is there or will be back at once.
    pub(super) fn keeps_its_place(&self) -> bool {
        self.profile.pinned && !self.retiring && (!self.is_stopping() || self.outgrown)
    }

    /// Takes a lease back and says for how long it was out.
    pub(super) fn take_back(&mut self, ticket: Ticket, now: Moment) -> Option<Duration> {
        let index = self.leases.iter().position(|held| held.ticket == ticket)?;
        let held = self.leases.swap_remove(index);
        if self.leases.is_empty() {
            self.idle_since = now;
        }
        Some(now.saturating_since(held.since))
    }
}
