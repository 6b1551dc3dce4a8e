//! What the machine keeps of one configured model.

use std::sync::Arc;
use std::time::Duration;

use super::command::Command;
use super::measured::Measured;
use super::queue::{Queue, Waiter};
use super::{Profile, Refusal, Ticket};
use crate::memory::Memory;
use crate::moment::Moment;
use crate::retry::{BreakerSettings, CircuitBreaker};

#[derive(Debug)]
pub(super) struct Model {
    pub(super) profile: Profile,
    pub(super) queue: Queue,
    pub(super) measured: Measured,
    /// Of its loads.
    pub(super) breaker: CircuitBreaker,
    /// The failed loads since the last good one.
    pub(super) failures: u32,
    /// How many of its engines in a row have died before they had answered anything.
    pub(super) short_lives: u32,
    /// Why the last load failed.
    pub(super) reason: Option<Arc<str>>,
    /// When its queue last moved, or its engine became ready.
    pub(super) moved: Moment,
    /// The last ticket when its last turn ended: whoever had come by then goes before it.
    pub(super) behind: Ticket,
    /// Its load has died of memory; the next one is the last that its waiters wait for.
    pub(super) second_try: bool,
    /// It is to be loaded although nobody waits.
    pub(super) preload: bool,
    /// Another model has been stopped so that this one may have its turn.
    pub(super) room_was_made: bool,
}

impl Model {
    pub(super) fn new(profile: Profile, breaker: BreakerSettings) -> Self {
        Self {
            profile,
            queue: Queue::default(),
            measured: Measured::default(),
            breaker: CircuitBreaker::new(breaker),
            failures: 0,
            short_lives: 0,
            reason: None,
            moved: Moment::ORIGIN,
            behind: Ticket(0),
            second_try: false,
            preload: false,
            room_was_made: false,
        }
    }

    /// What its engine takes, as far as is known.
    pub(super) fn footprint(&self) -> Option<Memory> {
        self.measured().or(self.profile.footprint)
    }

    fn measured(&self) -> Option<Memory> {
        self.measured.footprint.or(self.profile.measured)
    }

    /// Whether it is not launched even alone: its estimate exceeds the budget, or its measurement does by more than a
    /// tenth, which is the least that the automatic budget leaves to the system. (By less it has run, and will again.)
    pub(super) fn is_too_large(&self, budget: Memory) -> bool {
        match self.measured() {
            Some(measured) => {
                let tenth = Memory { ram: budget.ram / 10, vram: budget.vram / 10 };
                !measured.fits_in(budget.saturating_add(tenth))
            }
            None => !self.profile.footprint.unwrap_or_default().fits_in(budget),
        }
    }

    pub(super) fn parallel(&self) -> u32 {
        self.profile.parallel.max(1)
    }

    /// Where it stands in the order of turns; nowhere if nobody waits for it.
    ///
    /// That is its oldest waiter's place, or right behind all others of the moment when its last turn ended.
    pub(super) fn order(&self) -> Option<(Ticket, bool, Ticket)> {
        let oldest = self.queue.oldest()?.ticket;
        Some((oldest.max(self.behind), oldest <= self.behind, oldest))
    }

    /// What is told while the breaker is open.
    pub(super) fn breaker_open(&self) -> Refusal {
        let reason = self.reason.clone().unwrap_or_else(|| "the last load failed".into());
        Refusal::BreakerOpen { failures: self.failures, reason }
    }

    /// Ends every wait for the model.
    pub(super) fn refuse_all(
        &mut self,
        refusal: &Refusal,
        retry_after: Option<Duration>,
        out: &mut Vec<Command>,
    ) {
        while let Some(Waiter { ticket, .. }) = self.queue.pop() {
            out.push(Command::Refuse { ticket, refusal: refusal.clone(), retry_after });
        }
    }
}
