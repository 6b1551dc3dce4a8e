//! Going on with a stream on another engine, after its own has died in the middle.
//!
//! Whether and how is decided in [`gglib_core::continuation`]; here the record is kept and the decision carried out.

use std::time::Duration;

use bytes::Bytes;
use gglib_core::admission::Outlook;
use gglib_core::api::chunk::PromptProgress;
use gglib_core::api::error::ApiError;
use gglib_core::continuation::{Continuation, Delivered, Splicer};
use gglib_core::ports::{Lease, Liveness};
use http::Request;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::failure::Failure;
use super::{Recovery, Rejected, Sink, answered, attempt, lease, tell};
use crate::app::App;
use crate::metrics::{Event, Tokens};
use crate::refusal;
use crate::request::ModelRequest;

/// A sink that remembers what it was given, in case that the stream has to be taken up.
pub(super) struct Recording<'a, S> {
    sink: &'a mut S,
    /// Absent when nothing will be taken up: the client is handed nothing before the end. Whether it is switched on is
    /// asked when it is needed.
    delivered: Option<Delivered>,
}

impl<'a, S: Sink> Recording<'a, S> {
    pub(super) fn new(sink: &'a mut S) -> Self {
        let delivered = sink.hands_on().then(Delivered::default);
        Self { sink, delivered }
    }
}

impl<S: Sink> Sink for Recording<'_, S> {
    fn hands_on(&self) -> bool {
        self.sink.hands_on()
    }

    async fn chunk(&mut self, data: Bytes) -> Result<(), Rejected> {
        self.sink.chunk(data.clone()).await?;
        if let Some(delivered) = &mut self.delivered {
            delivered.observe(&data);
        }
        Ok(())
    }

    fn waits(&mut self, outlook: Outlook) {
        self.sink.waits(outlook);
    }

    fn progress(&mut self, progress: &PromptProgress) {
        if let Some(delivered) = &mut self.delivered {
            delivered.observe_progress(progress);
        }
    }

    async fn recovered(&mut self, recovery: Recovery) -> Result<(), Rejected> {
        self.sink.recovered(recovery).await
    }
}

/// The rest of the answer, of an engine that is launched for it: the one that died had sent a part. By the settings of
/// this moment, as for any request that enters the queue now.
///
/// The error is `cause`, unless another attempt was made and failed for a reason of its own.
pub(super) async fn take_up(
    app: &App,
    request: &ModelRequest,
    cause: Failure,
    sink: &mut Recording<'_, impl Sink>,
) -> Result<(), ApiError> {
    let app = &app.current();
    let delivered = sink.delivered.take().filter(|_| app.settings.continue_streams);
    let cause = cause.into_error();
    let Some(delivered) = delivered else { return Err(cause) };
    let mut continuation = match Continuation::new(request.body.clone(), delivered) {
        Ok(continuation) => continuation,
        Err(reason) => {
            tracing::info!(%reason, "the stream cannot be taken up");
            return Err(cause);
        }
    };
    tracing::warn!(model = %request.model, %cause, "engine dead; going on with the stream");
    tell(request, sink, Recovery::Continuation).await?;
    let counted = || app.metrics.record(Event::Continued { model: &request.model });
    if let Some(ending) = continuation.ending() {
        counted();
        return finish(app, request, &continuation, ending, sink).await;
    }
    let lease = match lease(app, request, sink).await {
        Ok(lease) => lease,
        Err(error) => {
            tracing::warn!(%error, "no engine to go on with the stream");
            return Err(if app.is_draining() { refusal::draining(app) } else { cause });
        }
    };
    counted();
    if let Some(text) = continuation.uncounted()
        && let Some(tokens) = tokens(&*lease, text, app.settings.timeouts.response_headers).await
    {
        continuation.count(tokens);
        if let Some(ending) = continuation.ending() {
            return finish(app, request, &continuation, ending, sink).await;
        }
    }
    let given = continuation.tokens();
    let Ok((body, splicer)) = continuation.issue() else { return Err(cause) };
    let request = ModelRequest { body, given, ..request.clone() };
    let mut splicing = Splicing { sink: &mut *sink.sink, splicer };
    let outcome = attempt(app, &lease, &request, &mut splicing).await;
    let Err(failure) = outcome else { return Ok(()) };
    let splicer = splicing.splicer;
    if splicer.is_over() {
        lease.worked();
        book(app, &request, splicer.prompt(), splicer.tokens());
        return Ok(());
    }
    // Not for this request any more, but the next one must not meet a dead engine.
    if failure.examine(&*lease).await == Liveness::Dead && app.is_draining() {
        return Err(refusal::draining(app));
    }
    if failure.is_suspicion() {
        return Err(failure.into_error());
    }
    tracing::warn!(error = %failure.into_error(), "the engine does not go on with the stream");
    Err(cause)
}

/// The engine died when nothing was missing but the end.
async fn finish(
    app: &App,
    request: &ModelRequest,
    continuation: &Continuation,
    ending: Vec<Bytes>,
    sink: &mut impl Sink,
) -> Result<(), ApiError> {
    for chunk in ending {
        sink.chunk(chunk).await.map_err(|rejected| Failure::from(rejected).into_error())?;
    }
    book(app, request, continuation.prompt(), continuation.tokens());
    Ok(())
}

/// Counts a whole answer that ended at the seam: no engine has said what it used, so it is what the client was told.
fn book(app: &App, request: &ModelRequest, prompt: u64, completion: u64) {
    let tokens = Tokens { prompt, cached: 0, completion };
    let generation = request.account.first_content().map(|first| first.elapsed());
    request.account.used(tokens);
    app.metrics.record(Event::Answered { model: &request.model, generation, tokens });
}

/// How many tokens `text` has, as far as the engine tells in time (llama-server's `POST /tokenize`).
async fn tokens(lease: &dyn Lease, text: &str, limit: Duration) -> Option<u64> {
    let request = Request::post("/tokenize")
        .header(CONTENT_TYPE, "application/json")
        .body(Bytes::from(json!({ "content": text }).to_string()))
        .expect("a constant head is valid");
    let mut read = Vec::new();
    let answer = async {
        let response = lease.upstream().send(request).await.ok()?;
        answered::collect(response.into_body(), &mut read).await;
        serde_json::from_slice::<Value>(&read).ok()
    };
    let answer = timeout(limit, answer).await.ok()??;
    answer["tokens"].as_array().map(|tokens| tokens.len() as u64)
}

/// A sink that makes the second engine's chunks the rest of the first one's stream.
struct Splicing<'a, S> {
    sink: &'a mut S,
    splicer: Splicer,
}

impl<S: Sink> Sink for Splicing<'_, S> {
    fn hands_on(&self) -> bool {
        self.sink.hands_on()
    }

    async fn chunk(&mut self, data: Bytes) -> Result<(), Rejected> {
        for chunk in self.splicer.chunk(&data) {
            self.sink.chunk(chunk).await?;
        }
        // Ends the attempt, since nobody needs the rest.
        if self.splicer.is_over() { Err(Rejected::ClientGone) } else { Ok(()) }
    }

    fn progress(&mut self, _: &PromptProgress) {
        self.splicer.observe_progress();
    }

    async fn recovered(&mut self, recovery: Recovery) -> Result<(), Rejected> {
        self.sink.recovered(recovery).await
    }
}
