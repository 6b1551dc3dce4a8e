//! What the machine tells its driver.

use std::time::Duration;

use super::{Generation, LeaseId, Refusal, Ticket};
use crate::model::ModelName;

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Launch an engine; answer with `Loaded` or `LoadFailed`.
    Launch {
        /// The launch's number.
        generation: Generation,
        /// What to load.
        model: ModelName,
    },
    /// Stop the engine or cancel its load; answer with `Ended` (or `LoadFailed`, if that came first).
    Stop {
        /// The launch.
        generation: Generation,
        /// Whether the engine gets the time to end by itself.
        urgency: Urgency,
    },
    /// The request has its engine.
    Grant {
        /// To be given back with `Release`.
        lease: LeaseId,
    },
    /// The request's wait is over without one.
    Refuse {
        /// The request's place.
        ticket: Ticket,
        /// Why.
        refusal: Refusal,
        /// When it is worth asking again, from live facts; `None` when they do not tell.
        retry_after: Option<Duration>,
    },
}

/// How an engine is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It is ready and idle: ask it to end, kill it only after the grace.
    Graceful,
    /// It is dead, hung or still loading: kill it.
    Immediate,
}
