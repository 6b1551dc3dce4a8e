//! `GET /metrics`: everything counted, in the text format of Prometheus.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use gglib_core::api::error::{ApiError, ErrorCode};
use http::header::CONTENT_TYPE;
use prometheus_client::encoding::prometheus_text;
use tokio::runtime::Handle;

use crate::app::App;
use crate::routes::error_response;

/// Never loads a model, and answers also when the scheduler does not.
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let snapshot = app.residency.snapshot().await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    match app.metrics.encode(tasks, snapshot.as_ref()) {
        Ok(text) => ([(CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], text).into_response(),
        Err(_) => error_response(&ApiError::new(ErrorCode::Internal, "the metrics could not be written")),
    }
}
