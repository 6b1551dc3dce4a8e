//! Requests with an `Idempotency-Key`: whoever repeats one while it runs is attached to the run that there is.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::idempotency::{Arrival, Limits, RunId, Runs, Scope};
use gglib_core::moment::Moment;
use http::header::AUTHORIZATION;
use http::{HeaderName, Request};
use tokio::time::Instant;
use tracing::Instrument;

use self::run::{Recorder, Run};
use crate::app::App;
use crate::exchange;
use crate::metrics::Event;
use crate::panics;
use crate::plain;
use crate::request::ModelRequest;
use crate::stream;

pub(crate) use self::run::Attachment;

mod run;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Longest key that is taken, in bytes.
const LONGEST: usize = 255;

/// A request's key, and a digest of what has been read of the request so far.
pub(crate) struct Key {
    scope: Scope,
    digest: DefaultHasher,
}

impl Key {
    /// The key of `request`, if it has one.
    pub(crate) fn read(request: &Request<Body>) -> Result<Option<Self>, ApiError> {
        let Some(key) = request.headers().get(IDEMPOTENCY_KEY) else { return Ok(None) };
        if !(1..=LONGEST).contains(&key.len()) {
            let message = format!("the header Idempotency-Key must have 1 to {LONGEST} bytes");
            return Err(ApiError::new(ErrorCode::InvalidRequest, message));
        }
        let client = [AUTHORIZATION, API_KEY].map(|name| request.headers().get(name).cloned());
        let mut digest = DefaultHasher::new();
        (request.method(), request.uri().path()).hash(&mut digest);
        Ok(Some(Self { scope: Scope { client: client.into(), key: key.clone() }, digest }))
    }

    /// Takes in the request's body.
    pub(crate) fn with_body(mut self, body: &Bytes) -> Self {
        body.hash(&mut self.digest);
        self
    }
}

/// The runs of one endpoint.
pub(crate) struct Idempotency {
    origin: Instant,
    runs: Mutex<Runs<Arc<Run>>>,
}

impl Default for Idempotency {
    fn default() -> Self {
        Self { origin: Instant::now(), runs: Mutex::new(Runs::new(Limits::default())) }
    }
}

impl Idempotency {
    fn runs(&self) -> MutexGuard<'_, Runs<Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a run: first for those who come, then for its readers. Each of them may leave at once, and the last to leave
    /// a run that goes on would take the answer with it.
    fn end(&self, id: RunId, run: &Run, outcome: Result<(), ApiError>) {
        let kept = run.keeps(&outcome);
        self.runs().end(id, kept, self.now());
        run.end(outcome);
    }

    fn now(&self) -> Moment {
        Moment::ORIGIN.saturating_add(self.origin.elapsed())
    }
}

/// Attaches a client, which is to be answered before `deadline`, to the run of its key. That is begun if there is none.
pub(crate) fn join(
    app: &App,
    key: Key,
    request: ModelRequest,
    deadline: Instant,
) -> Result<Attachment, ApiError> {
    let all = &app.idempotency;
    let run = || Arc::new(Run::new(request.account.clone()));
    let arrival = all.runs().arrive(key.scope, key.digest.finish(), all.now(), run);
    match arrival {
        Arrival::Begin(id, run) => {
            let attached = Attachment::new(Arc::clone(all), id, Arc::clone(&run), deadline);
            begin(app.clone(), id, &run, request, deadline);
            attached
        }
        Arrival::Attach(id, run) => {
            app.metrics.record(Event::Attached { model: &request.model });
            tracing::info!("attached to the run of the same idempotency key");
            Attachment::new(Arc::clone(all), id, run, deadline)
        }
        Arrival::Reused => {
            let message =
                "this Idempotency-Key stands for another request; each request needs a key of its own";
            Err(ApiError::new(ErrorCode::IdempotencyKeyReused, message))
        }
    }
}

/// Starts the run's task. It ends by itself, or with the last client.
fn begin(app: App, id: RunId, run: &Arc<Run>, request: ModelRequest, deadline: Instant) {
    let recorded = Arc::clone(run);
    let work = async move {
        let answered = answer(&app, &request, deadline, &recorded);
        let outcome = AssertUnwindSafe(answered)
            .catch_unwind()
            .await
            .unwrap_or_else(|panic| Err(panics::to_error(&*panic)));
        app.idempotency.end(id, &recorded, outcome);
    };
    run.started(tokio::spawn(work.in_current_span()).abort_handle());
}

async fn answer(
    app: &App,
    request: &ModelRequest,
    deadline: Instant,
    run: &Arc<Run>,
) -> Result<(), ApiError> {
    if request.stream {
        return exchange::run(app, request, deadline, &mut Recorder(Arc::clone(run))).await;
    }
    run.push(Piece::Whole(plain::collect(app, request, deadline).await?)).await;
    Ok(())
}

/// A part of what a run gives.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// All of a plain answer.
    Whole(plain::Collected),
    /// Something of a stream.
    Part(stream::Item),
}

impl Piece {
    /// What it takes to hold it, in bytes.
    fn size(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Whole(answer) => answer.body.len(),
                Self::Part(stream::Item::Chunk(data)) => data.len(),
                Self::Part(stream::Item::Recovered(_) | stream::Item::Waits(_)) => 0,
            }
    }
}
