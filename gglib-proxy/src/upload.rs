//! Reading a request's body, within bounds of size and time.

use std::error::Error;
use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use gglib_core::api::error::{ApiError, ErrorCode};
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout, timeout_at};

use crate::app::Settings;

/// How long a body that is too large is still taken in, to be thrown away: most clients look for an answer only
/// when they have sent everything, and see a broken connection otherwise.
const DISCARD: Duration = Duration::from_secs(2);

/// The whole body of `request`, received before `deadline`; `None` when its client has left before its end.
pub(crate) async fn read(
    request: Request<Body>,
    settings: &Settings,
    deadline: Instant,
) -> Result<Option<Bytes>, ApiError> {
    let limit = usize::try_from(settings.body_limit).unwrap_or(usize::MAX);
    let awaits_consent = request.headers().contains_key(EXPECT);
    let announced = announced(&request);
    let mut body = request.into_body();
    if announced.is_some_and(|length| length > settings.body_limit) {
        // A client that has asked beforehand gets its answer without the transfer.
        if !awaits_consent {
            discard(body).await;
        }
        return Err(too_large(limit));
    }
    let mut whole = BytesMut::new();
    loop {
        let piece = match next(&mut body, settings.timeouts.idle, deadline).await? {
            Next::Piece(piece) => piece,
            Next::End => return Ok(Some(whole.freeze())),
            Next::Gone => return Ok(None),
        };
        if whole.len() + piece.len() > limit {
            discard(body).await;
            return Err(too_large(limit));
        }
        whole.extend_from_slice(&piece);
    }
}

fn announced(request: &Request<Body>) -> Option<u64> {
    request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What comes next of a body.
enum Next {
    Piece(Bytes),
    End,
    /// Nothing, ever: the connection broke.
    Gone,
}

async fn next(body: &mut Body, pause: Duration, deadline: Instant) -> Result<Next, ApiError> {
    let until = deadline.min(Instant::now() + pause);
    match timeout_at(until, body.frame()).await {
        Ok(None) => Ok(Next::End),
        Ok(Some(Ok(frame))) => Ok(Next::Piece(frame.into_data().unwrap_or_default())),
        Ok(Some(Err(error))) if is_broken(&error) => Ok(Next::Gone),
        Ok(Some(Err(error))) => {
            let message = format!("the body could not be read to its end: {error}");
            Err(ApiError::new(ErrorCode::InvalidRequest, message))
        }
        Err(_) => {
            let message = "the body did not arrive in time; its sender paused";
            let mut error = ApiError::new(ErrorCode::InvalidRequest, message);
            error.status = StatusCode::REQUEST_TIMEOUT;
            Err(error)
        }
    }
}

/// Whether the connection is at fault, and not the form in which the body came.
fn is_broken(error: &axum::Error) -> bool {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    let kinds = causes.filter_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.last().is_some_and(|kind| !matches!(kind, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData))
}

async fn discard(mut body: Body) {
    let all = async { while let Some(Ok(_)) = body.frame().await {} };
    // Whoever has not sent it by then will not be helped.
    let _ = timeout(DISCARD, all).await;
}

fn too_large(limit: usize) -> ApiError {
    let message =
        format!("the body is larger than {limit} bytes; the limit is server.body_limit in gglib.toml");
    ApiError::new(ErrorCode::BodyTooLarge, message)
}
