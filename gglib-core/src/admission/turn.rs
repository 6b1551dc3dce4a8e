//! How long a resident model may go on while a rival waits.

use std::time::Duration;

use super::engine::{Engine, Stage};
use super::queue::Ticket;
use super::settings::{SWITCH_COST_FACTOR, TURN_LIMIT};
use crate::moment::Moment;

/// A rival waits that cannot be resident beside this engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Since when the engine is ready and the rival waits.
    pub(super) since: Moment,
    /// The last ticket at that moment: whoever waited by then is served within the turn.
    pub(super) gate: Ticket,
    pub(super) quantum: Duration,
    /// Which pressure of all it is: the earlier one goes on when there is a choice.
    pub(super) number: u64,
}

/// The quantum of a turn that ends with a switch of this cost.
pub(super) fn quantum(configured: Duration, switch_cost: Duration) -> Duration {
    // A turn is never shorter than the instant in which it begins, so that it serves somebody.
    configured.max(switch_cost.saturating_mul(SWITCH_COST_FACTOR)).max(Duration::from_nanos(1))
}

impl Engine {
    /// Whether the model's turn is still that of `ticket`.
    pub(super) fn serves(&self, ticket: Ticket, now: Moment) -> bool {
        matches!(self.stage, Stage::Resident { .. })
            && !self.retiring
            && self.turn_ends(ticket).is_none_or(|end| now < end)
    }

    /// Until when the turn is `ticket`'s, if it ends at all.
    ///
    /// Without pressure it does not. Under pressure it is a newcomer's until one quantum after the engine became
    /// ready, and until `TURN_LIMIT` quanta after the pressure began that of whoever waited by then.
    pub(super) fn turn_ends(&self, ticket: Ticket) -> Option<Moment> {
        let Stage::Resident { since: ready } = self.stage else { return None };
        let Pressure { since, gate, quantum, .. } = self.pressure?;
        let own = ready.saturating_add(quantum);
        let limit = since.saturating_add(quantum.saturating_mul(TURN_LIMIT));
        Some(if ticket <= gate { own.max(limit) } else { own })
    }

    /// Whether it stands aside: it finishes what it has, and who comes now waits for another turn.
    pub(super) fn stands_aside(&self, now: Moment) -> bool {
        matches!(self.stage, Stage::Resident { .. }) && !self.serves(Ticket::NEWCOMER, now)
    }
}
