//! Amounts of memory, by where they lie; what engines were seen to take, and what to do when it is short.

pub use death::{Death, died_of_memory};
pub use footprint::Footprint;
pub use footprints::{BadRecord, Footprints, Launched};
pub use probe::{Machine, MemoryProbe};
pub use wait::{Look, MemoryWait, expected_after_stop};

mod death;
mod footprint;
mod footprints;
mod probe;
mod wait;

/// An amount of memory in bytes: what an engine takes, what a machine has, what a budget allows.
///
/// On a machine without a GPU, `vram` is zero everywhere. Arithmetic saturates.
///
/// ```
/// use gglib_core::memory::Memory;
///
/// let budget = Memory { ram: 8 << 30, vram: 0 };
/// let engine = Memory { ram: 3 << 30, vram: 0 };
/// assert!(engine.saturating_add(engine).fits_in(budget));
/// assert!(!engine.fits_in(budget.saturating_sub(engine).saturating_sub(engine)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Main memory, in bytes.
    pub ram: u64,
    /// Memory of GPUs, in bytes.
    pub vram: u64,
}

impl Memory {
    /// Nothing.
    pub const ZERO: Self = Self { ram: 0, vram: 0 };

    /// More than any machine has: the budget that bounds nothing.
    pub const UNBOUNDED: Self = Self { ram: u64::MAX, vram: u64::MAX };

    /// Both together, part by part.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self { ram: self.ram.saturating_add(other.ram), vram: self.vram.saturating_add(other.vram) }
    }

    /// What is left of `self` without `other`, part by part.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self { ram: self.ram.saturating_sub(other.ram), vram: self.vram.saturating_sub(other.vram) }
    }

    /// Whether every part of `self` is within `budget`.
    pub const fn fits_in(self, budget: Self) -> bool {
        self.ram <= budget.ram && self.vram <= budget.vram
    }
}
