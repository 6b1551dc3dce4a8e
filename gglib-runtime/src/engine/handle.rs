//! A ready engine, as leases hold it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use gglib_core::admission::Generation;
use gglib_core::ports::Upstream;
use tokio::sync::watch;

use super::readiness;

/// Longest wait for the health probe of a suspected engine, and for the piece of work that it is given.
const PROBE: Duration = Duration::from_secs(5);

/// Failures in a row that make an engine suspect. One or two may be the fault of what was asked.
const ROW: u32 = 3;

/// One engine that has become ready. The process belongs to its task; this is how others reach it.
pub struct Engine {
    generation: Generation,
    upstream: Box<dyn Upstream>,
    ended: watch::Receiver<bool>,
    /// How many requests it has failed at since the last one that it has not.
    failures: AtomicU32,
    has_worked: AtomicBool,
}

impl Engine {
    pub(super) fn new(
        generation: Generation,
        upstream: Box<dyn Upstream>,
        ended: watch::Receiver<bool>,
    ) -> Self {
        Self { generation, upstream, ended, failures: AtomicU32::new(0), has_worked: AtomicBool::new(false) }
    }

    /// Its launch.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Its HTTP side.
    pub fn upstream(&self) -> &dyn Upstream {
        &*self.upstream
    }

    /// Whether its process runs and answers the health probe.
    pub async fn is_alive(&self) -> bool {
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => false,
            healthy = readiness::is_healthy(self.upstream(), PROBE) => healthy,
        }
    }

    /// Counts a failure. Whether it is one of several in a row, and the engine also fails at a piece of work of ours.
    pub(crate) async fn fails_again(&self) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        failures >= ROW && readiness::fails_at_work(self.upstream(), PROBE).await
    }

    /// Ends a row of failures. Whether it is the first work that is done.
    pub(crate) fn worked(&self) -> bool {
        self.failures.store(0, Ordering::Relaxed);
        !self.has_worked.swap(true, Ordering::Relaxed)
    }

    /// Resolves when its process is gone.
    pub async fn wait_ended(&self) {
        // A closed channel means that the engine's task is gone, and the process with it.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}
