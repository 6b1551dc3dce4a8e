//! What the machine looks like from outside, for status and metrics.

use std::time::Duration;

use super::Generation;
use crate::model::ModelName;

/// Engines, queues and totals at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The engines that exist.
    pub engines: Vec<EngineSnapshot>,
    /// The models that somebody waits for, the longest wait first.
    pub queue: Vec<QueueSnapshot>,
    /// Counted since the start.
    pub totals: Totals,
}

/// One engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSnapshot {
    /// Its model.
    pub model: ModelName,
    /// Its launch.
    pub generation: Generation,
    /// Where it stands.
    pub state: EngineState,
    /// Requests that use it.
    pub in_flight: usize,
    /// Requests that it serves at once.
    pub parallel: u32,
    /// Time since the launch.
    pub uptime: Duration,
    /// The process, once there is one; filled in by the driver.
    pub pid: Option<u32>,
    /// Where it listens; filled in by the driver.
    pub address: Option<String>,
}

/// Where an engine stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// Launched, not ready yet.
    Loading,
    /// Ready.
    Resident,
    /// Ready, but its turn is over: it serves what it has and is then stopped.
    Draining,
    /// Being stopped.
    Stopping,
}

impl EngineState {
    /// Stable text for status and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Resident => "resident",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
        }
    }
}

/// The waiters of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// The model.
    pub model: ModelName,
    /// How many wait.
    pub waiting: usize,
    /// The longest wait so far.
    pub oldest_wait: Duration,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Launches that became ready.
    pub loads: u64,
    /// Launches that did not.
    pub failed_loads: u64,
    /// Engines stopped so that another model could have its turn.
    pub swaps: u64,
    /// Engines that ended by themselves while resident.
    pub crashes: u64,
}
