//! `GET /status`: engines, queues and totals as JSON.

use std::time::{Duration, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gglib_core::admission::{BreakerSnapshot, EngineSnapshot, QueueSnapshot, WaiterSnapshot};
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;
use gglib_core::slots::SlotsSnapshot;
use serde_json::{Value, json};

use crate::account::Particulars;
use crate::app::App;
use crate::exchange::Recovery;
use crate::live::Reloads;
use crate::metrics::Recent;
use crate::refusal;
use crate::routes::error_response;

/// What is loaded, what waits, and what has been counted since the start. Never loads a model.
pub(crate) async fn status(State(app): State<App>) -> Response {
    let Some(snapshot) = app.residency.snapshot().await else { return error_response(&unanswered(&app)) };
    let (counted, totals) = (app.metrics.totals(), snapshot.totals);
    let slots = app.slots.as_deref().map(|slots| self::slots(&slots.snapshot()));
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "draining": app.is_draining(),
        "config": config(&app.live.state().reloads),
        "engines": snapshot.engines.iter().map(engine).collect::<Vec<_>>(),
        "queue": snapshot.queue.iter().map(queue).collect::<Vec<_>>(),
        "breakers": snapshot.breakers.iter().map(breaker).collect::<Vec<_>>(),
        "recent": app.metrics.recent().iter().map(recent).collect::<Vec<_>>(),
        "totals": {
            "requests": counted.requests,
            "failed": counted.failed,
            "abandoned": counted.abandoned,
            "loads": totals.loads,
            "failed_loads": totals.failed_loads,
            "cancelled_loads": totals.cancelled_loads,
            "swaps": totals.swaps,
            "evictions": totals.evictions,
            "crashes": totals.crashes,
            "recycles": totals.recycles,
            "expired": totals.expired,
            "relaunches": counted.relaunches,
            "continuations": counted.continuations,
            "resends": counted.resends,
            "broken_turns": counted.broken_turns,
            "mends": counted.mends,
            "repairs": counted.repairs,
            "retries": counted.retries,
        },
        "slots": slots,
    }))
    .into_response()
}

fn unanswered(app: &App) -> ApiError {
    if app.is_draining() {
        // The scheduler ends before the last connection does.
        return refusal::draining(app);
    }
    ApiError::new(ErrorCode::Internal, "the scheduler does not answer; restart gglib")
}

fn config(reloads: &Reloads) -> Value {
    json!({
        "reloads": reloads.applied,
        "error": reloads.error,
        "after_restart": reloads.after_restart,
    })
}

fn engine(engine: &EngineSnapshot) -> Value {
    json!({
        "model": engine.model.as_str(),
        "state": engine.state.as_str(),
        "pid": engine.pid,
        "address": engine.address,
        "generation": engine.generation.0,
        "in_flight": engine.in_flight,
        "parallel": engine.parallel,
        "uptime_s": engine.uptime.as_secs(),
        "pinned": engine.pinned,
        "memory_estimated": engine.estimated.map(memory),
        "memory_measured": engine.measured.map(memory),
    })
}

fn queue(queue: &QueueSnapshot) -> Value {
    json!({
        "model": queue.model.as_str(),
        "waiting": queue.waiting,
        "oldest_wait_ms": millis(queue.oldest_wait),
        "estimate_ms": queue.estimate.map(millis),
        "first": queue.first.iter().map(waiter).collect::<Vec<_>>(),
    })
}

fn waiter(waiter: &WaiterSnapshot) -> Value {
    json!({
        "position": waiter.outlook.position,
        "phase": waiter.outlook.phase.as_str(),
        "percent": waiter.outlook.percent,
        "waited_ms": millis(waiter.waited),
        "estimate_ms": waiter.outlook.estimate.map(millis),
    })
}

fn breaker(breaker: &BreakerSnapshot) -> Value {
    json!({
        "model": breaker.model.as_str(),
        "state": breaker.state.as_str(),
        "retry_in_ms": breaker.retry_in.map(millis),
        "failures": breaker.failures,
        "reason": &*breaker.reason,
    })
}

fn recent(recent: &Recent) -> Value {
    let Particulars { waited, tokens, recovery } = recent.particulars;
    let ended_at = recent.ended_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "request_id": &*recent.id,
        "ended_at": ended_at.as_secs(),
        "model": recent.model.as_ref().map(ModelName::as_str),
        "outcome": recent.outcome,
        "code": Some(recent.code).filter(|code| !code.is_empty()),
        "waited_ms": millis(waited),
        "duration_ms": millis(recent.duration),
        "prompt_tokens": tokens.prompt,
        "cached_tokens": tokens.cached,
        "completion_tokens": tokens.completion,
        "recovery": recovery.map(Recovery::as_str),
    })
}

fn memory(memory: Memory) -> Value {
    json!({ "ram": memory.ram, "vram": memory.vram })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn slots(slots: &SlotsSnapshot) -> Value {
    json!({
        "bytes": slots.bytes,
        "saved": slots.saved,
        "failed_saves": slots.failed_saves,
        "restored": slots.restored,
        "verified": slots.verified,
        "switched_off": slots.switched_off.iter().map(ModelName::as_str).collect::<Vec<_>>(),
    })
}
