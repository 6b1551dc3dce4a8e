//! Waiting for the memory of an engine that was stopped.

use std::sync::Arc;
use std::time::Duration;

use gglib_core::memory::{Look, Memory, MemoryProbe, MemoryWait};
use gglib_core::moment::Moment;
use thiserror::Error;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};

/// The memory did not come back in time. Somebody else may have taken it; a launch may still succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "after {} ms there was less memory than expected, by {} MiB of main memory and {} MiB of GPU memory",
    waited.as_millis(),
    missing.ram >> 20,
    missing.vram >> 20
)]
pub struct MemoryMissing {
    /// What was lacking at the last look.
    pub missing: Memory,
    /// The bound.
    pub waited: Duration,
}

/// Waits until `wanted` is available, for at most `bound`, also when the probe hangs.
///
/// # Errors
/// What is still missing then.
pub async fn wait_for_memory(
    probe: &Arc<dyn MemoryProbe>,
    wanted: Memory,
    bound: Duration,
) -> Result<(), MemoryMissing> {
    let started = Instant::now();
    let now = || Moment::ORIGIN.saturating_add(started.elapsed());
    let wait = MemoryWait::new(wanted, now(), bound);
    let mut available = Memory::ZERO;
    loop {
        let probe = Arc::clone(probe);
        let look = spawn_blocking(move || probe.machine().available);
        // A look that does not come back, or whose thread panicked, shows nothing new.
        if let Ok(Ok(seen)) = timeout_at(started + bound, look).await {
            available = seen;
        }
        match wait.look(available, now()) {
            Look::Enough => return Ok(()),
            Look::Again { after } => sleep(after).await,
            Look::GivenUp { missing } => return Err(MemoryMissing { missing, waited: bound }),
        }
    }
}

#[cfg(test)]
mod tests {
    use gglib_core::memory::{Footprint, Machine};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Has `before` available at first and `after` from a time on.
    struct Scripted {
        started: Instant,
        turn: Duration,
        before: u64,
        after: u64,
    }

    impl MemoryProbe for Scripted {
        fn machine(&self) -> Machine {
            let ram = if self.started.elapsed() < self.turn { self.before } else { self.after };
            Machine { total: Memory::UNBOUNDED, available: Memory { ram, vram: 0 } }
        }

        fn footprint(&self, _: u32) -> Option<Footprint> {
            None
        }
    }

    /// The outcome of waiting 5 s for 100 MiB, and when it came.
    async fn waited(turn: Duration, before: u64, after: u64) -> (Result<(), MemoryMissing>, Duration) {
        let started = Instant::now();
        let mib = |n| n << 20;
        let probe = Scripted { started, turn, before: mib(before), after: mib(after) };
        let probe: Arc<dyn MemoryProbe> = Arc::new(probe);
        let outcome = wait_for_memory(&probe, Memory { ram: mib(100), vram: 0 }, 5 * SECOND).await;
        (outcome, started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn memory_that_is_there_is_not_waited_for() {
        assert_eq!(waited(Duration::ZERO, 0, 100).await, (Ok(()), Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_that_comes_back_is_seen_within_an_interval() {
        let (outcome, after) = waited(2 * SECOND + Duration::from_millis(1), 40, 120).await;
        assert_eq!(outcome, Ok(()));
        assert!((2 * SECOND..2 * SECOND + Duration::from_millis(25)).contains(&after), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_bound_ends_the_wait_and_what_is_missing_is_told() {
        let (outcome, after) = waited(60 * SECOND, 40, 120).await;
        let missing = outcome.unwrap_err();
        assert_eq!((missing.missing.ram >> 20, after), (60, 5 * SECOND));
        assert_eq!(
            missing.to_string(),
            "after 5000 ms there was less memory than expected, by 60 MiB of main memory and 0 MiB of GPU memory"
        );
    }
}
