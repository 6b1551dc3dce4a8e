//! The port through which memory is measured.

use super::{Footprint, Memory};

/// What the machine has, within what this process may use of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// All of it, or the limit that is set for us.
    pub total: Memory,
    /// What could be taken now, caches that the system would give up included.
    pub available: Memory,
}

impl Machine {
    /// The budget for engines that `memory.budget = "auto"` means: everything but a reserve for the system, for
    /// gglib and for what engines grow by in use. Of each kind of memory the reserve is 1 GiB or a tenth,
    /// whichever is more, but at most half.
    pub fn auto_budget(&self) -> Memory {
        let without_reserve = |total: u64| total - (total / 10).max(1 << 30).min(total / 2);
        Memory { ram: without_reserve(self.total.ram), vram: without_reserve(self.total.vram) }
    }
}

/// Measures memory. Implementations read small files of the system, so callers that must not block ask from
/// another thread.
pub trait MemoryProbe: Send + Sync {
    /// The machine as it is now.
    fn machine(&self) -> Machine;

    /// What the process group led by the process `leader` takes; `None` when there is none, or when this
    /// system cannot say.
    fn footprint(&self, leader: u32) -> Option<Footprint>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_a_tenth_or_a_gibibyte_but_at_most_half() {
        const GIB: u64 = 1 << 30;
        let budget = |ram, vram| Machine { total: Memory { ram, vram }, ..Machine::default() }.auto_budget();
        assert_eq!(budget(100 * GIB, 8 * GIB), Memory { ram: 90 * GIB, vram: 7 * GIB });
        assert_eq!(budget(GIB, 0), Memory { ram: GIB / 2, vram: 0 });
        assert!(budget(u64::MAX, u64::MAX).ram < u64::MAX);
    }
}
