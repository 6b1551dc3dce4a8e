//! What the machine is told.

use super::{Generation, LeaseId, Ticket};
use crate::model::ModelName;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request wants the model; its engine serves `parallel` requests at once (at least 1).
    Arrive {
        /// The request's place; tickets rise in the order of arrival.
        ticket: Ticket,
        /// What it wants.
        model: ModelName,
        /// What the model's engine is, or would be, started with.
        parallel: u32,
    },
    /// A waiting request's client has gone. Unknown tickets are ignored.
    Leave {
        /// The request's place.
        ticket: Ticket,
    },
    /// A lease was given back. Leases of other generations are ignored.
    Release {
        /// The lease.
        lease: LeaseId,
    },
    /// A launch became ready.
    Loaded {
        /// The launch.
        generation: Generation,
    },
    /// A launch failed; its process is gone.
    LoadFailed {
        /// The launch.
        generation: Generation,
        /// What happened, with the engine's last words.
        reason: String,
    },
    /// The engine was found dead or unresponsive: it must go, leases or not.
    Condemn {
        /// The launch.
        generation: Generation,
    },
    /// The engine's process is gone, asked to or by itself.
    Ended {
        /// The launch.
        generation: Generation,
    },
    /// gglib shuts down: nobody is admitted any more.
    Drain,
    /// A deadline may have passed.
    Tick,
}
