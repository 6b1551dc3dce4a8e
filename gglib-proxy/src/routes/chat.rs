//! `POST /v1/chat/completions`.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use gglib_core::api::error::{ApiError, ErrorCode};
use http::Request;
use http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::app::App;
use crate::request::ChatRequest;
use crate::routes::error_response;
use crate::{plain, stream};

/// Answers one completion request.
pub(crate) async fn complete(State(app): State<App>, request: Request<Body>) -> Response {
    app.counters.requests.increment();
    let answering = Answering { app: &app, over: false };
    let response = match answer(&app, request).await {
        Ok(response) => response,
        Err(error) => {
            app.counters.failed.increment();
            tracing::warn!(code = error.code.as_str(), %error, "request failed");
            error_response(&error)
        }
    };
    answering.finish();
    response
}

async fn answer(app: &App, request: Request<Body>) -> Result<Response, ApiError> {
    let body = read_body(request, app.settings.body_limit).await?;
    let request = ChatRequest::read(body, &app.catalog)?;
    if request.stream { stream::answer(app, request).await } else { plain::answer(app, &request).await }
}

async fn read_body(request: Request<Body>, limit: u64) -> Result<Bytes, ApiError> {
    let too_large = || {
        let message =
            format!("the body is larger than {limit} bytes; the limit is server.body_limit in gglib.toml");
        ApiError::new(ErrorCode::BodyTooLarge, message)
    };
    // A length that is known beforehand spares both sides the transfer.
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let limited = Limited::new(request.into_body(), usize::try_from(limit).unwrap_or(usize::MAX));
    match limited.collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ApiError::new(
            ErrorCode::InvalidRequest,
            format!("the body could not be read to its end: {error}"),
        )),
    }
}

/// Notices that the client left while its answer was being made: the handler is dropped then.
struct Answering<'a> {
    app: &'a App,
    over: bool,
}

impl Answering<'_> {
    fn finish(mut self) {
        self.over = true;
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.app.counters.abandoned.increment();
            tracing::info!("the client left before its answer");
        }
    }
}
