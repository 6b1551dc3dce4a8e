//! Which engines get on: what a wait without progress means depends on the engine's other requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gglib_core::admission::Generation;
use tokio::time::Instant;

/// How many clients in a row have to leave in vain before their engine is doubted. One or two may be impatient.
const ROW: u32 = 3;

/// How long an engine is remembered that nobody asks for anything.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// The engines that are, or were lately, at work.
#[derive(Debug, Default)]
pub(crate) struct Activity(Mutex<HashMap<Generation, Engine>>);

#[derive(Debug)]
struct Engine {
    /// Attempts that are under way.
    present: usize,
    /// Number of the next one.
    next: u64,
    /// The attempt that got on last, and when.
    latest: Option<(u64, Instant)>,
    /// When one other than that did.
    other: Option<Instant>,
    /// Whether it has sent a comment, as one does that is launched to.
    pings: bool,
    /// Attempts whose clients have left without any advance of theirs since it last got on.
    in_vain: u32,
    /// How long somebody has been there since then, up to `since`.
    stuck: Duration,
    /// When it last got on, or somebody came to it while nobody was there, or the last one left.
    since: Instant,
    /// Whether it is being tried.
    vigil: bool,
}

/// One attempt among the others.
#[derive(Debug)]
pub(super) struct Presence {
    activity: Arc<Activity>,
    generation: Generation,
    number: u64,
    /// Whether it has got on, or ended otherwise than by being dropped, and so was not in vain.
    is_known: bool,
}

impl Activity {
    /// Enters an attempt with the engine of `generation`, until the result is dropped.
    pub(super) fn enter(self: &Arc<Self>, generation: Generation) -> Presence {
        let now = Instant::now();
        let mut engines = self.engines();
        engines.retain(|_, engine| engine.present > 0 || now - engine.since < REMEMBERED);
        let engine = engines.entry(generation).or_insert_with(|| Engine::new(now));
        if engine.present == 0 {
            engine.since = now;
        }
        engine.present += 1;
        engine.next += 1;
        Presence { activity: Arc::clone(self), generation, number: engine.next, is_known: false }
    }

    /// Whether the engine of `generation` is to be tried, and then it counts as being tried: several clients in a row
    /// have left in vain, and somebody was there for longer than `patience` while it got on with nothing. The time
    /// while nobody is there does not count.
    pub(super) fn needs_vigil(&self, generation: Generation, patience: Duration) -> bool {
        let mut engines = self.engines();
        let Some(engine) = engines.get_mut(&generation) else { return false };
        let running = if engine.present > 0 { engine.since.elapsed() } else { Duration::ZERO };
        let needed = !engine.vigil && engine.in_vain >= ROW && engine.stuck + running >= patience;
        engine.vigil |= needed;
        needed
    }

    /// The engine of `generation` has shown that it works.
    pub(super) fn end_vigil(&self, generation: Generation) {
        if let Some(engine) = self.engines().get_mut(&generation) {
            engine.vigil = false;
            engine.gets_on(Instant::now());
        }
    }

    /// Whether the engine of `generation` has got on with anything since.
    pub(super) fn advanced_since(&self, generation: Generation, since: Instant) -> bool {
        let latest = self.engines().get(&generation).and_then(|engine| engine.latest);
        latest.is_some_and(|(_, latest)| latest > since)
    }

    fn engines(&self) -> MutexGuard<'_, HashMap<Generation, Engine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    fn new(now: Instant) -> Self {
        Self {
            present: 0,
            next: 0,
            latest: None,
            other: None,
            pings: false,
            in_vain: 0,
            stuck: Duration::ZERO,
            since: now,
            vigil: false,
        }
    }

    fn gets_on(&mut self, now: Instant) {
        (self.in_vain, self.stuck, self.since) = (0, Duration::ZERO, now);
    }
}

impl Presence {
    /// This attempt gets on.
    pub(super) fn advance(&mut self, now: Instant) {
        self.is_known = true;
        if let Some(engine) = self.activity.engines().get_mut(&self.generation) {
            engine.other = match engine.latest {
                Some((number, latest)) if number != self.number => Some(latest),
                _ => engine.other,
            };
            engine.latest = Some((self.number, now));
            engine.gets_on(now);
        }
    }

