//! `POST /v1/chat/completions`.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use gglib_core::api::error::ApiError;
use http::Request;
use tokio::time::Instant;

use crate::app::App;
use crate::connection::Outlet;
use crate::counters::Tally;
use crate::request::ChatRequest;
use crate::routes::error_response;
use crate::{plain, stream, upload};

/// Answers one completion request.
pub(crate) async fn complete(
    State(app): State<App>,
    Extension(outlet): Extension<Outlet>,
    request: Request<Body>,
) -> Response {
    let tally = Tally::begin(&app.counters);
    match answer(&app, request).await {
        Ok(Answer::Whole(response)) => {
            tally.succeed();
            response
        }
        Ok(Answer::Stream(exchange)) => exchange.into_response(tally, outlet),
        Err(error) => {
            tally.fail(&error);
            error_response(&error)
        }
    }
}

enum Answer {
    Whole(Response),
    /// Begun, and without an error so far.
    Stream(stream::Exchange),
}

async fn answer(app: &App, request: Request<Body>) -> Result<Answer, ApiError> {
    let deadline = Instant::now() + app.settings.timeouts.request;
    let body = upload::read(request, &app.settings, deadline).await?;
    let request = ChatRequest::read(body, &app.catalog, app.settings.repair.then_some(deadline))?;
    if request.stream {
        stream::Exchange::begin(app, request, deadline).await.map(Answer::Stream)
    } else {
        plain::answer(app, &request, deadline).await.map(Answer::Whole)
    }
}
