//! The bounds of waiting and of residency, and what is known of each model beforehand.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::memory::Memory;
use crate::model::ModelSpec;
use crate::retry::BreakerSettings;

/// A turn lasts at least this many times what the switch to the rival costs.
///
/// So a machine on which everybody always waits spends at most one part in `SWITCH_COST_FACTOR + 1` of its time on
/// switching.
pub const SWITCH_COST_FACTOR: u32 = 4;

/// Who waited already when a turn began is served within it, up to this many quanta.
///
/// So a burst costs one load of its model even if it takes longer than a quantum, and yet no turn lasts for ever.
pub const TURN_LIMIT: u32 = 3;

/// See the `[admission]` and `[memory]` sections of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A waiter is refused after this long in which the queue did not move and no load was in progress.
    pub stall: Duration,
    /// A waiter is refused after this long in any case.
    pub max_wait: Duration,
    /// Waiters per model; one more is refused at once.
    pub queue: usize,
    /// A turn lasts at least this long while somebody wants it, however cheap a switch is.
    pub quantum: Duration,
    /// Engines at once, whatever their state; at least 1.
    pub max_resident: usize,
    /// What all engines together may take.
    pub budget: Memory,
    /// For how long a model is left alone whose load has failed.
    pub breaker: BreakerSettings,
}

impl Default for Settings {
    /// One engine at a time, whatever it takes; otherwise the defaults of the configuration.
    fn default() -> Self {
        Self {
            stall: Duration::from_secs(180),
            max_wait: Duration::from_secs(600),
            queue: 256,
            quantum: Duration::from_secs(20),
            max_resident: 1,
            budget: Memory::UNBOUNDED,
            breaker: BreakerSettings::MODEL_LOAD,
        }
    }
}

/// What admission has to know of one configured model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// How many requests its engine serves at once; 0 counts as 1.
    pub parallel: u32,
    /// What its engine is estimated to take, until it has been measured. Unknown counts as nothing.
    pub footprint: Option<Memory>,
    /// What an engine of it took when it was ready, in an earlier run. Counts instead of the estimate.
    pub measured: Option<Memory>,
    /// Once resident, it stays, whoever else waits.
    pub pinned: bool,
    /// An idle engine is stopped after this long. Does not apply to a pinned one.
    pub ttl: Option<Duration>,
    /// It is loaded at the start if there is room, without anybody waiting for it.
    pub preload: bool,
    /// Models of the same group are never resident together.
    pub group: Option<String>,
    /// Stands for everything that its engine is started with. A model whose revision changes with the
    /// configuration is launched anew; any other change leaves its engine as it is.
    pub revision: u64,
}

impl Default for Profile {
    /// One request at a time; nothing else is known or wanted.
    fn default() -> Self {
        Self {
            parallel: 1,
            footprint: None,
            measured: None,
            pinned: false,
            ttl: None,
            preload: false,
            group: None,
            revision: 0,
        }
    }
}

impl Profile {
    /// The profile of a configured model, its footprint unknown.
    pub fn of(spec: &ModelSpec) -> Self {
        let mut hasher = DefaultHasher::new();
        (&spec.path, spec.context, spec.parallel, &spec.args).hash(&mut hasher);
        Self {
            parallel: spec.parallel,
            footprint: None,
            measured: None,
            pinned: spec.pin,
            ttl: spec.ttl,
            preload: spec.preload,
            group: spec.group.clone(),
            revision: hasher.finish(),
        }
    }
}
