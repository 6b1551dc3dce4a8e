//! A plain answer: the engine's stream, folded, or what it has answered in one piece.

use axum::body::Body;
use bytes::Bytes;
use gglib_core::api::error::ApiError;
use gglib_core::api::fold::Fold;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use tokio::time::Instant;

use crate::app::App;
use crate::exchange::{self, Recovery, Rejected, Sink};
use crate::request::ModelRequest;
use crate::routes::RECOVERY_HEADER;

/// Answers with one JSON object. Dropping the future cancels everything.
pub(crate) async fn answer(
    app: &App,
    request: &ModelRequest,
    deadline: Instant,
) -> Result<Response<Body>, ApiError> {
    collect(app, request, deadline).await.map(Collected::into_response)
}

/// Collects the answer. Dropping the future cancels everything.
pub(crate) async fn collect(
    app: &App,
    request: &ModelRequest,
    deadline: Instant,
) -> Result<Collected, ApiError> {
    if !request.route.streams() {
        let mut sink = Keeping::default();
        exchange::run(app, request, deadline, &mut sink).await?;
        return Ok(Collected { body: sink.body, recovery: sink.recovery });
    }
    let mut sink = Collecting::default();
    exchange::run(app, request, deadline, &mut sink).await?;
    Ok(Collected { body: sink.fold.finish(), recovery: sink.recovery })
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Collected {
    pub(crate) body: Bytes,
    pub(crate) recovery: Option<Recovery>,
}

impl Collected {
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(recovery) = self.recovery {
            response.headers_mut().insert(RECOVERY_HEADER, HeaderValue::from_static(recovery.as_str()));
        }
        response
    }
}

#[derive(Default)]
struct Collecting {
    fold: Fold,
    recovery: Option<Recovery>,
}

impl Sink for Collecting {
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

/// Keeps an answer that comes in one piece.
#[derive(Default)]
struct Keeping {
    body: Bytes,
    recovery: Option<Recovery>,
}

impl Sink for Keeping {
    /// The client has seen nothing before the end.
    fn hands_on(&self) -> bool {
        false
    }

    async fn chunk(&mut self, data: Bytes) -> Result<(), Rejected> {
        self.body = data;
        Ok(())
    }

    async fn recovered(&mut self, recovery: Recovery) -> Result<(), Rejected> {
        self.recovery = Some(recovery);
        Ok(())
    }
}
