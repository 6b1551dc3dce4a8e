//! One issue of a request to one engine, and its clocks.

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::api::chunk::{Frame, Probe, StreamState};
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::config::Timeouts;
use gglib_core::ports::{ByteStream, Phase, Upstream, UpstreamError};
use gglib_core::sse::{Decoder, SseError, SseEvent};
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::{Rejected, Sink};
use crate::request::ChatRequest;

/// The most of an upstream's error body that is read.
const ERROR_BODY: usize = 1024 * 1024;

pub(super) struct Attempt<'a> {
    request: &'a ChatRequest,
    timeouts: &'a Timeouts,
    started: Instant,
    state: StreamState,
    /// The highest count of processed prompt tokens so far.
    processed: u64,
    /// Chunks without content, held back until there is some: a second attempt has its own.
    held: Vec<Bytes>,
}

/// Why an attempt did not end in a whole answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The transport failed: perhaps the engine is dead, perhaps only a connection was.
    Broken { error: UpstreamError, committed: bool },
    /// The stream ended in good order without being whole.
    Incomplete { error: ApiError, committed: bool },
    /// A clock ran out: perhaps the engine hangs.
    Silent { error: ApiError, committed: bool },
    /// The engine answered, and this is its answer; or it cannot be understood.
    Answered(ApiError),
    /// Nobody reads any more.
    ClientGone,
}

impl Failure {
    /// Whether the engine may be dead.
    pub(super) fn is_suspicion(&self) -> bool {
        matches!(self, Self::Broken { .. } | Self::Incomplete { .. } | Self::Silent { .. })
    }

    /// Whether nothing has been handed on that a second issue would repeat.
    pub(super) fn window_is_open(&self) -> bool {
        match self {
            Self::Broken { committed, .. }
            | Self::Incomplete { committed, .. }
            | Self::Silent { committed, .. } => !committed,
            Self::Answered(_) | Self::ClientGone => false,
        }
    }

    /// Whether an engine that is alive may be asked again: not when it was merely slow.
    pub(super) fn may_be_resent(&self) -> bool {
        self.window_is_open() && !matches!(self, Self::Silent { .. })
    }

    /// What the client is told when nothing more can be done.
    pub(super) fn into_error(self) -> ApiError {
        match self {
            Self::Broken { error, committed } => {
                let code = match error.phase() {
                    Phase::Connect => ErrorCode::UpstreamUnreachable,
                    Phase::BeforeHeaders | Phase::AfterHeaders | Phase::MidBody => ErrorCode::UpstreamDied,
                };
                let what = if committed { "; the answer so far is incomplete" } else { "" };
                ApiError::new(code, format!("{error}{what}")).not_worth_retrying()
            }
            Self::Incomplete { error, .. } | Self::Silent { error, .. } => error.not_worth_retrying(),
            Self::Answered(error) => error,
            Self::ClientGone => ApiError::new(ErrorCode::Internal, "the client has left"),
        }
    }
}

impl From<Rejected> for Failure {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::ClientGone => Self::ClientGone,
            Rejected::Malformed(error) => Self::Answered(error),
        }
    }
}

impl<'a> Attempt<'a> {
    pub(super) fn new(request: &'a ChatRequest, timeouts: &'a Timeouts) -> Self {
        let state = StreamState::new(request.choices);
        Self { request, timeouts, started: Instant::now(), state, processed: 0, held: Vec::new() }
    }

