//! When a launched engine is ready, and when it is given up.

use std::time::Duration;

use bytes::Bytes;
use gglib_core::ports::Upstream;
use http::{Request, StatusCode};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// Between two questions. A swap's latency has this grain.
const POLL: Duration = Duration::from_millis(25);
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Why an engine did not become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotReady {
    /// No new log line and no change of health for this long.
    Stalled(Duration),
    /// Still not ready after this long.
    OverLimit(Duration),
    /// Somebody else listens at the engine's address.
    Impostor,
}

/// Polls `/health` until it answers 200. The process's end is watched by the caller.
pub(super) async fn wait_until_ready(
    upstream: &dyn Upstream,
    keyless: Option<&dyn Upstream>,
    mut log: watch::Receiver<u64>,
    stall: Duration,
    limit: Duration,
) -> Result<(), NotReady> {
    let started = Instant::now();
    let mut progress = started;
    let mut last = None;
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let health = status(upstream, "/health").await;
        if health == Some(StatusCode::OK) {
            return match keyless {
                Some(keyless) if !knows_the_key(upstream, keyless).await => Err(NotReady::Impostor),
                _ => Ok(()),
            };
        }
        if health != last || log.has_changed().unwrap_or(false) {
            log.mark_unchanged();
            last = health;
            progress = Instant::now();
        }
        if started.elapsed() >= limit {
            return Err(NotReady::OverLimit(limit));
        }
        if progress.elapsed() >= stall {
            return Err(NotReady::Stalled(stall));
        }
    }
}

/// Whether the engine answers its health probe within `limit`.
pub(super) async fn is_healthy(upstream: &dyn Upstream, limit: Duration) -> bool {
    matches!(timeout(limit, status(upstream, "/health")).await, Ok(Some(StatusCode::OK)))
}

/// A listener that takes requests without the key is not the engine that we gave one.
async fn knows_the_key(upstream: &dyn Upstream, keyless: &dyn Upstream) -> bool {
    status(keyless, "/props").await == Some(StatusCode::UNAUTHORIZED)
        && status(upstream, "/props").await == Some(StatusCode::OK)
}

async fn status(upstream: &dyn Upstream, path: &'static str) -> Option<StatusCode> {
    let request = Request::get(path).body(Bytes::new()).ok()?;
    let answer = timeout(ANSWER, upstream.send(request)).await;
    answer.ok()?.ok().map(|response| response.status())
}
