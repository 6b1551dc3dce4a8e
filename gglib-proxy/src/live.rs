//! What changes while the endpoint runs: its configuration, and whether it still takes requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::FromRef;
use gglib_core::model::Catalog;

use crate::app::{App, Settings};
use crate::budgets::Budgets;

/// Shared by all clones of an [`App`].
pub(crate) struct Live(Mutex<State>);

pub(crate) struct State {
    pub(crate) configured: Configured,
    pub(crate) reloads: Reloads,
    pub(crate) draining: bool,
}

/// What follows from the configuration; swapped as a whole.
#[derive(Clone)]
pub(crate) struct Configured {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) budgets: Arc<Budgets>,
}

/// What became of changes to the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reloads {
    /// How many have been taken over.
    pub(crate) applied: u64,
    /// Why the last one was not, if so.
    pub(crate) error: Option<String>,
    /// Keys that have changed and take effect after a restart.
    pub(crate) after_restart: Vec<&'static str>,
}

impl Live {
    pub(crate) fn new(configured: Configured) -> Self {
        Self(Mutex::new(State { configured, reloads: Reloads::default(), draining: false }))
    }

    /// Held for moments only.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the routes, from which each request takes its snapshot.
#[derive(Clone)]
pub(crate) struct Current(pub(crate) App);

impl FromRef<Current> for App {
    fn from_ref(Current(app): &Current) -> Self {
        app.current()
    }
}
