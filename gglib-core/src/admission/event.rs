//! What the machine is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Generation, LeaseId, Profile, Settings, Ticket};
use crate::memory::Memory;
use crate::model::ModelName;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request wants the model.
    Arrive {
        /// The request's place; tickets rise in the order of arrival.
        ticket: Ticket,
        /// What it wants.
        model: ModelName,
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
        /// What it takes, if that could be measured.
        footprint: Option<Memory>,
    },
    /// A launch failed; its process is gone and its memory is back.
    LoadFailed {
        /// The launch.
        generation: Generation,
        /// Why.
        failure: LoadFailure,
    },
    /// The engine was found dead or unresponsive: it must go, leases or not.
    Condemn {
        /// The launch.
        generation: Generation,
    },
    /// The engine has given a whole answer, for the first time.
    Answered {
        /// The launch.
        generation: Generation,
    },
    /// The engine takes so much more than when it was ready that it is to stand aside, and to be launched anew.
    Outgrown {
        /// The launch.
        generation: Generation,
    },
    /// The engine's process is gone, asked to or by itself, and its memory is back.
    Ended {
        /// The launch.
        generation: Generation,
    },
    /// What the model's engine will take, by its files.
    Estimated {
        /// The model.
        model: ModelName,
        /// By its header. Takes the place of what was known.
        footprint: Memory,
        /// What has been measured of this very file, if anything has; that counts instead.
        measured: Option<Memory>,
    },
    /// The model's file was looked at before anything was stopped for it, and cannot be loaded. Counts as a failed
    /// load, unless an engine is there that needs the file no more.
    Unloadable {
        /// The model.
        model: ModelName,
        /// Why.
        reason: Arc<str>,
    },
    /// Load the models that want it, as far as there is room: told once, at the start.
    Preload,
    /// The configuration has changed. Models that it leaves as they were keep their engines.
    Configure {
        /// The new bounds.
        settings: Settings,
        /// Every model that is configured now, with its estimate.
        profiles: BTreeMap<ModelName, Profile>,
        /// Of the names that no longer are a model's, those that still mean one, as its aliases.
        renamed: BTreeSet<ModelName>,
        /// Of the models, those whose files cannot be loaded, and why: see [`Unloadable`](Self::Unloadable).
        unloadable: BTreeMap<ModelName, Arc<str>>,
    },
    /// gglib shuts down: nobody is admitted any more.
    Drain,
    /// A deadline may have passed.
    Tick,
}

/// Why a launch did not become ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFailure {
    /// What happened, with the engine's last words; shared by all who are told.
    pub reason: Arc<str>,
    /// It died of memory, so that it may succeed with more of it.
    pub out_of_memory: bool,
}
