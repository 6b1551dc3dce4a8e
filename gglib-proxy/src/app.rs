//! What every request can reach.

use std::sync::Arc;
use std::time::Duration;

use gglib_core::config::{self, Timeouts};
use gglib_core::model::Catalog;
use gglib_core::ports::Residency;
use gglib_core::retry::RetryPolicy;

use crate::counters::Counters;
use crate::exchange::activity::Activity;

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
            retry: config.retry.policy,
            head_grace: Duration::from_millis(1500),
            keep_alive: Duration::from_secs(10),
            empty_delta: Duration::from_secs(50),
        }
    }
}

/// The endpoint's state; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub(crate) residency: Arc<dyn Residency>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) activity: Arc<Activity>,
}

impl App {
    /// An endpoint for the models of `catalog`, whose engines `residency` provides.
    pub fn new(residency: Arc<dyn Residency>, catalog: Catalog, settings: Settings) -> Self {
        Self {
            residency,
            catalog: Arc::new(catalog),
            settings: Arc::new(settings),
            counters: Arc::default(),
            activity: Arc::default(),
        }
    }
}
