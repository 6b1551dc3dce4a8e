//! The path of one request: lease, attempt, and at most one recovery of each kind.
//!
//! Nothing here repeats work after a delay; that is the client's policy. What is re-issued is re-issued once,
//! in straight lines: on a second connection when the first one broke and the engine is alive, and on a
//! relaunched engine when it is dead. Both only inside the idempotency window: before the first content. After it a
//! relaunched engine may go on where the dead one broke off.

use bytes::Bytes;
use gglib_core::admission::Outlook;
use gglib_core::api::chunk::PromptProgress;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::ports::Liveness;
use tokio::time::{Instant, timeout_at};

pub(crate) use self::answered::unix_now;
use self::attempt::Attempt;
use self::continuation::Recording;
use self::failure::Failure;
use self::vigil::Watched;
use self::wait::lease;
use crate::app::App;
use crate::metrics::{AnswerMeter, Event};
use crate::refusal;
use crate::request::ModelRequest;

pub(crate) mod activity;
mod answered;
mod attempt;
mod continuation;
mod failure;
mod repair;
mod vigil;
mod wait;

/// Who receives the answer.
pub(crate) trait Sink: Send {
    /// Whether content that has been taken is out of our hands. If so it has closed the idempotency window.
    fn hands_on(&self) -> bool;

    /// Takes the data of one chunk, `[DONE]` excepted. Resolves when there is room for more.
    fn chunk(&mut self, data: Bytes) -> impl Future<Output = Result<(), Rejected>> + Send;

    /// Hears how the wait for an engine stands, now and then while it lasts.
    fn waits(&mut self, _: Outlook) {}

    /// Hears how far the engine has come with the prompt, before the chunk that says so.
    fn progress(&mut self, _: &PromptProgress) {}

    /// Hears of a recovery; see [`Recovery::begins_anew`].
    fn recovered(&mut self, recovery: Recovery) -> impl Future<Output = Result<(), Rejected>> + Send;
}

/// Why a sink takes no more.
#[derive(Debug)]
pub(crate) enum Rejected {
    /// The client has left.
    ClientGone,
    /// The chunk cannot be part of an answer.
    Malformed(ApiError),
}

/// What the client is told of: a re-issue, or a change to the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// On a second connection: the first one broke, but the engine is alive.
    Resend,
    /// On a relaunched engine: the first one was dead.
    Relaunch,
    /// On a relaunched engine, from where the dead one broke off.
    Continuation,
    /// Tool calls were asked for again.
    Repair,
    /// The packaging of tool calls was mended, without a re-issue.
    Mend,
}

impl Recovery {
    /// The value of `x-gglib-recovery`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Resend => "resend",
            Self::Relaunch => "relaunch",
            Self::Continuation => "continuation",
            Self::Repair => "repair",
            Self::Mend => "mend",
        }
    }

    /// Whether the answer begins anew: what was taken before does not belong to it.
    pub(crate) const fn begins_anew(self) -> bool {
        matches!(self, Self::Resend | Self::Relaunch)
    }
}

/// Answers `request` into `sink`, before `deadline`.
pub(crate) async fn run(
    app: &App,
    request: &ModelRequest,
    deadline: Instant,
    sink: &mut impl Sink,
) -> Result<(), ApiError> {
    let mut sink = Recording::new(sink);
    timeout_at(deadline, answer(app, request, &mut sink)).await.unwrap_or_else(|_| {
        let bound = app.settings.timeouts.request.as_secs();
        let message = format!("the request was not answered within {bound} s");
        Err(ApiError::new(ErrorCode::TimeoutRequest, message).not_worth_retrying())
    })
}

