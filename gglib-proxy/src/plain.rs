//! A plain answer: the engine's stream, folded.

use axum::body::Body;
use bytes::Bytes;
use gglib_core::api::error::ApiError;
use gglib_core::api::fold::Fold;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use tokio::time::Instant;

use crate::app::App;
use crate::exchange::{self, Recovery, Rejected, Sink};
use crate::request::ChatRequest;
use crate::routes::RECOVERY_HEADER;

/// Answers with one JSON object. Dropping the future cancels everything.
pub(crate) async fn answer(
    app: &App,
    request: &ChatRequest,
    deadline: Instant,
) -> Result<Response<Body>, ApiError> {
    let mut sink = Collected::default();
    exchange::run(app, request, deadline, &mut sink).await?;
    let mut response = Response::new(Body::from(sink.fold.finish()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(recovery) = sink.recovery {
        response.headers_mut().insert(RECOVERY_HEADER, HeaderValue::from_static(recovery.as_str()));
    }
    Ok(response)
}

#[derive(Default)]
struct Collected {
    fold: Fold,
    recovery: Option<Recovery>,
}

impl Sink for Collected {
    /// The client has seen nothing before the end.
    fn hands_on(&self) -> bool {
        false
    }

    async fn chunk(&mut self, data: Bytes) -> Result<(), Rejected> {
        self.fold.push(&data).map_err(Rejected::Malformed)
    }

    async fn recovered(&mut self, recovery: Recovery) -> Result<(), Rejected> {
        if recovery.begins_anew() {
            self.fold = Fold::default();
        }
        self.recovery = Some(recovery);
        Ok(())
    }
}
