//! What becomes known of one request while it is answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::exchange::Recovery;
use crate::metrics::Tokens;

/// Shared by all who work on one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account(Arc<Mutex<Particulars>>);

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
    pub(crate) fn waited(&self, time: Duration) {
        self.with(|known| known.waited = known.waited.saturating_add(time));
    }

    pub(crate) fn used(&self, tokens: Tokens) {
        self.with(|known| known.tokens = known.tokens.saturating_add(tokens));
    }

    pub(crate) fn recovered(&self, recovery: Recovery) {
        self.with(|known| known.recovery = Some(recovery));
    }

    pub(crate) fn particulars(&self) -> Particulars {
        self.with(|known| *known)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Particulars) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
