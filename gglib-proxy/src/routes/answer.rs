//! The routes whose requests need an engine.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::retry::RetriesAbove;
use http::{HeaderValue, Request};
use tokio::time::Instant;

use crate::app::App;
use crate::connection::Outlet;
use crate::idempotency::{self, Key};
use crate::request::ModelRequest;
use crate::request_id::RequestId;
use crate::route::Route;
use crate::routes::{RECOVERY_HEADER, error_response};
use crate::tally::Tally;
use crate::{plain, refusal, stream, upload};

/// Answers one request for an engine.
pub(crate) async fn answer(
    State(app): State<App>,
    Extension(outlet): Extension<Outlet>,
    Extension(RequestId(id)): Extension<RequestId>,
    request: Request<Body>,
) -> Response {
    let mut tally = Tally::begin(&app.metrics, id);
    match begin(&app, request, &mut tally).await {
        Ok(Answer::Whole(response)) => {
            tally.succeed();
            response
        }
        Ok(Answer::Stream(exchange)) => exchange.into_response(tally, outlet),
        Ok(Answer::Nobody) => {
            drop(tally);
            error_response(&ApiError::new(ErrorCode::InvalidRequest, "the body broke off"))
        }
        Err(error) => {
            let error = match tally.identity() {
                Some((model, above)) => app.budgets.advise(model, above, error),
                None => error,
            };
            let recovery = tally.recovery();
            tally.fail(&error);
            let mut response = error_response(&error);
            if let Some(recovery) = recovery {
                response.headers_mut().insert(RECOVERY_HEADER, HeaderValue::from_static(recovery.as_str()));
            }
            response
        }
    }
}

enum Answer {
    Whole(Response),
    /// Begun, and without an error so far.
    Stream(stream::Exchange),
    /// None, since the client has left before its request was whole.
    Nobody,
}

async fn begin(app: &App, request: Request<Body>, tally: &mut Tally) -> Result<Answer, ApiError> {
    let deadline = Instant::now() + app.settings.timeouts.request;
    let above = RetriesAbove::parse(request.headers());
    let route = Route::at(request.uri().path()).expect("this answers the paths of routes");
    let key = Key::read(&request)?;
    let Some(body) = upload::read(request, &app.settings, deadline).await? else { return Ok(Answer::Nobody) };
    let key = key.map(|key| key.with_body(&body));
    if app.is_draining() {
        // Also for models that would be unknown to this gglib: its successor may know them.
        return Err(refusal::draining(app));
    }
    let request = ModelRequest::read(route, body, &app.catalog, app.settings.repair.then_some(deadline))?;
    identify(app, &request, above, tally);
    if let Some(key) = key {
        return joined(app, key, request, deadline, tally).await;
    }
    if request.stream {
        stream::Exchange::begin(app, request, deadline).await.map(Answer::Stream)
    } else {
        plain::answer(app, &request, deadline).await.map(Answer::Whole)
    }
}

/// The answer of the run that the key stands for.
async fn joined(
    app: &App,
    key: Key,
    request: ModelRequest,
    deadline: Instant,
    tally: &mut Tally,
) -> Result<Answer, ApiError> {
    let (model, route, is_stream) = (request.model.clone(), request.route, request.stream);
    let attached = idempotency::join(app, key, request, deadline)?;
    tally.share(attached.account());
    if is_stream {
        stream::Exchange::of(app, route, model, |to_client| attached.feed(to_client))
            .await
            .map(Answer::Stream)
    } else {
        attached.whole().await.map(|answer| Answer::Whole(answer.into_response()))
    }
}

/// Tells everybody who keeps count what the request is for, and whose retry it is.
fn identify(app: &App, request: &ModelRequest, above: RetriesAbove, tally: &mut Tally) {
    let span = tracing::Span::current();
    span.record("model", request.model.as_str());
    if above.is_retry() {
        span.record("retries_above", above.count());
    }
    tally.identify(request, above);
    app.budgets.arrive(&request.model, above);
}