    /// This attempt has come to an end of its own: its client has not left.
    pub(super) fn conclude(&mut self) {
        self.is_known = true;
    }

    /// The engine has sent a comment.
    pub(super) fn pinged(&self) {
        if let Some(engine) = self.activity.engines().get_mut(&self.generation) {
            engine.pings = true;
        }
    }

    /// Whether the engine sends comments when it has nothing else to send, as far as is known.
    pub(super) fn pings(&self) -> bool {
        self.activity.engines().get(&self.generation).is_some_and(|engine| engine.pings)
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
            engine.in_vain += u32::from(!self.is_known);
            if engine.present == 0 {
                engine.stuck += engine.since.elapsed();
                engine.since = Instant::now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(300);

    async fn advance(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_do_on_the_same_engine_counts_also_when_they_have_left() {
        let activity = Arc::<Activity>::default();
        let [mut own, mut other] = [1, 1].map(|generation| activity.enter(Generation(generation)));
        let mut elsewhere = activity.enter(Generation(2));
        let since = Instant::now();
        advance(1).await;
        own.advance(Instant::now());
        elsewhere.advance(Instant::now());
        assert!(!own.others_advanced_since(since));
        other.advance(Instant::now());
        assert!(own.others_advanced_since(since) && other.others_advanced_since(since));
        assert!(!own.others_advanced_since(Instant::now()));
        drop(other);
        own.advance(Instant::now());
        assert!(own.others_advanced_since(since));
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_is_forgotten_when_nobody_has_been_there_for_an_hour() {
        let activity = Arc::<Activity>::default();
        let stays = activity.enter(Generation(1));
        activity.enter(Generation(2)).pinged();
        advance(59 * 60).await;
        let back = activity.enter(Generation(2));
        assert!(back.pings());
        drop(back);
        advance(60 * 60).await;
        assert!(!activity.enter(Generation(2)).pings());
        assert_eq!(activity.engines().len(), 2);
        drop(stays);
    }

    /// Clients that each wait for `wait` in vain and leave, `pause` apart. After how many the engine is doubted.
    async fn doubted_after(activity: &Arc<Activity>, wait: u64, pause: u64) -> usize {
        for count in 1..1000 {
            let client = activity.enter(Generation(1));
            advance(wait).await;
            drop(client);
            if activity.needs_vigil(Generation(1), PATIENCE) {
                return count;
            }
            advance(pause).await;
        }
        1000
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_is_doubted_once_clients_in_a_row_have_waited_together_as_long_as_one_may() {
        // Of one client's patience, and pauses that do not count.
        for (wait, pause, expected) in [(60, 0, 5), (60, 600, 5), (100, 30, 3), (299, 0, 3), (1, 59, 300)] {
            let activity = Arc::<Activity>::default();
            assert_eq!(doubted_after(&activity, wait, pause).await, expected, "{wait} {pause}");
            assert!(!activity.needs_vigil(Generation(1), PATIENCE), "once");
            // And again from the beginning when it has shown that it works.
            activity.end_vigil(Generation(1));
            assert_eq!(doubted_after(&activity, wait, pause).await, expected, "{wait} {pause}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn any_advance_ends_the_doubt_and_time_that_two_wait_counts_once() {
        let activity = Arc::<Activity>::default();
        for _ in 0..20 {
            let [mut one, other] = [1, 1].map(|generation| activity.enter(Generation(generation)));
            advance(150).await;
            one.advance(Instant::now());
            advance(149).await;
            drop((one, other));
            assert!(!activity.needs_vigil(Generation(1), PATIENCE));
        }
        let activity = Arc::<Activity>::default();
        let [one, two, three, stays] = [1; 4].map(|generation| activity.enter(Generation(generation)));
        advance(299).await;
        drop((one, two, three));
        assert!(!activity.needs_vigil(Generation(1), PATIENCE));
        advance(1).await;
        assert!(activity.needs_vigil(Generation(1), PATIENCE), "also while somebody is still there");
        drop(stays);
    }
}
