//! What an engine has read, kept over its end.
//!
//! The KV cache of a conversation dies with its engine, and reading a long prompt again takes longer than loading
//! the model. So an engine that is stopped in good order saves its slots to files, and the next engine of the same
//! model restores them. This module decides; `gglib-runtime` talks to engines and disks.
//!
//! - [`Manifest`]: which file belongs to which slot of which model; a file that it does not list does not exist.
//! - [`Key`]: what must be the same for a saved slot to be of use.
//! - [`Conversation`]: whether a request goes on where another one ended, by its body alone.
//! - [`Verdicts`]: whether restoring works, by the engine's own count of cached tokens.

pub use conversation::Conversation;
pub use key::{FileIdentity, Key};
pub use manifest::{Entry, MANIFEST_VERSION, Manifest, ManifestError, SwitchedOff, file_name, file_number};
pub use verdict::{PromptCounts, Remembered, Verdict, Verdicts};

mod conversation;
mod key;
mod manifest;
mod verdict;

use crate::admission::Generation;
use crate::model::ModelName;

/// Who is told what engines are asked and how much of each prompt they had in their cache.
///
/// The proxy tells; the runtime, which restores slots, learns from it whether that works.
pub trait SlotWitness: Send + Sync {
    /// A request is about to be sent to the engine of this generation. From now on it is unknown what its slots
    /// hold, until the request's answer is told.
    fn asked(&self, generation: Generation);

    /// The answer to a request is whole. `conversation` is what was asked, if that can be told from its body.
    fn answered(&self, generation: Generation, conversation: Option<&Conversation>, counts: PromptCounts);

    /// What has come of it all so far.
    fn snapshot(&self) -> SlotsSnapshot;
}

/// Saved slots at one moment, for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotsSnapshot {
    /// What the saved slots take on the disk, in bytes.
    pub bytes: u64,
    /// Slots saved since the start.
    pub saved: u64,
    /// Saves that failed.
    pub failed_saves: u64,
    /// Slots restored since the start.
    pub restored: u64,
    /// Restored engines whose first answer has proved it.
    pub verified: u64,
    /// Models for which nothing is saved any more, since restoring was found not to work.
    pub switched_off: Vec<ModelName>,
}
