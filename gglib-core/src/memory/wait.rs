//! How long to wait for the memory of an engine that has been stopped.

use std::time::Duration;

use super::Memory;
use crate::moment::Moment;

/// Between two looks. A swap's latency has this grain.
const INTERVAL: Duration = Duration::from_millis(20);

/// A bounded wait until enough memory is there. The kernel gives a dead process's memory back while its files
/// and pages are torn down, and a GPU's driver may take a second after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryWait {
    wanted: Memory,
    until: Moment,
}

/// What to do after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The memory is there.
    Enough,
    /// Look again, so much later.
    Again {
        /// From now.
        after: Duration,
    },
    /// It did not come in time. Somebody else may have taken it; a launch may still succeed.
    GivenUp {
        /// What was lacking at the last look.
        missing: Memory,
    },
}

impl MemoryWait {
    /// Waits from `now` for at most `bound` until `wanted` is available.
    pub fn new(wanted: Memory, now: Moment, bound: Duration) -> Self {
        Self { wanted, until: now.saturating_add(bound) }
    }

    /// What to do, with `available` memory seen at `now`.
    pub fn look(&self, available: Memory, now: Moment) -> Look {
        let left = self.until.saturating_since(now);
        if self.wanted.fits_in(available) {
            Look::Enough
        } else if left.is_zero() {
            Look::GivenUp { missing: self.wanted.saturating_sub(available) }
        } else {
            Look::Again { after: INTERVAL.min(left) }
        }
    }
}

/// What should be available after an engine's end, when `before` was available and the engine took `freed`: the
/// sum, less a tenth of what was freed, because others use the machine too.
#[must_use]
pub fn expected_after_stop(before: Memory, freed: Memory) -> Memory {
    let tenth = Memory { ram: freed.ram / 10, vram: freed.vram / 10 };
    before.saturating_add(freed.saturating_sub(tenth))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ram(ram: u64) -> Memory {
        Memory { ram, vram: 0 }
    }

    #[test]
    fn looks_go_on_until_there_is_enough_or_the_time_is_over() {
        let start = Moment::ORIGIN;
        let wait = MemoryWait::new(Memory { ram: 100, vram: 10 }, start, Duration::from_millis(50));
        let at = |ms| start.saturating_add(Duration::from_millis(ms));
        let again = |ms| Look::Again { after: Duration::from_millis(ms) };
        assert_eq!(wait.look(Memory { ram: 99, vram: 10 }, at(0)), again(20));
        assert_eq!(wait.look(Memory { ram: 100, vram: 9 }, at(40)), again(10));
        assert_eq!(wait.look(ram(90), at(50)), Look::GivenUp { missing: Memory { ram: 10, vram: 10 } });
        assert_eq!(wait.look(Memory { ram: 100, vram: 10 }, at(99)), Look::Enough);
    }

    #[test]
    fn a_tenth_may_stay_away() {
        assert_eq!(expected_after_stop(ram(1000), ram(500)), ram(1450));
    }
}
