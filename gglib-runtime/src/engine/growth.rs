//! Engines that come to take more and more memory: noticed before the machine is short of it.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::sleep;

use super::launch::Launcher;

/// Between two looks. What an engine loses with a request is counted in MiB, so that minutes are soon enough.
const LOOKS: Duration = Duration::from_secs(60);

impl Launcher {
    /// Tells, once, when the engine with the process id `leader`, which is ready now, takes so much more than at the first
    /// look that succeeds, that it is to be launched anew. It goes on for as long as the engine is there.
    pub(super) async fn watch_growth(&self, leader: Option<u32>, tell: impl FnOnce()) -> Infallible {
        if let (Some(accounts), Some(leader)) = (&self.accounts, leader) {
            let mut first = None;
            loop {
                if let Some(taken) = accounts.taken(leader).await {
                    let growth = taken.saturating_sub(*first.get_or_insert(taken));
                    if growth > self.settings.growth {
                        tracing::warn!(
                            leader,
                            growth,
                            "the engine has outgrown memory.growth and is to be launched anew"
                        );
                        tell();
                        break;
                    }
                }
                sleep(LOOKS).await;
            }
        }
        pending().await
    }
}
