//! Which attempts get on with which engine: what a wait without progress means depends on the others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gglib_core::admission::Generation;
use tokio::time::Instant;

/// The attempts that are under way.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    next: AtomicU64,
    /// When each last got on, if it has.
    progress: Mutex<BTreeMap<(Generation, u64), Option<Instant>>>,
}

/// One attempt among the others.
#[derive(Debug)]
pub(super) struct Presence {
    activity: Arc<Activity>,
    key: (Generation, u64),
}

impl Activity {
    /// Enters an attempt with the engine of `generation`, until the result is dropped.
    pub(super) fn enter(self: &Arc<Self>, generation: Generation) -> Presence {
        let key = (generation, self.next.fetch_add(1, Ordering::Relaxed));
        self.progress().insert(key, None);
        Presence { activity: Arc::clone(self), key }
    }

    fn progress(&self) -> MutexGuard<'_, BTreeMap<(Generation, u64), Option<Instant>>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    /// This attempt gets on.
    pub(super) fn advance(&self, now: Instant) {
        self.activity.progress().insert(self.key, Some(now));
    }

    /// Whether the engine has got on with another attempt since: then it is busy, and not stuck.
    pub(super) fn others_advanced_since(&self, since: Instant) -> bool {
        let (generation, own) = self.key;
        let progress = self.activity.progress();
        let mut others = progress.range((generation, 0)..=(generation, u64::MAX));
        others.any(|(&(_, other), &latest)| other != own && latest.is_some_and(|latest| latest > since))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.activity.progress().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_others_do_on_the_same_engine_counts_and_only_while_they_are_there() {
        let activity = Arc::<Activity>::default();
        let [own, other] = [1, 1].map(|generation| activity.enter(Generation(generation)));
        let elsewhere = activity.enter(Generation(2));
        let since = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        own.advance(Instant::now());
        elsewhere.advance(Instant::now());
        assert!(!own.others_advanced_since(since));
        other.advance(Instant::now());
        assert!(own.others_advanced_since(since));
        assert!(!own.others_advanced_since(Instant::now()));
        drop(other);
        assert!(!own.others_advanced_since(since));
        drop((own, elsewhere));
        assert!(activity.progress().is_empty());
    }
}
