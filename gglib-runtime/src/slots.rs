//! Saving the slots of an engine that is stopped, and restoring them into the next engine of its model.
//!
//! A [`SlotStore`] owns a directory and what is in it. Each engine's task holds an `EngineSlots`, which talks to
//! the engine: it restores before the engine is told ready, and saves before SIGTERM. What may be restored, and
//! whether that works, is decided in [`gglib_core::slots`].
//!
//! A crash of the machine, of an engine or of gglib costs at most what was not yet saved: a file counts from the
//! moment when it is whole on the disk and the manifest, replaced in one step, lists it.

pub use store::{OpenError, SlotStore};

pub(crate) use engine::{EngineSlots, Launched, RESTORE};

mod dir;
mod engine;
mod identity;
mod protocol;
mod store;