    pub(super) async fn run(mut self, upstream: &dyn Upstream, sink: &mut impl Sink) -> Result<(), Failure> {
        let response = self.send(upstream).await?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(response).await);
        }
        let mut body = response.into_body();
        let mut events = Decoder::default();
        let mut progress = Instant::now();
        while let Some(bytes) = self.next_bytes(&mut body, progress).await? {
            events.push(bytes);
            while let Some(event) = events.next_event() {
                if self.take(event, sink).await? {
                    progress = Instant::now();
                }
                if self.state.is_done() {
                    return self.verdict();
                }
            }
        }
        events.finish();
        while let Some(event) = events.next_event() {
            self.take(event, sink).await?;
        }
        self.verdict()
    }

    async fn send(&self, upstream: &dyn Upstream) -> Result<Response<ByteStream>, Failure> {
        let request = Request::post("/v1/chat/completions")
            .header(CONTENT_TYPE, "application/json")
            .body(self.request.body.clone())
            .expect("a constant head is valid");
        let limit = self.timeouts.connect + self.timeouts.response_headers;
        match timeout_at(self.started + limit, upstream.send(request)).await {
            Ok(sent) => sent.map_err(|error| Failure::Broken { error, committed: false }),
            Err(_) => Err(self.silent(ErrorCode::TimeoutResponseHeaders, "the engine did not answer", limit)),
        }
    }

    /// The next piece of the body; `None` at its end.
    async fn next_bytes(&self, body: &mut ByteStream, progress: Instant) -> Result<Option<Bytes>, Failure> {
        let committed = self.is_committed();
        let (code, what, limit) = if committed {
            (ErrorCode::TimeoutIdle, "the engine paused", self.timeouts.idle)
        } else {
            (
                ErrorCode::TimeoutFirstContent,
                "the engine made no progress on the prompt",
                self.timeouts.first_content,
            )
        };
        let total = self.started + self.timeouts.total;
        match timeout_at((progress + limit).min(total), body.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
            Ok(Some(Err(error))) => Err(Failure::Broken { error, committed }),
            Err(_) if Instant::now() >= total => {
                Err(self.silent(ErrorCode::TimeoutTotal, "the answer was not complete", self.timeouts.total))
            }
            Err(_) => Err(self.silent(code, what, limit)),
        }
    }

    /// Handles one event; whether it was progress. Comments are not: an engine that hangs still sends them.
    async fn take(
        &mut self,
        event: Result<SseEvent, SseError>,
        sink: &mut impl Sink,
    ) -> Result<bool, Failure> {
        let data = match event {
            Ok(SseEvent::Message { data, .. }) => data,
            Ok(SseEvent::Comment(_)) => return Ok(false),
            Err(error) => {
                let message = format!("the engine's answer cannot be read: {error}");
                return Err(Failure::Answered(ApiError::new(ErrorCode::UpstreamMalformed, message)));
            }
        };
        match self.state.observe(&data).map_err(Failure::Answered)? {
            Frame::Done => Ok(true),
            Frame::Chunk(probe) => {
                self.hand_on(&probe, data, sink).await?;
                Ok(self.is_progress(&probe))
            }
        }
    }

    async fn hand_on(&mut self, probe: &Probe, data: Bytes, sink: &mut impl Sink) -> Result<(), Rejected> {
        if probe.is_progress_only() {
            return if self.request.progress { sink.chunk(data).await } else { Ok(()) };
        }
        if !self.is_committed() && !self.state.is_whole() {
            self.held.push(data);
            return Ok(());
        }
        for held in self.held.drain(..) {
            sink.chunk(held).await?;
        }
        sink.chunk(data).await
    }

    fn is_progress(&mut self, probe: &Probe) -> bool {
        let before = self.processed;
        if let Some(progress) = &probe.progress {
            self.processed = before.max(progress.processed);
        }
        let finished = probe.choices.iter().any(|choice| choice.finish_reason.is_some());
        self.processed > before || finished || probe.content().is_some()
    }

    /// Whether the idempotency window has closed.
    fn is_committed(&self) -> bool {
        self.state.content().is_some()
    }

    fn verdict(self) -> Result<(), Failure> {
        let committed = self.is_committed();
        self.state.end().map_err(|error| Failure::Incomplete { error, committed })
    }

    fn silent(&self, code: ErrorCode, what: &str, limit: std::time::Duration) -> Failure {
        let error = ApiError::new(code, format!("{what} for {} s", limit.as_secs()));
        Failure::Silent { error, committed: self.is_committed() }
    }

    /// The engine's own error, which is the client's answer.
    async fn refused(&self, response: Response<ByteStream>) -> Failure {
        let status = response.status();
        let mut body = response.into_body();
        let mut read = Vec::new();
        loop {
            match self.next_bytes(&mut body, self.started).await {
                Ok(Some(bytes)) if read.len() < ERROR_BODY => read.extend_from_slice(&bytes),
                Ok(_) => return Failure::Answered(ApiError::from_upstream(status, &read)),
                Err(failure) => return failure,
            }
        }
    }
}
