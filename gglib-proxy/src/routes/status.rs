//! `GET /status`: engines, queues and totals as JSON.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gglib_core::admission::{EngineSnapshot, QueueSnapshot};
use gglib_core::api::error::{ApiError, ErrorCode};
use serde_json::{Value, json};

use crate::app::App;
use crate::routes::error_response;

/// What is loaded, what waits, and what has been counted since the start. Never loads a model.
pub(crate) async fn status(State(app): State<App>) -> Response {
    let Some(snapshot) = app.residency.snapshot().await else {
        return error_response(&ApiError::new(
            ErrorCode::Internal,
            "the scheduler does not answer; restart gglib",
        ));
    };
    let counters = &app.counters;
    let totals = snapshot.totals;
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "engines": snapshot.engines.iter().map(engine).collect::<Vec<_>>(),
        "queue": snapshot.queue.iter().map(queue).collect::<Vec<_>>(),
        "totals": {
            "requests": counters.requests.value(),
            "failed": counters.failed.value(),
            "abandoned": counters.abandoned.value(),
            "loads": totals.loads,
            "failed_loads": totals.failed_loads,
            "swaps": totals.swaps,
            "crashes": totals.crashes,
            "relaunches": counters.relaunches.value(),
            "continuations": counters.continuations.value(),
            "resends": counters.resends.value(),
        },
    }))
    .into_response()
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
    })
}

fn queue(queue: &QueueSnapshot) -> Value {
    json!({
        "model": queue.model.as_str(),
        "waiting": queue.waiting,
        "oldest_wait_ms": u64::try_from(queue.oldest_wait.as_millis()).unwrap_or(u64::MAX),
    })
}
