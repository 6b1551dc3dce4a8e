//! The wait for an engine, and what its client is told meanwhile.

use std::time::Duration;

use gglib_core::api::error::ApiError;
use gglib_core::ports::{Lease, Refused, Waiting};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Sink;
use super::vigil::Watched;
use crate::app::App;
use crate::metrics::Event;
use crate::refusal;
use crate::request::ModelRequest;

/// From the beginning of a wait to the first question how it stands: in time for the head of a stream.
const FIRST: Duration = Duration::from_secs(1);

/// Between two questions: shorter than the silence after which a stream gets a bare comment.
const PERIOD: Duration = Duration::from_secs(5);

/// Waits for an engine of the request's model.
pub(super) async fn lease(
    app: &App,
    request: &ModelRequest,
    sink: &mut impl Sink,
) -> Result<Watched, ApiError> {
    let wait = Wait::begin(app, request);
    let mut waiting = app.residency.enter(request.model.clone());
    let leased = granted(&mut *waiting, sink).await;
    drop(wait);
    match leased {
        Ok(lease) => Ok(Watched::new(app, lease, request.route)),
        Err(refused) => Err(refusal::to_error(app, &refused, &request.model).await),
    }
}

/// A wait that is counted when it is over, however that comes about: also when the client leaves.
struct Wait<'a> {
    app: &'a App,
    request: &'a ModelRequest,
    began: Instant,
}

impl<'a> Wait<'a> {
    fn begin(app: &'a App, request: &'a ModelRequest) -> Self {
        let began = Instant::now();
        request.account.waits(began);
        Self { app, request, began }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waited = self.began.elapsed();
        self.request.account.waited(waited);
        self.app.metrics.record(Event::LeftQueue { model: &self.request.model, waited });
    }
}

/// The end of the wait. Until then the sink is told how it stands, as far as the owner of the queue says so.
async fn granted(waiting: &mut dyn Waiting, sink: &mut impl Sink) -> Result<Box<dyn Lease>, Refused> {
    let mut questions = interval_at(Instant::now() + FIRST, PERIOD);
    questions.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            leased = waiting.granted() => return leased,
            _ = questions.tick() => {}
        }
        // An owner that does not answer this grants nothing meanwhile either.
        if let Some(outlook) = waiting.outlook().await {
            sink.waits(outlook);
        }
    }
}
