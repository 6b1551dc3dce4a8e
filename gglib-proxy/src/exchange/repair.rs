//! Tool-call repair: an attempt whose calls are checked before the client gets them.
//!
//! Text and reasoning pass as they come; calls are held back until the answer is whole. When a call cannot be run,
//! the request is issued once more, with what makes the engine call, on the lease that it has. Whatever goes wrong
//! with that, the client gets the first answer as it was.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::ports::Lease;
use gglib_core::repair::{Broken, Call, Fault, Form, Tools, Turn, Verdict, assess, second_body};
use gglib_core::retry::Outcome;
use http::{Request, StatusCode};
use tokio::time::{Instant, timeout, timeout_at};

use self::held::{Held, Holding, Replaced};
use super::attempt::Attempt;
use super::failure::Failure;
use super::vigil::Watched;
use super::{Recovery, Rejected, Sink};
use crate::app::App;
use crate::metrics::{AnswerMeter, Event};
use crate::repairable::Repairable;
use crate::request::ModelRequest;
use crate::schemas::JsonSchema;

mod held;

/// What a request must have left before its deadline, so that the first answer can still be delivered.
const RESERVE: Duration = Duration::from_secs(1);

/// The most that is read of what an engine says about itself, in bytes.
const LONGEST_PROPS: usize = 4 * 1024 * 1024;

/// One attempt, and a second request if its calls need one.
pub(super) async fn attempt(
    app: &App,
    lease: &Watched,
    request: &ModelRequest,
    repairable: &Repairable,
    sink: &mut impl Sink,
) -> Result<(), Failure> {
    let model = &request.model;
    let mut holding = Holding::new(sink);
    let meter = AnswerMeter::new(&app.metrics, request);
    let total = Instant::now() + app.settings.timeouts.total;
    Attempt::new(app, request, &**lease, &mut holding, meter).run().await?;
    let held = holding.into_held();
    let Some(tools) = repairable.tools_for(&held.turn) else { return deliver(app, held, total, sink).await };
    let broken = match assess(&held.turn, &tools, &JsonSchema::default()) {
        Verdict::Sound => return deliver(app, held, total, sink).await,
        Verdict::Mended(calls) => {
            app.metrics.record(Event::BrokenTurn { model });
            app.metrics.record(Event::Mended { model });
            tracing::info!(model = %request.model, "mended the packaging of tool calls");
            request.account.recovered(Recovery::Mend);
            sink.recovered(Recovery::Mend).await?;
            return deliver(app, held.with_calls(&calls, Replaced::Mended, &request.model), total, sink)
                .await;
        }
        Verdict::Broken(broken) => broken,
    };
    app.metrics.record(Event::BrokenTurn { model });
    let before = list(broken.faults());
    let started = Instant::now();
    match again(app, &**lease, request, &tools, broken, repairable.until).await {
        Ok(Repaired { calls, form, tokens }) => {
            app.metrics.record(Event::Repaired { model });
            let elapsed_ms = started.elapsed().as_millis();
            tracing::info!(model = %request.model, before, form = form.as_str(), tokens, elapsed_ms, "repaired tool calls");
            request.account.recovered(Recovery::Repair);
            sink.recovered(Recovery::Repair).await?;
            deliver(app, held.with_calls(&calls, Replaced::Repaired { tokens }, &request.model), total, sink)
                .await
        }
        Err(unrepaired) => {
            let elapsed_ms = started.elapsed().as_millis();
            tracing::warn!(model = %request.model, before, after = unrepaired.to_text(), elapsed_ms, "tool calls not repaired");
            if let Some(suspicion) = unrepaired.suspicion() {
                // Not for this request any more, which need not wait for it; but the next one must not meet a dead engine.
                lease.examine_later(suspicion);
            }
            deliver(app, held, total, sink).await
        }
    }
}

/// Hands on what was held back, before the attempt is over or, if it nearly is, within the pause that is granted to
/// every reader.
async fn deliver(app: &App, held: Held, total: Instant, sink: &mut impl Sink) -> Result<(), Failure> {
    let timeouts = &app.settings.timeouts;
    let until = total.max(Instant::now() + timeouts.idle);
    let released = timeout_at(until, held.release(sink)).await;
    Ok(released.map_err(|_| {
        let message = format!("the answer was not taken within {} s", timeouts.total.as_secs());
        Failure::Slow { error: ApiError::new(ErrorCode::TimeoutTotal, message), committed: true }
    })??)
}

