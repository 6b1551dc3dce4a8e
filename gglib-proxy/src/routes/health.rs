//! Whether the process lives, the queue turns, and a request could be served. None of these calls a model.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;

use crate::app::App;

/// `/livez`: the process answers.
pub(crate) async fn live() -> Response {
    answer(None)
}

/// `/healthz`: the owner of the queue answers too.
pub(crate) async fn healthy(State(app): State<App>) -> Response {
    answer(stuck(&app).await)
}

/// `/readyz`: and there is a model to serve, and no end in sight.
pub(crate) async fn ready(State(app): State<App>) -> Response {
    if app.is_draining() {
        return answer(Some("gglib is shutting down"));
    }
    if app.catalog.is_empty() {
        return answer(Some("no model is configured; add one with `gglib model add`"));
    }
    answer(stuck(&app).await)
}

async fn stuck(app: &App) -> Option<&'static str> {
    if app.is_draining() {
        // The scheduler ends before the last connection does.
        return None;
    }
    match app.residency.snapshot().await {
        Some(_) => None,
        None => Some("the scheduler does not answer; restart gglib"),
    }
}

fn answer(fault: Option<&'static str>) -> Response {
    match fault {
        None => Json(json!({ "status": "ok" })).into_response(),
        Some(reason) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "error", "reason": reason })))
                .into_response()
        }
    }
}
