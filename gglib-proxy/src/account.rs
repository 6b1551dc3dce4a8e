//! What becomes known of one request while it is answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::exchange::Recovery;
use crate::metrics::Tokens;

/// Shared by all who work on one request, and by all whom its answer goes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    known: Arc<Mutex<Known>>,
    /// How long it had waited before this was shared.
    before: Duration,
}

#[derive(Debug, Default)]
struct Known {
    particulars: Particulars,
    /// Since when it waits for an engine, while it does.
    waits_since: Option<Instant>,
    /// When the first content of its answer came.
    first_content: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Particulars {
    /// Its waits for an engine, all together.
    pub(crate) waited: Duration,
    /// What its attempts have used.
    pub(crate) tokens: Tokens,
    /// The last one.
    pub(crate) recovery: Option<Recovery>,
}

impl Account {
    /// The same account for another request, which is attached now: what has been waited before is not its own.
    pub(crate) fn shared(&self) -> Self {
        let before = self.before.saturating_add(self.particulars().waited);
        Self { known: Arc::clone(&self.known), before }
    }

    /// A wait has begun.
    pub(crate) fn waits(&self, since: Instant) {
        self.with(|known| known.waits_since = Some(since));
    }

    /// The wait is over.
    pub(crate) fn waited(&self, time: Duration) {
        self.with(|known| {
            known.waits_since = None;
            known.particulars.waited = known.particulars.waited.saturating_add(time);
        });
    }

    /// Whether a wait goes on.
    pub(crate) fn is_waiting(&self) -> bool {
        self.with(|known| known.waits_since.is_some())
    }

    pub(crate) fn used(&self, tokens: Tokens) {
        self.with(|known| known.particulars.tokens = known.particulars.tokens.saturating_add(tokens));
    }

    pub(crate) fn recovered(&self, recovery: Recovery) {
        self.with(|known| known.particulars.recovery = Some(recovery));
    }

    /// The first content has come at `at`, if none had before; whether that is so.
    pub(crate) fn has_content(&self, at: Instant) -> bool {
        self.with(|known| known.first_content.replace(known.first_content.unwrap_or(at)).is_none())
    }

    /// When the first content came.
    pub(crate) fn first_content(&self) -> Option<Instant> {
        self.with(|known| known.first_content)
    }

    /// What is known, a wait that goes on included: who asks first when a client leaves is not fixed.
    pub(crate) fn particulars(&self) -> Particulars {
        self.with(|known| {
            let waiting = known.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
            let Particulars { waited, tokens, recovery } = known.particulars;
            let waited = waited.saturating_add(waiting).saturating_sub(self.before);
            Particulars { waited, tokens, recovery }
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
