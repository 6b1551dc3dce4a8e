//! The routes, and what holds for all of them.

use axum::Router;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use gglib_core::api::error::{ApiError, ErrorCode};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Uri};

use crate::app::App;
use crate::live::Current;
use crate::route::Route;
use crate::{panics, request_id};

mod answer;
mod health;
mod metrics;
mod models;
mod status;

/// Says on a response which recovery it took.
pub(crate) const RECOVERY_HEADER: HeaderName = HeaderName::from_static("x-gglib-recovery");

/// All routes, each also without `/v1` where clients leave it out.
pub(crate) fn router(app: App) -> Router {
    let routes = Route::ALL.into_iter().flat_map(|route| [route.path(), route.short_path()]);
    routes
        .fold(Router::new(), |router, path| router.route(path, post(answer::answer)))
        .route("/v1/models", get(models::list))
        .route("/models", get(models::list))
        .route("/livez", get(health::live))
        .route("/healthz", get(health::healthy))
        .route("/health", get(health::healthy))
        .route("/readyz", get(health::ready))
        .route("/status", get(status::status))
        .route("/metrics", get(metrics::metrics))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(middleware::from_fn(panics::layer))
        .layer(middleware::from_fn(request_id::layer))
        .with_state(Current(app))
}

/// An error as a whole response.
pub(crate) fn error_response(error: &ApiError) -> Response {
    let mut response = (error.status, error.to_json()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().extend(error.headers());
    response
}

async fn not_found(uri: Uri) -> Response {
    let message = format!("there is no route {}; this endpoint answers below /v1", uri.path());
    error_response(&ApiError::new(ErrorCode::RouteNotFound, message))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    error_response(&ApiError::new(ErrorCode::MethodNotAllowed, message))
}
