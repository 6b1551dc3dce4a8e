//! The engine that occupies the slot.

use std::collections::BTreeSet;

use super::Generation;
use super::queue::Ticket;
use super::snapshot::{EngineSnapshot, EngineState};
use crate::model::ModelName;
use crate::moment::Moment;

/// What occupies the slot.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) model: ModelName,
    pub(super) generation: Generation,
    pub(super) parallel: u32,
    pub(super) launched: Moment,
    pub(super) leases: BTreeSet<Ticket>,
    pub(super) stage: Stage,
    /// The turn serves waiters up to this ticket while another model waits.
    pub(super) gate: Ticket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Loading,
    Resident,
    Stopping,
}

impl Engine {
    pub(super) fn has_room(&self) -> bool {
        self.leases.len() < self.parallel as usize
    }

    pub(super) fn snapshot(&self, turn_is_over: bool, now: Moment) -> EngineSnapshot {
        let state = match self.stage {
            Stage::Loading => EngineState::Loading,
            Stage::Resident if turn_is_over => EngineState::Draining,
            Stage::Resident => EngineState::Resident,
            Stage::Stopping => EngineState::Stopping,
        };
        EngineSnapshot {
            model: self.model.clone(),
            generation: self.generation,
            state,
            in_flight: self.leases.len(),
            parallel: self.parallel,
            uptime: now.saturating_since(self.launched),
            pid: None,
            address: None,
        }
    }
}
