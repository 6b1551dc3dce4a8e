//! Whether an engine works at all, when none of its clients waits long enough to find out.
//!
//! A hang shows when a clock runs out that is longer than many a client waits. So when several in a row have left an
//! engine that got on with nothing, one piece of work is given to it by a client that does not leave: us.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gglib_core::ports::{Lease, Liveness};
use http::Request;
use http::header::CONTENT_TYPE;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::activity::Activity;
use super::failure::Failure;
use crate::app::App;

/// The smallest piece of work: a token after a token. An engine that refuses it, as one for embeddings does, has answered.
const WORK: &[u8] = br#"{"prompt":"1","n_predict":1,"cache_prompt":false}"#;

/// A lease whose engine is looked after when it is given back, if need be.
pub(super) struct Watched {
    lease: Arc<dyn Lease>,
    activity: Arc<Activity>,
    /// How long an engine may get on with nothing.
    patience: Duration,
}

impl Watched {
    pub(super) fn new(app: &App, lease: Box<dyn Lease>) -> Self {
        let patience = app.settings.timeouts.first_content;
        Self { lease: lease.into(), activity: Arc::clone(&app.activity), patience }
    }

    /// Examines the engine without keeping anybody waiting. Until that is done the lease is not back.
    pub(super) fn examine_later(&self, failure: Failure) {
        let lease = Arc::clone(&self.lease);
        tokio::spawn(async move { failure.examine(&*lease).await });
    }
}

impl Deref for Watched {
    type Target = dyn Lease;

    fn deref(&self) -> &Self::Target {
        &*self.lease
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Ok(runtime) = Handle::try_current()
            && self.activity.needs_vigil(self.lease.generation(), self.patience)
        {
            runtime.spawn(vigil(Arc::clone(&self.lease), Arc::clone(&self.activity), self.patience));
        }
    }
}

/// Gives the engine its work, and retires it if nothing comes of it within `patience`.
async fn vigil(lease: Arc<dyn Lease>, activity: Arc<Activity>, patience: Duration) {
    let (generation, began) = (lease.generation(), Instant::now());
    tracing::info!(
        generation = generation.0,
        "clients in a row left an engine that got on with nothing; trying it"
    );
    let request = Request::post("/completion")
        .header(CONTENT_TYPE, "application/json")
        .body(Bytes::from_static(WORK))
        .expect("a constant head is valid");
    let alive = match timeout(patience, lease.upstream().send(request)).await {
        Ok(Ok(_)) => true,
        Ok(Err(_)) => lease.confirm().await == Liveness::Alive,
        Err(_) => activity.advanced_since(generation, began),
    };
    if alive {
        activity.end_vigil(generation);
    } else {
        tracing::warn!(generation = generation.0, "the engine does not work");
        lease.condemn().await;
    }
}
