//! What engines were seen to take.

/// The memory of one engine's process group, in bytes, as it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Footprint {
    /// Main memory of its own: not backed by a file, so only its end gives it back.
    pub anonymous: u64,
    /// Of model files that it has mapped, each counted once.
    pub mapped: u64,
    /// Of its own too, but on the disk by now: what a growing engine hides in swap. Not remembered.
    #[serde(skip)]
    pub swapped: u64,
    /// Memory of GPUs; zero where none can be asked.
    pub vram: u64,
}