async fn answer(
    app: &App,
    request: &ModelRequest,
    sink: &mut Recording<'_, impl Sink>,
) -> Result<(), ApiError> {
    let lease = lease(app, request, sink).await?;
    let outcome = attempt(app, &lease, request, sink).await;
    let Err(failure) = outcome else { return Ok(()) };
    match failure.examine(&*lease).await {
        Liveness::Alive if failure.may_be_resent() => {
            resend(app, lease, request, sink).await.map_err(after_recovery)
        }
        Liveness::Dead => {
            drop(lease);
            recover(app, request, failure, sink).await
        }
        Liveness::Alive => Err(failure.into_error()),
    }
}

/// The engine is dead: another one begins anew, or goes on where the client has seen content. By the settings of this
/// moment, as for any request that enters the queue now.
async fn recover(
    app: &App,
    request: &ModelRequest,
    failure: Failure,
    sink: &mut Recording<'_, impl Sink>,
) -> Result<(), ApiError> {
    let app = &app.current();
    if app.is_draining() {
        // It was stopped, because its time for what was running is over.
        return Err(refusal::draining(app));
    }
    match failure.window_is_open() {
        true if app.settings.relaunch => relaunch(app, request, failure, sink).await.map_err(after_recovery),
        true => Err(failure.into_error()),
        false => continuation::take_up(app, request, failure, sink).await,
    }
}

/// One attempt on a second connection: the engine is alive, so only the first connection was not.
async fn resend(
    app: &App,
    lease: Watched,
    request: &ModelRequest,
    sink: &mut Recording<'_, impl Sink>,
) -> Result<(), ApiError> {
    app.metrics.record(Event::Resent { model: &request.model });
    tracing::info!(generation = lease.generation().0, "sending again on a second connection");
    tell(request, sink, Recovery::Resend).await?;
    let outcome = attempt(app, &lease, request, sink).await;
    let Err(failure) = outcome else { return Ok(()) };
    if failure.examine(&*lease).await == Liveness::Dead {
        drop(lease);
        return recover(app, request, failure, sink).await;
    }
    Err(failure.into_error())
}

/// One attempt after a fresh admission, and so on a new engine: the old one was dead.
async fn relaunch(
    app: &App,
    request: &ModelRequest,
    cause: Failure,
    sink: &mut Recording<'_, impl Sink>,
) -> Result<(), ApiError> {
    tracing::warn!(model = %request.model, cause = %cause.into_error(), "engine dead; relaunching for this request");
    tell(request, sink, Recovery::Relaunch).await?;
    let lease = lease(app, request, sink).await?;
    app.metrics.record(Event::Relaunched { model: &request.model });
    let outcome = attempt(app, &lease, request, sink).await;
    let Err(failure) = outcome else { return Ok(()) };
    // Also when nothing is left for this request: the next one must not meet a dead engine.
    if failure.examine(&*lease).await == Liveness::Dead {
        drop(lease);
        if app.is_draining() {
            return Err(refusal::draining(app));
        }
        if !failure.window_is_open() {
            return continuation::take_up(app, request, failure, sink).await;
        }
    }
    Err(failure.into_error())
}

/// `error` of a request that has had its recovery: the client is not to try yet again, unless it was told when.
fn after_recovery(error: ApiError) -> ApiError {
    let is_final = error.status.is_server_error() && error.retry_after.is_none();
    if is_final { error.not_worth_retrying() } else { error }
}

async fn attempt(
    app: &App,
    lease: &Watched,
    request: &ModelRequest,
    sink: &mut impl Sink,
) -> Result<(), Failure> {
    if let Some(repairable) = &request.repairable {
        return repair::attempt(app, lease, request, repairable, sink).await;
    }
    let meter = AnswerMeter::new(&app.metrics, request);
    let attempt = Attempt::new(app, request, &**lease, sink, meter);
    if request.route.streams() { attempt.run().await } else { attempt.run_whole().await }
}

async fn tell(request: &ModelRequest, sink: &mut impl Sink, recovery: Recovery) -> Result<(), ApiError> {
    request.account.recovered(recovery);
    sink.recovered(recovery).await.map_err(|rejected| Failure::from(rejected).into_error())
}