/// What a second request came to.
struct Repaired {
    calls: Vec<Call>,
    form: Form,
    /// What it generated.
    tokens: u64,
}

/// Why the first answer stays.
enum Unrepaired {
    /// Repairs of this model have come to nothing lately, or the deadline of the request is near.
    NotTried,
    /// It took too long.
    TimedOut,
    /// The second request failed.
    Failed(Failure),
    /// Its calls cannot be run either.
    StillBroken(Vec<Fault>),
}

impl Unrepaired {
    /// What it makes of the engine, if that may be dead.
    fn suspicion(self) -> Option<Failure> {
        match self {
            Self::Failed(failure) if failure.is_suspicion() => Some(failure),
            Self::TimedOut => {
                let error = ApiError::new(ErrorCode::TimeoutTotal, "the repair took too long");
                Some(Failure::Slow { error, committed: true })
            }
            Self::NotTried | Self::Failed(_) | Self::StillBroken(_) => None,
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::NotTried => "not tried".to_owned(),
            Self::TimedOut => "timed out".to_owned(),
            Self::Failed(failure) => format!("failed: {failure:?}"),
            Self::StillBroken(faults) => list(faults),
        }
    }
}

fn list<'a>(faults: impl IntoIterator<Item = &'a Fault>) -> String {
    faults.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The one second request, bounded by a timeout of its own and by the model's record.
async fn again(
    app: &App,
    lease: &dyn Lease,
    request: &ModelRequest,
    tools: &Tools,
    broken: Broken,
    until: Instant,
) -> Result<Repaired, Unrepaired> {
    let left = until.saturating_duration_since(Instant::now()).saturating_sub(RESERVE);
    if left.is_zero() {
        return Err(Unrepaired::NotTried);
    }
    let permit = app.repairs.admit(&request.model).ok_or(Unrepaired::NotTried)?;
    let repaired =
        timeout(app.settings.repair_timeout.min(left), ask(app, lease, request, tools, broken)).await;
    let repaired = repaired.unwrap_or(Err(Unrepaired::TimedOut));
    let outcome = if repaired.is_ok() { Outcome::Success } else { Outcome::Failure };
    app.repairs.settle(&request.model, permit, outcome);
    repaired
}

async fn ask(
    app: &App,
    lease: &dyn Lease,
    request: &ModelRequest,
    tools: &Tools,
    broken: Broken,
) -> Result<Repaired, Unrepaired> {
    let limit = app.settings.timeouts.response_headers;
    let form = Form::of(&timeout(limit, props(lease)).await.unwrap_or_default());
    let body = second_body(request.body.clone(), &broken, tools, form)
        .map_err(|error| Unrepaired::Failed(Failure::Answered(error.into())))?;
    let second = ModelRequest { body, usage: true, progress: false, repairable: None, ..request.clone() };
    let mut turn = Collected::default();
    let meter = AnswerMeter::of_repair(&app.metrics, &second);
    Attempt::new(app, &second, lease, &mut turn, meter).run().await.map_err(Unrepaired::Failed)?;
    let Collected(turn) = turn;
    let calls = broken.completed(&turn, tools, &JsonSchema::default()).map_err(Unrepaired::StillBroken)?;
    Ok(Repaired { calls, form, tokens: turn.tokens })
}

/// What the engine says about itself; nothing when it does not.
async fn props(lease: &dyn Lease) -> Vec<u8> {
    let mut read = Vec::new();
    let request = Request::get("/props").body(Bytes::new()).expect("a constant head is valid");
    let Ok(response) = lease.upstream().send(request).await else { return read };
    if response.status() != StatusCode::OK {
        return read;
    }
    let mut body = response.into_body();
    while let Some(Ok(bytes)) = body.next().await {
        read.extend_from_slice(&bytes);
        if read.len() > LONGEST_PROPS {
            return Vec::new();
        }
    }
    read
}

/// The second answer. The client sees nothing of it but its calls.
#[derive(Default)]
struct Collected(Turn);

impl Sink for Collected {
    fn hands_on(&self) -> bool {
        false
    }

    async fn chunk(&mut self, data: Bytes) -> Result<(), Rejected> {
        self.0.push(&data);
        Ok(())
    }

    async fn recovered(&mut self, _: Recovery) -> Result<(), Rejected> {
        Ok(())
    }
}
