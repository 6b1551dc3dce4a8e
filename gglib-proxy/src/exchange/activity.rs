//! Which engines get on: what a wait without progress means depends on the engine's other requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gglib_core::admission::Generation;
use tokio::time::Instant;

/// The engines that are at work.
#[derive(Debug, Default)]
pub(crate) struct Activity(Mutex<HashMap<Generation, Engine>>);

#[derive(Debug, Default)]
struct Engine {
    /// Attempts that are under way.
    present: usize,
    /// Number of the next one.
    next: u64,
    /// The attempt that got on last, and when.
    latest: Option<(u64, Instant)>,
    /// When one other than that did.
    other: Option<Instant>,
}

/// One attempt among the others.
#[derive(Debug)]
pub(super) struct Presence {
    activity: Arc<Activity>,
    generation: Generation,
    number: u64,
}

impl Activity {
    /// Enters an attempt with the engine of `generation`, until the result is dropped.
    pub(super) fn enter(self: &Arc<Self>, generation: Generation) -> Presence {
        let mut engines = self.engines();
        let engine = engines.entry(generation).or_default();
        engine.present += 1;
        engine.next += 1;
        Presence { activity: Arc::clone(self), generation, number: engine.next }
    }

    fn engines(&self) -> MutexGuard<'_, HashMap<Generation, Engine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    /// This attempt gets on.
    pub(super) fn advance(&self, now: Instant) {
        if let Some(engine) = self.activity.engines().get_mut(&self.generation) {
            engine.other = match engine.latest {
                Some((number, latest)) if number != self.number => Some(latest),
                _ => engine.other,
            };
            engine.latest = Some((self.number, now));
        }
    }

    /// Whether the engine has got on with another attempt since: then it is busy, and not stuck.
    pub(super) fn others_advanced_since(&self, since: Instant) -> bool {
        let engines = self.activity.engines();
        let Some(engine) = engines.get(&self.generation) else { return false };
        let latest = match engine.latest {
            Some((number, latest)) if number != self.number => Some(latest),
            _ => engine.other,
        };
        latest.is_some_and(|latest| latest > since)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut engines = self.activity.engines();
        if let Some(engine) = engines.get_mut(&self.generation) {
            engine.present -= 1;
            if engine.present == 0 {
                engines.remove(&self.generation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_others_do_on_the_same_engine_counts_also_when_they_have_left() {
        let activity = Arc::<Activity>::default();
        let [own, other] = [1, 1].map(|generation| activity.enter(Generation(generation)));
        let elsewhere = activity.enter(Generation(2));
        let since = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        own.advance(Instant::now());
        elsewhere.advance(Instant::now());
        assert!(!own.others_advanced_since(since));
        other.advance(Instant::now());
        assert!(own.others_advanced_since(since) && other.others_advanced_since(since));
        assert!(!own.others_advanced_since(Instant::now()));
        drop(other);
        own.advance(Instant::now());
        assert!(own.others_advanced_since(since));
        drop((own, elsewhere));
        assert!(activity.engines().is_empty());
        assert!(!activity.enter(Generation(1)).others_advanced_since(since));
    }
}
