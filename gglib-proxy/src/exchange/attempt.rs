//! One issue of a request to one engine, and its clocks.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use gglib_core::api::chunk::{Frame, Identity, Probe, StreamState};
use gglib_core::api::error::{ApiError, Code, ErrorCode};
use gglib_core::ports::{ByteStream, Lease, Liveness, SlotWitness};
use gglib_core::slots::{Conversation, PromptCounts};
use gglib_core::sse::{Decoder, SseError, SseEvent};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response, StatusCode};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::activity::Presence;
use super::failure::Failure;
use super::{Rejected, Sink, answered};
use crate::app::{App, Settings};
use crate::metrics::AnswerMeter;
use crate::own_chunk;
use crate::request::ModelRequest;
use crate::route::Route;

/// How many chunks without content are held back. An engine sends two or three before its content; what it says beyond
/// that is nothing.
const HELD: usize = 64;

/// The silence after which an engine is looked at that sends a comment after each second without anything else: its
/// launch asks for that, and the threads that do it are not those that compute.
const SILENCE: Duration = Duration::from_secs(10);

/// How long an engine may take, after the last choice has finished, to send its usage and the end of the stream.
const AFTERWORD: Duration = Duration::from_secs(2);

pub(super) struct Attempt<'a, S> {
    request: &'a ModelRequest,
    settings: &'a Settings,
    lease: &'a dyn Lease,
    witness: Option<&'a dyn SlotWitness>,
    sink: &'a mut S,
    meter: AnswerMeter<'a>,
    presence: Presence,
    started: Instant,
    /// When the engine last got on: with the prompt, the content or the end.
    progress: Instant,
    state: StreamState,
    /// The highest count of processed prompt tokens so far.
    processed: u64,
    /// Whether the engine is at the prompt, as far as it has told. A prefix that it repeats comes before that.
    reads_prompt: bool,
    /// Chunks without content, held back until there is some: a second attempt has its own.
    held: Vec<Bytes>,
    /// Whether a chunk that names the role is held or has been handed on.
    has_role: bool,
    /// What the engine had of the prompt in its cache.
    counts: Option<PromptCounts>,
}

