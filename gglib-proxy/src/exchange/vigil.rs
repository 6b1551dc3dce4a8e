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
use crate::route::Route;

/// The smallest piece of work of the kind that was asked for, and where: an engine may be unable to do another one, and
/// refuse it without being asked whether it works.
const fn work(route: Route) -> (&'static str, &'static [u8]) {
    match route {
        Route::Chat | Route::Completions => {
            ("/completion", br#"{"prompt":"1","n_predict":1,"cache_prompt":false}"#)
        }
        Route::Embeddings => (route.path(), br#"{"input":"1"}"#),
        Route::Rerank => (route.path(), br#"{"query":"1","documents":["1"]}"#),
    }
}

/// A lease whose engine is looked after when it is given back, if need be.
pub(super) struct Watched {
    lease: Arc<dyn Lease>,
    activity: Arc<Activity>,
    /// What it was leased for.
    route: Route,
    /// How long an engine may get on with nothing.
    patience: Duration,
}

impl Watched {
    pub(super) fn new(app: &App, lease: Box<dyn Lease>, route: Route) -> Self {
        let patience = app.settings.timeouts.first_content;
        Self { lease: lease.into(), activity: Arc::clone(&app.activity), route, patience }
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
            let (lease, activity) = (Arc::clone(&self.lease), Arc::clone(&self.activity));
            runtime.spawn(vigil(lease, activity, self.route, self.patience));
        }
    }
}

/// Gives the engine its work, and retires it if nothing comes of it within `patience`.
async fn vigil(lease: Arc<dyn Lease>, activity: Arc<Activity>, route: Route, patience: Duration) {
    let (generation, began) = (lease.generation(), Instant::now());
    tracing::info!(
        generation = generation.0,
        "clients in a row left an engine that got on with nothing; trying it"
    );
    let (path, work) = work(route);
    let request = Request::post(path)
        .header(CONTENT_TYPE, "application/json")
        .body(Bytes::from_static(work))
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
