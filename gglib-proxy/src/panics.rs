//! A panic is a fault of ours, and still an answer: never a connection that just closes.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;
use gglib_core::api::error::{ApiError, ErrorCode};

use crate::routes::error_response;

/// Answers for a handler that panicked.
pub(crate) async fn layer(request: Request, next: Next) -> Response {
    // What the handler held is dropped with it; what is shared are atomics and channels.
    AssertUnwindSafe(next.run(request))
        .catch_unwind()
        .await
        .unwrap_or_else(|panic| error_response(&to_error(&*panic)))
}

/// The error that stands for a panic. Its text goes to the log only: it may quote anything.
pub(crate) fn to_error(panic: &(dyn Any + Send)) -> ApiError {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text");
    tracing::error!(panic = text, "a request panicked");
    ApiError::new(ErrorCode::Internal, "a fault of gglib itself; its log says more")
}
