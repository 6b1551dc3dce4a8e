//! Waiting for a condition instead of sleeping and hoping.

use std::time::Duration;

const GRAIN: Duration = Duration::from_millis(10);

/// Waits until `condition` holds, looking every 10 ms of tokio's clock, which must not be paused.
///
/// # Panics
/// After `bound`, naming `what` was waited for.
pub async fn until(what: &str, bound: Duration, mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(bound, async {
        while !condition() {
            tokio::time::sleep(GRAIN).await;
        }
    });
    assert!(waited.await.is_ok(), "waited {bound:?} in vain for {what}");
}
