//! The completion client: one chat completion, asked for until it is answered or the policy gives up.
//!
//! This is the one place that sends the same request again. Between two attempts stands
//! [`retry::decide_with`]; what may be repeated is [`classify`]'s to say; and
//! from the first content that was handed on, nothing is repeated any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gglib_core::api::body::JsonObject;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::ports::Upstream;
use gglib_core::retry::{self, GiveUpReason, RetryDecision, RetryPolicy};
use tokio::time::Instant;

pub use attempt::Timeouts;
pub use classify::{Class, classify};
pub use delta::{Delta, ToolCallFragment, Usage};
pub use deltas::Deltas;
pub use error::{CompletionError, Failure};
pub use observer::{Notice, Observer};
pub use pause::{Pause, Sleep};

mod attempt;
mod classify;
mod delta;
mod deltas;
mod error;
mod observer;
mod pause;
mod reading;

/// Asks an OpenAI-compatible upstream for chat completions, and asks again by a [`RetryPolicy`].
///
/// A request is repeated only inside its idempotency window: from sending until the first content (text,
/// reasoning or a tool call) is handed on. A plain answer is handed on whole, so its window lasts until then.
/// Dropping the future of a call, or the [`Deltas`], ends it: nothing is sent afterwards.
///
/// `total_deadline` of the policy bounds the *sequence*: no attempt begins after it. It does not cut one short
/// that is under way, since waiting for a model to load is progress; [`Timeouts`] bound the single attempt.
///
/// ```no_run
/// use std::sync::Arc;
/// use gglib_core::retry::RetryPolicy;
/// use gglib_runtime::completion::{CompletionClient, Delta};
/// use gglib_runtime::http::HttpUpstream;
///
/// # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
/// let upstream = Arc::new(HttpUpstream::new("http://127.0.0.1:8080/v1", None)?);
/// let client = CompletionClient::new(upstream, RetryPolicy::from_env());
/// let body = r#"{"model":"smollm2","messages":[{"role":"user","content":"Hello!"}]}"#;
/// let mut deltas = client.stream(body.into()).await?;
/// while let Some(delta) = deltas.next().await {
///     if let Delta::Text(text) = delta? {
///         print!("{text}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CompletionClient {
    upstream: Arc<dyn Upstream>,
    policy: RetryPolicy,
    timeouts: Timeouts,
    observer: Option<Arc<dyn Observer>>,
    pause: Arc<dyn Pause>,
    jitter: fn() -> f64,
}

impl CompletionClient {
    /// A client of `upstream` that sleeps on tokio's clock and draws its jitter from the thread's generator.
    pub fn new(upstream: Arc<dyn Upstream>, policy: RetryPolicy) -> Self {
        Self {
            upstream,
            policy,
            timeouts: Timeouts::default(),
            observer: None,
            pause: Arc::new(Sleep),
            jitter: retry::jitter_unit,
        }
    }

    /// Tells `observer` of every wait, of a success after one, and of giving up.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Bounds each attempt by `timeouts`.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sleeps by `pause` instead of tokio's clock.
    #[must_use]
    pub fn with_pause(mut self, pause: Arc<dyn Pause>) -> Self {
        self.pause = pause;
        self
    }

    /// Takes the jitter units, each in [0, 1), from `jitter`.
    #[must_use]
    pub fn with_jitter(mut self, jitter: fn() -> f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// The whole answer to the chat completion that `body` (a JSON object) asks for, as the upstream's JSON.
    ///
    /// `stream` in the body is set to false if it is true.
    pub async fn complete(&self, body: Bytes) -> Result<Bytes, CompletionError> {
        let body = prepare(body, Shape::Plain)?;
        self.repeat(|| attempt::plain(&*self.upstream, self.timeouts, body.clone())).await
    }

    /// The answer to the chat completion that `body` (a JSON object) asks for, piece by piece.
    ///
    /// Resolves when the first content has come, or the whole of an answer without any. `stream` in the body is
    /// set to true if it is not; `n` must be 1 or absent, because the pieces do not say whose they are.
    pub async fn stream(&self, body: Bytes) -> Result<Deltas, CompletionError> {
        let body = prepare(body, Shape::Stream)?;
        self.repeat(|| attempt::stream(&*self.upstream, self.timeouts, body.clone())).await
    }

    /// The backoff loop.
    async fn repeat<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, CompletionError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let start = Instant::now();
        let mut sequence = Sequence { attempts: 0, waited: Duration::ZERO };
        let mut previous_delay = self.policy.initial_backoff;
        loop {
            sequence.attempts += 1;
            let failure = match attempt().await {
                Ok(answer) => {
                    self.succeeded(&sequence);
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            let Class::Retryable { hint } = classify(&failure) else {
                return Err(CompletionError::Rejected(failure.into_error()));
            };
            let decision = retry::decide_with(
                &self.policy,
                sequence.attempts,
                hint,
                start.elapsed(),
                (self.jitter)(),
                previous_delay,
            );
            let delay = match decision {
                RetryDecision::Retry { after } => after,
                RetryDecision::GiveUp(reason) => return Err(self.give_up(reason, &sequence, start, failure)),
            };
            self.notice(&Notice::Waiting {
                attempt: sequence.attempts,
                max_attempts: self.policy.max_attempts,
                delay,
                cause: &failure,
            });
            self.pause.pause(delay).await;
            sequence.waited += delay;
            previous_delay = delay;
            // A machine that was suspended in the meantime wakes up long after the deadline.
            if start.elapsed() >= self.policy.total_deadline {
                return Err(self.give_up(GiveUpReason::DeadlineExceeded, &sequence, start, failure));
            }
        }
    }

    fn succeeded(&self, sequence: &Sequence) {
        if sequence.attempts > 1 {
            self.notice(&Notice::Recovered { attempts: sequence.attempts, waited: sequence.waited });
        }
    }

    fn give_up(
        &self,
        reason: GiveUpReason,
        sequence: &Sequence,
        start: Instant,
        last: Failure,
    ) -> CompletionError {
        let (attempts, elapsed) = (sequence.attempts, start.elapsed());
        self.notice(&Notice::GaveUp { reason, attempts, elapsed, last: &last });
        CompletionError::GaveUp { reason, attempts, elapsed, last: Box::new(last) }
    }

    fn notice(&self, notice: &Notice<'_>) {
        if let Some(observer) = &self.observer {
            observer.notice(notice);
        }
    }
}

/// What a backoff sequence has come to.
struct Sequence {
    attempts: u32,
    /// In pauses.
    waited: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Stream,
}

/// The body with `stream` as `shape` needs it, and otherwise as it is.
fn prepare(body: Bytes, shape: Shape) -> Result<Bytes, ApiError> {
    let mut body = JsonObject::parse(body)?;
    let wanted = shape == Shape::Stream;
    if body.bool_member("stream")?.unwrap_or(false) != wanted {
        body.set("stream", wanted);
    }
    if wanted && body.u64_member("n")?.unwrap_or(1) != 1 {
        let message = "`n` must be 1 in a stream; several answers come as a plain one";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message).with_param("n"));
    }
    Ok(body.into_bytes())
}
