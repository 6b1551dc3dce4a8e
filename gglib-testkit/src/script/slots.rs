//! What happens to slots that are saved and restored.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a launch that was started with `--slot-save-path` does with its slots. It then counts a word of a prompt as a
/// token, keeps the last prompt of each slot, and tells truly how much of the next one that was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlotScript {
    /// The nth save takes the nth, the last repeats; none means that every save works.
    pub saves: Vec<SlotReply>,
    /// The same of restores.
    pub restores: Vec<SlotReply>,
}

/// What becomes of one save or restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotReply {
    /// It works.
    #[default]
    Works,
    /// It works after this long.
    Late(Duration),
    /// An error with this status, and nothing is done.
    Status(u16),
    /// Half of the file is written, and the answer is 500, as on a full disk.
    Torn,
    /// It is said to have worked, and nothing is done.
    Lie,
    /// The launch dies, with half of the file written.
    Die,
}
