//! One attempt: a request sent once, and what its response's head says.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use gglib_core::api::chunk::Probe;
use gglib_core::api::error::{ApiError, Code, ErrorCode};
use gglib_core::ports::Upstream;
use gglib_core::retry::{ATTEMPT_HEADER, Advice, hint};
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use http::{HeaderName, HeaderValue, Request, response};

use super::reading::{Body, Clock};
use super::{Deltas, Failure};

const PATH: &str = "/v1/chat/completions";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// As OpenAI's and Anthropic's clients send it; draft-ietf-httpapi-idempotency-key-header would have it quoted.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How long one attempt waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Of a stream: from sending to the response's head. A plain answer's head comes when the answer is ready,
    /// so it has no such limit.
    pub headers: Duration,
    /// Of a stream: the longest pause between two pieces of the body. Comments count, as signs of life: our
    /// proxy sends one at least every 15 s while a request waits.
    pub idle: Duration,
    /// From sending to the last byte.
    pub attempt: Duration,
}

impl Default for Timeouts {
    /// 60 s, 60 s and 45 min.
    fn default() -> Self {
        let minute = Duration::from_mins(1);
        Self { headers: minute, idle: minute, attempt: 45 * minute }
    }
}

/// What every attempt of one call sends.
pub(super) struct Draft {
    body: Bytes,
    key: HeaderValue,
}

impl Draft {
    /// With a key of its own, by which a server that knows such keys recognises a repetition.
    pub(super) fn new(body: Bytes) -> Self {
        let key = format!("gglib-{:032x}", rand::random::<u128>());
        Self { body, key: HeaderValue::try_from(key).expect("hexadecimal digits are legal in a header") }
    }

    /// The request of the attempt of this number.
    fn request(&self, accept: HeaderValue, number: u32) -> Request<Bytes> {
        let mut request = Request::post(PATH).body(self.body.clone()).expect("the path is a URI");
        request.headers_mut().extend([
            (CONTENT_TYPE, JSON),
            (ACCEPT, accept),
            (IDEMPOTENCY_KEY, self.key.clone()),
            (HeaderName::from_static(ATTEMPT_HEADER), HeaderValue::from(number)),
        ]);
        request
    }
}

/// Asks for a plain answer; `number` counts the attempts from 1.
pub(super) async fn plain(
    upstream: &dyn Upstream,
    timeouts: Timeouts,
    draft: &Draft,
    number: u32,
) -> Result<Bytes, Failure> {
    let unlimited = Timeouts { headers: Duration::MAX, idle: Duration::MAX, ..timeouts };
    let (_, body) = send(upstream, unlimited, draft.request(JSON, number)).await?;
    let answer = body.whole().await?;
    match Probe::parse(&answer) {
        Ok(probe) if probe.error => Err(Failure::Event(error_inside(&answer))),
        Ok(_) => Ok(answer),
        Err(error) => Err(malformed(format!("the upstream's answer is no completion: {error}"))),
    }
}

/// Asks for a stream, and reads it up to its first content; `number` counts the attempts from 1.
pub(super) async fn stream(
    upstream: &dyn Upstream,
    timeouts: Timeouts,
    draft: &Draft,
    number: u32,
) -> Result<Deltas, Failure> {
    let (head, body) = send(upstream, timeouts, draft.request(EVENTS, number)).await?;
    match head.headers.get(CONTENT_TYPE) {
        Some(kind) if !kind.as_bytes().starts_with(EVENTS.as_bytes()) => {
            let kind = String::from_utf8_lossy(kind.as_bytes()).into_owned();
            let answer = body.whole().await?;
            Err(if Probe::parse(&answer).is_ok_and(|probe| probe.error) {
                Failure::Event(error_inside(&answer))
            } else {
                malformed(format!("the upstream answered with {kind} instead of a stream"))
            })
        }
        _ => Deltas::open(body).await,
    }
}

/// Sends the request and sorts out every response that is no success.
async fn send(
    upstream: &dyn Upstream,
    timeouts: Timeouts,
    request: Request<Bytes>,
) -> Result<(response::Parts, Body), Failure> {
    let clock = Clock::start(timeouts.attempt);
    let response = upstream.send(request);
    let response = clock.bound(response, timeouts.headers, ErrorCode::TimeoutResponseHeaders).await?;
    let (head, stream) = response.map_err(Failure::Transport)?.into_parts();
    let body = Body { stream, clock, idle: timeouts.idle };
    if head.status.is_success() { Ok((head, body)) } else { Err(refusal(&head, body).await) }
}

/// The failure that an error response tells of. The status counts even when the body breaks off, is far too long, or
/// does not come.
async fn refusal(head: &response::Parts, body: Body) -> Failure {
    let body = body.of_error().await.unwrap_or_default();
    let mut error =
        match head.headers.get(LOCATION).map(|location| String::from_utf8_lossy(location.as_bytes())) {
            Some(location) if head.status.is_redirection() => {
                let message = format!("the upstream redirects to {location}; use that as the base URL");
                ApiError::new(ErrorCode::UpstreamError, message)
            }
            _ => ApiError::from_upstream(head.status, &body),
        };
    error.status = head.status;
    error.retry_after = hint::parse(&head.headers, unix_now()).or_else(|| hint_inside(&error));
    error.should_retry = Advice::parse(&head.headers).map(|advice| advice == Advice::Retry);
    Failure::Status(error)
}

/// Reads an error that came with a success status: in a stream, or as a body.
pub(super) fn error_inside(json: &[u8]) -> ApiError {
    let mut error = ApiError::from_upstream(http::StatusCode::OK, json);
    // A string code of ours has lost its status on the way; other codes have theirs from the event.
    if let Code::Upstream(text) = &error.code
        && let Some(code) = ErrorCode::ALL.iter().find(|code| code.as_str() == &**text)
    {
        error.status = code.status();
    }
    error.retry_after = hint_inside(&error);
    error
}

/// Our verdict on an answer that does not follow the protocol.
pub(super) fn malformed(message: String) -> Failure {
    Failure::Verdict(ApiError::new(ErrorCode::UpstreamMalformed, message))
}

/// `error.metadata.retry_after_ms`, by which our proxy gives the unrounded hint.
fn hint_inside(error: &ApiError) -> Option<Duration> {
    error.metadata.get("retry_after_ms")?.as_u64().map(Duration::from_millis)
}

#[expect(clippy::disallowed_methods, reason = "a hint may be a date")]
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