impl<'a, S: Sink> Attempt<'a, S> {
    pub(super) fn new(
        app: &'a App,
        request: &'a ModelRequest,
        lease: &'a dyn Lease,
        sink: &'a mut S,
        meter: AnswerMeter<'a>,
    ) -> Self {
        let started = Instant::now();
        Self {
            request,
            settings: &app.settings,
            lease,
            witness: app.slots.as_deref(),
            sink,
            meter,
            presence: app.activity.enter(lease.generation()),
            started,
            progress: started,
            state: StreamState::new(request.choices),
            processed: 0,
            reads_prompt: false,
            held: Vec::new(),
            has_role: request.route != Route::Chat,
            counts: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Failure> {
        let outcome = self.stream().await;
        self.presence.conclude();
        outcome?;
        self.verdict()
    }

    /// Like [`run`](Self::run), of an answer that is no stream: handed on as it is, when all of it has come.
    pub(super) async fn run_whole(mut self) -> Result<(), Failure> {
        let outcome = self.whole().await;
        self.presence.conclude();
        outcome
    }

    async fn stream(&mut self) -> Result<(), Failure> {
        let mut body = self.body().await?;
        let mut events = Decoder::default();
        self.progress = Instant::now();
        while let Some(bytes) = self.next_bytes(&mut body).await? {
            events.push(bytes);
            while let Some(event) = events.next_event() {
                self.take(event).await?;
                if self.state.is_done() {
                    return Ok(());
                }
            }
        }
        events.finish();
        // Of an answer that is whole nothing is missing but the end of its usage, which may have been torn.
        while !self.state.is_whole()
            && let Some(event) = events.next_event()
        {
            self.take(event).await.map_err(|failure| self.torn(failure))?;
        }
        Ok(())
    }

    /// What went wrong with an event behind which the body ended: one that cannot be read has been cut off, by
    /// whatever has ended the body.
    fn torn(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Answered(ApiError { code: Code::Known(ErrorCode::UpstreamMalformed), .. }) => {
                let error =
                    ApiError::new(ErrorCode::UpstreamIncomplete, "the engine's answer ended in an event");
                Failure::Incomplete { error, committed: self.is_committed() }
            }
            other => other,
        }
    }

    async fn whole(&mut self) -> Result<(), Failure> {
        let mut body = self.body().await?;
        let mut whole = BytesMut::new();
        self.progress = Instant::now();
        while let Some(bytes) = self.next_bytes(&mut body).await? {
            whole.extend_from_slice(&bytes);
            self.progress = Instant::now();
            self.presence.advance(self.progress);
        }
        if serde_json::from_slice::<IgnoredAny>(&whole).is_err() {
            let error = ApiError::new(ErrorCode::UpstreamIncomplete, "the engine's answer is not whole");
            return Err(Failure::Incomplete { error, committed: false });
        }
        self.meter.used(&whole);
        self.meter.answered();
        self.lease.worked();
        Ok(self.sink.chunk(whole.freeze()).await?)
    }

    /// What the engine answers, if that is no error.
    async fn body(&self) -> Result<ByteStream, Failure> {
        if let Some(witness) = self.witness {
            witness.asked(self.lease.generation());
        }
        let response = self.send().await?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        let error = answered::to_error(response, &self.settings.retry).await;
        Err(self.answered(status, error))
    }

    async fn send(&self) -> Result<Response<ByteStream>, Failure> {
        let request = Request::post(self.request.route.path())
            .header(CONTENT_TYPE, "application/json")
            .body(self.request.body.clone())
            .expect("a constant head is valid");
        let timeouts = &self.settings.timeouts;
        let total = self.total();
        let mut sent = self.lease.upstream().send(request);
        let mut limit = timeouts.connect + timeouts.response_headers;
        let mut since = self.started;
        let mut head = timeout_at((since + limit).min(total), &mut sent).await;
        if head.is_err() && self.lease.confirm().await == Liveness::Alive {
            // It is busy: the head comes with the first result, and that waits for the batch that the engine is
            // at, be it of a request whose client has left.
            limit = limit.max(timeouts.first_content);
            loop {
                head = timeout_at((since + limit).min(total), &mut sent).await;
                if head.is_ok() || !self.is_queued(since) {
                    break;
                }
                since = Instant::now();
            }
        }
        let Ok(sent) = head else {
            if Instant::now() >= total {
                return Err(self.over(since));
            }
            let what = "the engine did not answer";
            return Err(self.silent(ErrorCode::TimeoutResponseHeaders, what, limit, since));
        };
        sent.map_err(|error| Failure::Broken { error, committed: false })
    }

    /// The next piece of the body; `None` at its end.
    async fn next_bytes(&mut self, body: &mut ByteStream) -> Result<Option<Bytes>, Failure> {
        let timeouts = &self.settings.timeouts;
        let total = self.total();
        let awaits_first = !self.has_content() || self.reads_prompt;
        let (code, what, limit) = if awaits_first {
            let what = "the engine made no progress on the prompt";
            (ErrorCode::TimeoutFirstContent, what, timeouts.first_content)
        } else {
            (ErrorCode::TimeoutIdle, "the engine paused", timeouts.idle)
        };
        let patience = if self.state.is_whole() { AFTERWORD.min(limit) } else { limit };
        let mut look = self.presence.pings().then(|| Instant::now() + SILENCE);
        loop {
            if Instant::now() >= total && !self.state.is_whole() {
                // Also of an engine, or a client, that is never long in coming.
                return Err(self.over(self.progress));
            }
            let until = (self.progress + patience).min(total);
            let piece = timeout_at(look.map_or(until, |look| look.min(until)), body.next()).await;
            if piece.is_err() && look.is_some_and(|look| look < until) {
                look = None;
                if self.lease.confirm().await == Liveness::Dead {
                    return Err(self.fallen_silent());
                }
                continue;
            }
            if piece.is_err() && awaits_first && !self.state.is_whole() && self.is_queued(self.progress) {
                self.progress = Instant::now();
                continue;
            }
            return match piece {
                Ok(None) => Ok(None),
                Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
                // Every choice has finished: whatever becomes of the connection now, the answer is whole.
                _ if self.state.is_whole() => Ok(None),
                Ok(Some(Err(error))) => Err(Failure::Broken { error, committed: self.is_committed() }),
                Err(_) if Instant::now() >= total => Err(self.over(self.progress)),
                Err(_) => Err(self.silent(code, what, limit, self.progress)),
            };
        }
    }

    /// Whether a wait that began at `since` is a place in a queue: the engine was busy with another request. One that
    /// gets on with none of its requests is stuck.
    fn is_queued(&self, since: Instant) -> bool {
        Instant::now() < self.total() && self.presence.others_advanced_since(since)
    }

    /// Handles one event. Comments are no progress: an engine that hangs still sends them.
    async fn take(&mut self, event: Result<SseEvent, SseError>) -> Result<(), Failure> {
        let data = match event {
            Ok(SseEvent::Message { data, .. }) => data,
            Ok(SseEvent::Comment(_)) => {
                self.presence.pinged();
                return Ok(());
            }
            Err(error) => {
                let message = format!("the engine's answer cannot be read: {error}");
                return Err(Failure::Answered(ApiError::new(ErrorCode::UpstreamMalformed, message)));
            }
        };
        let frame = self.state.observe(&data).map_err(|error| {
            let error = answered::with_advice(error, &HeaderMap::new(), &self.settings.retry);
            self.answered(error.status, error)
        })?;
        if let Frame::Chunk(probe) = frame {
            self.meter.observe(&probe, &data);
            self.counts = probe.counts.or(self.counts);
            match timeout_at(self.total(), self.hand_on(&probe, data)).await {
                Ok(taken) => taken?,
                Err(_) => return Err(self.over(self.progress)),
            }
            if self.is_committed() {
                self.meter.shown();
            }
            // After the client has taken it: how long that took is not the engine's affair.
            if self.is_progress(&probe) {
                self.progress = Instant::now();
                self.presence.advance(self.progress);
            }
        }
        Ok(())
    }

    async fn hand_on(&mut self, probe: &Probe, data: Bytes) -> Result<(), Rejected> {
        if let Some(progress) = &probe.progress {
            self.sink.progress(progress);
        }
        if probe.is_usage_only() && !self.request.usage {
            return Ok(());
        }
        if probe.is_progress_only() {
            return if self.request.progress { self.sink.chunk(data).await } else { Ok(()) };
        }
        let names_role = probe.choices.iter().any(|choice| choice.role);
        let finishes = probe.choices.iter().any(|choice| choice.finish_reason.is_some());
        let is_needed = finishes || probe.usage || (names_role && !self.has_role);
        self.has_role |= names_role;
        if !self.has_content() && !self.state.is_whole() {
            // Not even one too many is sent: a second attempt would begin with another role and id.
            if is_needed || self.held.len() < HELD {
                self.held.push(data);
            }
            return Ok(());
        }
        if !self.has_role {
            // The engine leaves it out when its first token is half a character.
            self.has_role = true;
            let role = json!({ "role": "assistant", "content": null });
            let identity = Identity::of(&data).or(own_chunk::identity(&self.request.model));
            self.sink.chunk(own_chunk::with_delta(&role, &identity)).await?;
        }
        for held in self.held.drain(..) {
            self.sink.chunk(held).await?;
        }
        self.sink.chunk(data).await
    }

    fn is_progress(&mut self, probe: &Probe) -> bool {
        let before = self.processed;
        if let Some(progress) = &probe.progress {
            self.processed = before.max(progress.processed);
            self.reads_prompt = progress.processed < progress.total;
        } else if probe.content().is_some() {
            self.reads_prompt = false;
        }
        let finished = probe.choices.iter().any(|choice| choice.finish_reason.is_some());
        self.processed > before || finished || probe.content().is_some()
    }

    fn has_content(&self) -> bool {
        self.state.content().is_some()
    }

    /// Whether the idempotency window has closed.
    fn is_committed(&self) -> bool {
        self.sink.hands_on() && self.has_content()
    }

    fn verdict(mut self) -> Result<(), Failure> {
        let committed = self.is_committed();
        self.state.end().map_err(|error| Failure::Incomplete { error, committed })?;
        self.meter.answered();
        self.lease.worked();
        if let (Some(witness), Some(counts)) = (self.witness, self.counts) {
            let conversation = Conversation::of(&self.request.body);
            witness.answered(self.lease.generation(), conversation.as_ref(), counts);
        }
        Ok(())
    }

    /// The engine's own error. One of its own making has to be told from those that a request has brought about.
    fn answered(&self, status: StatusCode, error: ApiError) -> Failure {
        match status {
            StatusCode::INTERNAL_SERVER_ERROR => Failure::Failed { error, committed: self.is_committed() },
            _ => Failure::Answered(error),
        }
    }

    /// When this attempt has to be over.
    fn total(&self) -> Instant {
        self.started + self.settings.timeouts.total
    }

    /// The attempt has taken as long as it may; the engine last got on at `since`.
    fn over(&self, since: Instant) -> Failure {
        let limit = self.settings.timeouts.total;
        self.silent(ErrorCode::TimeoutTotal, "the answer was not complete", limit, since)
    }

    /// Not even a comment came any more, and the engine does not answer a look either.
    fn fallen_silent(&self) -> Failure {
        let silence = SILENCE.as_secs();
        let message = format!("the engine fell silent for {silence} s and does not answer its health probe");
        let error = ApiError::new(ErrorCode::UpstreamDied, message);
        Failure::Stalled { error, committed: self.is_committed() }
    }

    /// A clock has run out, of a wait that began at `since`. If the engine has got on with nothing meanwhile, it hangs.
    fn silent(&self, code: ErrorCode, what: &str, limit: Duration, since: Instant) -> Failure {
        let error = ApiError::new(code, format!("{what} for {} s", limit.as_secs()));
        let committed = self.is_committed();
        let is_cut_short = code == ErrorCode::TimeoutTotal || Instant::now() < since + limit;
        if is_cut_short || self.presence.others_advanced_since(since) {
            Failure::Slow { error, committed }
        } else {
            Failure::Stalled { error, committed }
        }
    }
}
