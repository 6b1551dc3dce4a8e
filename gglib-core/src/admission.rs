//! Who may use which engine, and when: the queue as a state machine.
//!
//! [`Admission`] takes [`Event`]s with the current [`Moment`](crate::moment::Moment) and answers with
//! [`Command`]s; it never waits and never looks at a clock. One task owns it and carries the commands out.
//!
//! This version keeps one engine at a time. Its rules:
//!
//! - one launch per model, however many wait for it;
//! - "ready" and "in use" are one step: an engine that has loaded is leased to its first waiter before
//!   anything else can happen to it;
//! - an engine with leases is never stopped for another model;
//! - models take turns in the order of their oldest waiter. A turn serves whoever was waiting for the model
//!   when it began, and newcomers too as long as no other model waits; so overlapping traffic on one model
//!   cannot keep another one out, and a burst on one model costs one load;
//! - an engine takes as many requests at once as it was started for;
//! - a request that leaves gives up its place at once; a load that nobody waits for any more is finished
//!   unless another model is waited for;
//! - every wait is bounded twice: by the standstill of the queue (a load in progress holds that clock) and
//!   by its age;
//! - every launch has a [`Generation`], and nothing that belongs to an older one touches a newer one.

pub use command::{Command, Urgency};
pub use event::Event;
pub use machine::Admission;
pub use queue::Ticket;
pub use refusal::Refusal;
pub use settings::Settings;
pub use snapshot::{EngineSnapshot, EngineState, QueueSnapshot, Snapshot, Totals};

mod command;
mod engine;
mod event;
mod machine;
mod queue;
mod refusal;
mod settings;
mod snapshot;

/// The number of one launch, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// The right of one ticket's request to use the engine of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId {
    /// The launch.
    pub generation: Generation,
    /// The request.
    pub ticket: Ticket,
}
