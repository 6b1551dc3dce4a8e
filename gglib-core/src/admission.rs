//! Who may use which engine, and when: the queue as a state machine.
//!
//! [`Admission`] takes [`Event`]s with the current [`Moment`](crate::moment::Moment) and answers with
//! [`Command`]s; it never waits and never looks at a clock. One task owns it and carries the commands out.
//!
//! # Rules
//!
//! **Launches.** There is one launch per model, however many wait for it, and every launch has a [`Generation`];
//! nothing that belongs to an older one touches a newer one. "Ready" and "in use" are one step: an engine that has
//! loaded is leased to its first waiters before anything else can happen to it. An engine takes as many requests at
//! once as it was started for.
//!
//! **Slots.** As many engines are there at once as [`max_resident`](Settings::max_resident) and the memory
//! [`budget`](Settings::budget) allow, each charged with what it was measured to take, or else with its estimate, from
//! the order to launch it until its memory is back. Models of one [`group`](Profile::group) are never there together.
//! Models that are waited for and have no engine get their slots in the order of their oldest waiter; one whose turn has
//! just ended goes behind all who wait by then. If the first one does not fit, the cheapest set of engines that is in
//! its way has to go: unused ones first (by what a reload costs over the time since they were needed), also while an engine
//! that is to go anyway still serves somebody, and else those whose turn began first. An engine with leases is never stopped for another model, nor is a
//! [`pinned`](Profile::pinned) one.
//!
//! **Turns.** Under this pressure a resident model stands aside: it serves newcomers until its quantum is over, and
//! whoever waited when the pressure began for up to [`TURN_LIMIT`] quanta; then it finishes what it has and goes. It
//! goes at once when nobody uses it. The quantum is the configured one or [`SWITCH_COST_FACTOR`] times the measured
//! cost of the switch, whichever is longer. Without a rival a turn does not end.
//!
//! **Fairness.** So the oldest waiter of any model has its engine ready within
//!
//! > *number of waiting models* × (`TURN_LIMIT` × *quantum* + *switch cost* + *longest running generation*)
//!
//! where the switch cost is that of stopping one engine and loading another; a load that fails counts as one that
//! lasts as long as the driver lets it (`engine.load_limit`). A turn exceeds one quantum only by those who waited
//! when it began.
//!
//! **Loads that fail** are told to whoever waits for them, and open a breaker of the model: for 10 s, doubling up to
//! 5 min ([`BreakerSettings::MODEL_LOAD`](crate::retry::BreakerSettings::MODEL_LOAD)); then one load is tried. A load
//! that has died of memory is tried once more when every engine has been stopped that is neither in use nor pinned; nothing
//! is launched before it or beside it.
//!
//! **Waits** are bounded twice: by the standstill of the queue (a load in progress holds that clock) and by their age.
//! Who would wait longer than that, by the measured time of the answers before its own, is refused at once.
//! A request that leaves gives up its place at once. A load that nobody waits for any more goes on if nobody is in need
//! of its room or if more than half of it is done; else it is cancelled.
//!
//! An engine that has not been used for its [`ttl`](Profile::ttl) is stopped. So is one that has outgrown what it took when
//! it was ready: it stands aside, as for a rival, and goes when nobody uses it; a pinned one is then launched anew at once.

pub use command::{Command, Urgency};
pub use event::{Event, LoadFailure};
pub use machine::Admission;
pub use outlook::{Outlook, WaitPhase};
pub use queue::Ticket;
pub use refusal::Refusal;
pub use settings::{Profile, SWITCH_COST_FACTOR, Settings, TURN_LIMIT};
pub use snapshot::{
    BreakerSnapshot, EngineSnapshot, EngineState, ModelSnapshot, QueueSnapshot, Snapshot, Totals,
    WaiterSnapshot,
};

mod command;
mod crash;
mod engine;
mod event;
mod eviction;
mod load;
mod machine;
mod measured;
mod model;
mod outlook;
mod queue;
mod refusal;
mod reload;
mod settings;
mod slots;
mod snapshot;
mod turn;
mod wait;

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
