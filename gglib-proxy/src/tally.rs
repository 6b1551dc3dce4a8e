//! One request in the count.

use std::sync::Arc;

use gglib_core::api::error::ApiError;
use gglib_core::model::ModelName;
use gglib_core::retry::RetriesAbove;
use tokio::time::Instant;

use crate::metrics::{End, Event, Metrics};

/// One request in the count. It is closed exactly once: by its outcome, or by being dropped without one, which
/// means that whoever was answering it has been dropped because the client left.
#[derive(Debug)]
pub(crate) struct Tally {
    metrics: Arc<Metrics>,
    began: Instant,
    identity: Option<(ModelName, RetriesAbove)>,
    open: bool,
}

impl Tally {
    pub(crate) fn begin(metrics: &Arc<Metrics>) -> Self {
        metrics.record(Event::Received);
        Self { metrics: Arc::clone(metrics), began: Instant::now(), identity: None, open: true }
    }

    /// Takes the request's model, once it is known.
    pub(crate) fn identify(&mut self, model: &ModelName, above: RetriesAbove) {
        self.metrics.record(Event::Identified { model, above });
        self.identity = Some((model.clone(), above));
    }

    /// The model, and how often the request had been made before; `None` until they are known.
    pub(crate) fn identity(&self) -> Option<(&ModelName, RetriesAbove)> {
        self.identity.as_ref().map(|(model, above)| (model, *above))
    }

    pub(crate) fn succeed(mut self) {
        self.close(End::Success);
    }

    pub(crate) fn fail(mut self, error: &ApiError) {
        tracing::warn!(code = error.code.as_str(), %error, "request failed");
        self.close(End::Error(error));
    }

    fn close(&mut self, end: End<'_>) {
        self.open = false;
        let model = self.identity.as_ref().map(|(model, _)| model);
        self.metrics.record(Event::Ended { model, end, after: self.began.elapsed() });
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if std::thread::panicking() {
            self.close(End::Panic);
        } else {
            tracing::info!("the client left before the end of its answer");
            self.close(End::Abandoned);
        }
    }
}
