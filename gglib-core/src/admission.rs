//! Who may use which engine, and when: the queue as a state machine.

/// The number of one launch. A lease or an event of an older generation never touches a newer engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// Why a request was not admitted.
#[derive(Debug)]
pub struct Refusal;

/// What is loaded and what waits.
#[derive(Debug)]
pub struct Snapshot;
