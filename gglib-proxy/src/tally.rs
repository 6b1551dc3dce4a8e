//! One request in the count.

use std::sync::Arc;
use std::time::SystemTime;

use gglib_core::api::error::ApiError;
use gglib_core::model::ModelName;
use gglib_core::retry::RetriesAbove;
use tokio::time::Instant;

use crate::account::Account;
use crate::exchange::Recovery;
use crate::metrics::{End, Event, Metrics, Recent};
use crate::request::ModelRequest;

/// One request in the count. It is closed exactly once: by its outcome, or by being dropped without one, which
/// means that whoever was answering it has been dropped because the client left.
#[derive(Debug)]
pub(crate) struct Tally {
    metrics: Arc<Metrics>,
    began: Instant,
    id: Box<str>,
    identity: Option<(ModelName, RetriesAbove)>,
    account: Account,
    open: bool,
}

impl Tally {
    /// Opens the count for the request with this `id`.
    pub(crate) fn begin(metrics: &Arc<Metrics>, id: Box<str>) -> Self {
        metrics.record(Event::Received);
        Self {
            metrics: Arc::clone(metrics),
            began: Instant::now(),
            id,
            identity: None,
            account: Account::default(),
            open: true,
        }
    }

    /// Takes the request, once it is known.
    pub(crate) fn identify(&mut self, request: &ModelRequest, above: RetriesAbove) {
        self.metrics.record(Event::Identified { model: &request.model, above });
        self.identity = Some((request.model.clone(), above));
        self.account = request.account.clone();
    }

    /// Takes the account of the run that answers the request.
    pub(crate) fn share(&mut self, account: Account) {
        self.account = account;
    }

    /// The model, and how often the request had been made before; `None` until they are known.
    pub(crate) fn identity(&self) -> Option<(&ModelName, RetriesAbove)> {
        self.identity.as_ref().map(|(model, above)| (model, *above))
    }

    /// The last recovery that the request, or the run that answers it, has had.
    pub(crate) fn recovery(&self) -> Option<Recovery> {
        self.account.particulars().recovery
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
        let after = self.began.elapsed();
        self.metrics.record(Event::Ended { model, end, after });
        self.metrics.remember(Recent {
            ended_at: stamp(),
            id: std::mem::take(&mut self.id),
            model: model.cloned(),
            outcome: end.outcome(),
            code: end.code(),
            duration: after,
            particulars: self.account.particulars(),
        });
    }
}

#[expect(clippy::disallowed_methods, reason = "a record is stamped")]
fn stamp() -> SystemTime {
    SystemTime::now()
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
