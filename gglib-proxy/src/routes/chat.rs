//! `POST /v1/chat/completions`.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use gglib_core::api::error::ApiError;
use gglib_core::retry::RetriesAbove;
use http::Request;
use tokio::time::Instant;

use crate::app::App;
use crate::connection::Outlet;
use crate::request::ChatRequest;
use crate::request_id::RequestId;
use crate::routes::error_response;
use crate::tally::Tally;
use crate::{plain, stream, upload};

/// Answers one completion request.
pub(crate) async fn complete(
    State(app): State<App>,
    Extension(outlet): Extension<Outlet>,
    Extension(RequestId(id)): Extension<RequestId>,
    request: Request<Body>,
) -> Response {
    let mut tally = Tally::begin(&app.metrics, id);
    match answer(&app, request, &mut tally).await {
        Ok(Answer::Whole(response)) => {
            tally.succeed();
            response
        }
        Ok(Answer::Stream(exchange)) => exchange.into_response(tally, outlet),
        Err(error) => {
            let error = match tally.identity() {
                Some((model, above)) => app.budgets.advise(model, above, error),
                None => error,
            };
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

async fn answer(app: &App, request: Request<Body>, tally: &mut Tally) -> Result<Answer, ApiError> {
    let deadline = Instant::now() + app.settings.timeouts.request;
    let above = RetriesAbove::parse(request.headers());
    let body = upload::read(request, &app.settings, deadline).await?;
    let request = ChatRequest::read(body, &app.catalog, app.settings.repair.then_some(deadline))?;
    identify(app, &request, above, tally);
    if request.stream {
        stream::Exchange::begin(app, request, deadline).await.map(Answer::Stream)
    } else {
        plain::answer(app, &request, deadline).await.map(Answer::Whole)
    }
}

/// Tells everybody who keeps count what the request is for, and whose retry it is.
fn identify(app: &App, request: &ChatRequest, above: RetriesAbove, tally: &mut Tally) {
    let span = tracing::Span::current();
    span.record("model", request.model.as_str());
    if above.is_retry() {
        span.record("retries_above", above.count());
    }
    tally.identify(request, above);
    app.budgets.arrive(&request.model, above);
}
