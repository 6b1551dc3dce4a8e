//! A ready engine, as leases hold it.

use std::time::Duration;

use gglib_core::admission::Generation;
use gglib_core::ports::Upstream;
use tokio::sync::watch;

use super::readiness;

/// Longest wait for the health probe of a suspected engine.
const PROBE: Duration = Duration::from_secs(5);

/// One engine that has become ready. The process belongs to its task; this is how others reach it.
pub struct Engine {
    pub(super) generation: Generation,
    pub(super) upstream: Box<dyn Upstream>,
    pub(super) ended: watch::Receiver<bool>,
}

impl Engine {
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

    /// Resolves when its process is gone.
    pub async fn wait_ended(&self) {
        // A closed channel means that the engine's task is gone, and the process with it.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}
