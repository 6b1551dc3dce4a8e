//! The completion client: one chat completion, asked for until it is answered or the policy gives up.
//!
//! This is the one place that sends the same request again. Between two attempts stands the [`RetrySequence`] of
//! core, which knows the rules, the budget and the breaker; what it needs to know of a failure are its
//! [facts](Failure::facts); and from the first content that was handed on, nothing is repeated any more.

use std::sync::Arc;

use bytes::Bytes;
use gglib_core::api::body::JsonObject;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::ports::Upstream;
use gglib_core::retry::{self, GiveUpReason, Next, RetryRules, RetrySequence};
use tokio::time::Instant;

pub use attempt::Timeouts;
pub use delta::{Delta, ToolCallFragment, Usage};
pub use deltas::Deltas;
pub use error::{CompletionError, Failure};
pub use observer::{Notice, Observer};
pub use pause::{Pause, Sleep};

use attempt::Draft;
use call::Call;
use shared::Shared;

mod attempt;
mod call;
mod delta;
mod deltas;
mod error;
mod facts;
mod observer;
mod pause;
mod reading;
mod shared;

/// Asks an OpenAI-compatible upstream for chat completions, and asks again by [`RetryRules`].
///
/// A request is repeated only inside its idempotency window: from sending until the first content (text,
/// reasoning or a tool call) is handed on. A plain answer is handed on whole, so its window lasts until then.
/// Dropping the future of a call, or the [`Deltas`], ends it: nothing is sent afterwards.
///
/// A client and its clones share the upstream's [budget](retry::RetryBudget) and
/// [breaker](retry::CircuitBreaker): so make one client per base URL, and clone it. The budget allows the retries of
/// one call in 10 s, and a tenth of the calls on top. The breaker opens when 3 calls in a row have failed, for 60 s.
/// Each attempt carries its number as [`ATTEMPT_HEADER`](retry::ATTEMPT_HEADER), and the attempts of one call the same
/// `Idempotency-Key`, which no other call has.
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
    name: Arc<str>,
    rules: Arc<RetryRules>,
    shared: Arc<Shared>,
    timeouts: Timeouts,
    observer: Option<Arc<dyn Observer>>,
    pause: Arc<dyn Pause>,
    jitter: fn() -> f64,
}

impl CompletionClient {
    /// A client of `upstream` that sleeps on tokio's clock and draws its jitter from the thread's generator.
    ///
    /// `rules` may be a [`RetryPolicy`](retry::RetryPolicy), for gglib's own rules with its numbers.
    pub fn new(upstream: Arc<dyn Upstream>, rules: impl Into<RetryRules>) -> Self {
        let rules = rules.into();
        Self {
            upstream,
            name: "the upstream".into(),
            shared: Arc::new(Shared::new(&rules)),
            rules: Arc::new(rules),
            timeouts: Timeouts::default(),
            observer: None,
            pause: Arc::new(Sleep),
            jitter: retry::jitter_unit,
        }
    }

    /// Calls the upstream `name` in notices, errors and the log: its base URL, say.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Tells `observer` of everything that happens in a backoff sequence.
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
        let draft = Draft::new(prepare(body, Shape::Plain)?);
        self.repeat(|number| attempt::plain(&*self.upstream, self.timeouts, &draft, number)).await
    }

    /// The answer to the chat completion that `body` (a JSON object) asks for, piece by piece.
    ///
    /// Resolves when the first content has come, or the whole of an answer without any. `stream` in the body is
    /// set to true if it is not; `n` must be 1 or absent, because the pieces do not say whose they are.
    pub async fn stream(&self, body: Bytes) -> Result<Deltas, CompletionError> {
        let draft = Draft::new(prepare(body, Shape::Stream)?);
        self.repeat(|number| attempt::stream(&*self.upstream, self.timeouts, &draft, number)).await
    }

    /// The backoff loop. Dropping it cancels the sequence.
    async fn repeat<T, F>(&self, attempt: impl Fn(u32) -> F) -> Result<T, CompletionError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let start = Instant::now();
        let (mut call, mut next) = Call::begin(&self.shared, &self.rules, &self.name, self.observer.as_ref());
        let mut last = None;
        loop {
            next = match next {
                Next::Attempt => match attempt(call.attempts()).await {
                    Ok(answer) => {
                        call.succeed();
                        return Ok(answer);
                    }
                    Err(failure) => {
                        let unit = (self.jitter)();
                        let failure = &*last.insert(failure);
                        call.step(Some(failure), |sequence, now, target| {
                            sequence.on_failure(&failure.facts(), now, unit, target)
                        })
                    }
                },
                Next::Wait { delay } => {
                    self.pause.pause(delay).await;
                    call.step(last.as_ref(), RetrySequence::on_wake)
                }
                Next::GiveUp { reason, retry_at } => {
                    let now = self.shared.now();
                    let retry_after = retry_at.map(|at| at.saturating_since(now));
                    return Err(match (last, reason) {
                        (None, _) => CompletionError::CircuitOpen {
                            upstream: Arc::clone(&self.name),
                            retry_after: retry_after.unwrap_or_default(),
                        },
                        (Some(last), GiveUpReason::NotRetryable) => {
                            CompletionError::Rejected(last.into_error())
                        }
                        (Some(last), reason) => CompletionError::GaveUp {
                            reason,
                            attempts: call.attempts(),
                            elapsed: start.elapsed(),
                            last: Box::new(last),
                            retry_after,
                        },
                    });
                }
            }
        }
    }
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
