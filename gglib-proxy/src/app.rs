//! What every request can reach.

use std::sync::Arc;
use std::time::Duration;

use gglib_core::config::{self, Timeouts};
use gglib_core::model::Catalog;
use gglib_core::ports::{Residency, SlotWitness};
use gglib_core::retry::{RetryObserver, RetryPolicy};

use crate::budgets::Budgets;
use crate::exchange::activity::Activity;
use crate::idempotency::Idempotency;
use crate::live::{Configured, Live};
use crate::metrics::Metrics;
use crate::places::Places;
use crate::repairs::Repairs;

/// The part of the configuration that concerns the endpoint.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Largest request body, in bytes.
    pub body_limit: u64,
    /// Bounds of attempts and of whole requests.
    pub timeouts: Timeouts,
    /// Whether a dead engine is relaunched for the request that found it dead.
    pub relaunch: bool,
    /// Whether a stream whose engine died after content is taken up by another engine.
    pub continue_streams: bool,
    /// Whether tool calls that no client could run are mended, or asked for again.
    pub repair: bool,
    /// How long asking again may take.
    pub repair_timeout: Duration,
    /// The policy whose `max_backoff` is advertised when no better estimate exists.
    pub retry: RetryPolicy,
    /// A stream's client gets headers after this long, whatever happens behind.
    pub head_grace: Duration,
    /// A stream's client gets at least a comment this often.
    pub keep_alive: Duration,
    /// After this long without a chunk it gets one with an empty delta instead of a comment, since some clients'
    /// timers ignore comments.
    pub empty_delta: Duration,
}

impl Settings {
    /// The settings of a configuration.
    pub fn new(config: &config::Config) -> Self {
        Self {
            body_limit: config.server.body_limit,
            timeouts: config.timeouts.clone(),
            relaunch: config.recovery.relaunch,
            continue_streams: config.recovery.continue_streams,
            repair: config.recovery.repair,
            repair_timeout: config.recovery.repair_timeout,
            retry: config.retry.rules.policy,
            head_grace: Duration::from_millis(1500),
            keep_alive: Duration::from_secs(10),
            empty_delta: Duration::from_secs(50),
        }
    }
}

/// The endpoint's state; cheap to clone.
///
/// A clone is also a snapshot of the configuration: each request has its own, so that a
/// [change](Self::configure) meets only those that come after it.
#[derive(Clone)]
pub struct App {
    pub(crate) residency: Arc<dyn Residency>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) repairs: Arc<Repairs>,
    pub(crate) idempotency: Arc<Idempotency>,
    pub(crate) live: Arc<Live>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) places: Arc<Places>,
    pub(crate) slots: Option<Arc<dyn SlotWitness>>,
}

impl App {
    /// An endpoint for the models of `catalog`, whose engines `residency` provides.
    pub fn new(residency: Arc<dyn Residency>, catalog: Catalog, settings: Settings) -> Self {
        let metrics = Arc::new(Metrics::new(&catalog));
        let budgets = Arc::new(Budgets::new(&settings.retry, &catalog, Arc::clone(&metrics)));
        let (catalog, settings) = (Arc::new(catalog), Arc::new(settings));
        let configured = Configured {
            catalog: Arc::clone(&catalog),
            settings: Arc::clone(&settings),
            budgets: Arc::clone(&budgets),
        };
        let live = Arc::new(Live::new(configured));
        Self {
            residency,
            catalog,
            settings,
            metrics,
            budgets,
            repairs: Arc::default(),
            idempotency: Arc::default(),
            live,
            activity: Arc::default(),
            places: Arc::default(),
            slots: None,
        }
    }

    /// Tells `witness` what engines are asked and what they had in their cache.
    #[must_use]
    pub fn with_slots(self, witness: Arc<dyn SlotWitness>) -> Self {
        Self { slots: Some(witness), ..self }
    }

    /// Where the sequences and breakers behind the ports publish their events, to be shown by `/metrics`. A target is
    /// known by the name of its model.
    pub fn retry_observer(&self) -> Arc<dyn RetryObserver> {
        self.metrics.clone()
    }

    /// Serves the models of `catalog` from now on, by these settings. Requests in flight keep what they began with.
    ///
    /// `after_restart` names the keys of the configuration whose change is still to come; `/status` shows them.
    pub fn configure(&self, catalog: Catalog, settings: Settings, after_restart: Vec<&'static str>) {
        self.metrics.extend(&catalog);
        let budgets = Budgets::new(&settings.retry, &catalog, Arc::clone(&self.metrics));
        let mut live = self.live.state();
        if live.configured.settings.retry != settings.retry
            || !same_models(&live.configured.catalog, &catalog)
        {
            // What the last minute has seen is forgotten with the old rules.
            live.configured.budgets = Arc::new(budgets);
        }
        live.configured.catalog = Arc::new(catalog);
        live.configured.settings = Arc::new(settings);
        live.reloads.applied += 1;
        live.reloads.error = None;
        live.reloads.after_restart = after_restart;
    }

    /// Lets `/status` say that the configuration could not be taken over, and why. The old one stays.
    pub fn configuration_failed(&self, error: String) {
        self.live.state().reloads.error = Some(error);
    }

    /// Refuses new requests from now on, since gglib is shutting down.
    pub fn drain(&self) {
        self.live.state().draining = true;
    }

    /// The same endpoint by the configuration of this moment.
    pub(crate) fn current(&self) -> Self {
        let configured = self.live.state().configured.clone();
        let Configured { catalog, settings, budgets } = configured;
        Self { catalog, settings, budgets, ..self.clone() }
    }

    /// Whether gglib is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.live.state().draining
    }
}

fn same_models(one: &Catalog, other: &Catalog) -> bool {
    one.iter().map(|(name, _)| name).eq(other.iter().map(|(name, _)| name))
}
