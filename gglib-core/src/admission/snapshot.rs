//! What the machine looks like from outside, for status and metrics.

use std::sync::Arc;
use std::time::Duration;

use super::engine::{Engine, Stage};
use super::machine::Admission;
use super::model::Model;
use super::{Generation, Outlook, Ticket};
use crate::memory::Memory;
use crate::model::ModelName;
use crate::moment::Moment;
use crate::retry::BreakerState;

/// Engines, queues and totals at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The engines that exist, the oldest launch first.
    pub engines: Vec<EngineSnapshot>,
    /// The models that somebody waits for, the longest wait first.
    pub queue: Vec<QueueSnapshot>,
    /// The models whose last load has failed, by name.
    pub breakers: Vec<BreakerSnapshot>,
    /// What has been measured of every configured model, by name.
    pub models: Vec<ModelSnapshot>,
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
    /// What it was estimated to take when it was launched, if anything was known.
    pub estimated: Option<Memory>,
    /// What it took when it was ready, if that could be measured.
    pub measured: Option<Memory>,
    /// It is not stopped for others.
    pub pinned: bool,
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
    /// How long whoever comes now will wait, as far as can be told.
    pub estimate: Option<Duration>,
    /// The first of them, in their order; at most [`SHOWN`](Self::SHOWN).
    pub first: Vec<WaiterSnapshot>,
}

impl QueueSnapshot {
    /// How many waiters are shown one by one.
    pub const SHOWN: usize = 5;
}

/// One waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterSnapshot {
    /// How long it has waited.
    pub waited: Duration,
    /// How its wait stands.
    pub outlook: Outlook,
}

/// What has been measured of a model since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSnapshot {
    /// The model.
    pub model: ModelName,
    /// Its launches that became ready.
    pub loads: u64,
    /// How long they took, all together.
    pub loading: Duration,
    /// How often a busy engine of it becomes free for one more request: the mean time of an answer, divided by the
    /// answers at once. `None` before the first answer.
    pub interval: Option<Duration>,
}

/// A model that could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerSnapshot {
    /// The model.
    pub model: ModelName,
    /// Open: no load is tried. Half open: a single load is tried, or will be with the next request.
    pub state: BreakerState,
    /// Until the next load may be tried; `None` if it may be now.
    pub retry_in: Option<Duration>,
    /// Failed loads in a row.
    pub failures: u32,
    /// Why the last one failed, with the engine's last words.
    pub reason: Arc<str>,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Launches that became ready.
    pub loads: u64,
    /// Launches that did not.
    pub failed_loads: u64,
    /// Launches that were given up before they were ready.
    pub cancelled_loads: u64,
    /// Launches for which another model had to make room.
    pub swaps: u64,
    /// Engines stopped to make room.
    pub evictions: u64,
    /// Resident engines that ended by themselves, or were found dead or hanging.
    pub crashes: u64,
    /// Engines stopped because they had come to take much more memory than when they were ready.
    pub recycles: u64,
    /// Waits that were ended by one of their bounds.
    pub expired: u64,
}

impl Admission {
    /// How it stands at `now`.
    pub fn snapshot(&self, now: Moment) -> Snapshot {
        let mut engines: Vec<_> = self.engines.iter().map(|engine| engine.snapshot(now)).collect();
        engines.sort_unstable_by_key(|engine| engine.generation);
        let models = self.models.iter().map(|(name, model)| model.snapshot(name)).collect();
        Snapshot {
            engines,
            queue: self.queues(now),
            breakers: self.breakers(now),
            models,
            totals: self.totals,
        }
    }

    fn queues(&self, now: Moment) -> Vec<QueueSnapshot> {
        let mut waiting: Vec<_> = self
            .models
            .iter()
            .filter_map(|(name, model)| Some((model.queue.oldest()?, name, &model.queue)))
            .collect();
        waiting.sort_unstable_by_key(|(oldest, ..)| oldest.ticket);
        waiting
            .into_iter()
            .map(|(oldest, name, queue)| QueueSnapshot {
                model: name.clone(),
                waiting: queue.len(),
                oldest_wait: now.saturating_since(oldest.since),
                estimate: self.estimate(name, queue.len(), Ticket::NEWCOMER, now),
                first: (queue.iter().take(QueueSnapshot::SHOWN).enumerate())
                    .map(|(rank, waiter)| WaiterSnapshot {
                        waited: now.saturating_since(waiter.since),
                        outlook: self.outlook_at(name, rank, waiter.ticket, now),
                    })
                    .collect(),
            })
            .collect()
    }

    fn breakers(&self, now: Moment) -> Vec<BreakerSnapshot> {
        let failed =
            self.models.iter().filter_map(|(name, model)| Some((name, model, model.reason.clone()?)));
        failed
            .map(|(name, model, reason)| {
                let retry_at = self.pause_ends(name, model, now);
                let state = if retry_at.is_some() { BreakerState::Open } else { BreakerState::HalfOpen };
                BreakerSnapshot {
                    model: name.clone(),
                    state,
                    retry_in: retry_at.map(|at| at.saturating_since(now)),
                    failures: model.failures,
                    reason,
                }
            })
            .collect()
    }
}

impl Model {
    fn snapshot(&self, name: &ModelName) -> ModelSnapshot {
        ModelSnapshot {
            model: name.clone(),
            loads: self.measured.loads,
            loading: self.measured.loading,
            interval: self.measured.service.value().map(|service| service / self.parallel()),
        }
    }
}

impl Engine {
    fn snapshot(&self, now: Moment) -> EngineSnapshot {
        let state = match self.stage {
            Stage::Loading => EngineState::Loading,
            Stage::Resident { .. } if self.stands_aside(now) => EngineState::Draining,
            Stage::Resident { .. } => EngineState::Resident,
            Stage::Stopping { .. } => EngineState::Stopping,
        };
        EngineSnapshot {
            model: self.model.clone(),
            generation: self.generation,
            state,
            in_flight: self.leases.len(),
            parallel: self.parallel(),
            uptime: now.saturating_since(self.launched),
            estimated: self.estimated,
            measured: self.measured,
            pinned: self.profile.pinned,
            pid: None,
            address: None,
        }
    }
}
