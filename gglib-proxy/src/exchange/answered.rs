//! An engine's answer that is an error: it is the client's answer too.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::api::error::ApiError;
use gglib_core::ports::ByteStream;
use gglib_core::retry::{RetryPolicy, hint};
use http::{HeaderMap, Response, StatusCode};
use tokio::time::timeout;

/// The most of an error's body that is read, in bytes and in time.
const LONGEST: usize = 1024 * 1024;
const SLOWEST: Duration = Duration::from_secs(10);

/// Reads `response` as the error that it is. When its body breaks off, the status alone has to do: the engine
/// has answered, and will not be asked again.
pub(super) async fn to_error(response: Response<ByteStream>, policy: &RetryPolicy) -> ApiError {
    let (head, body) = response.into_parts();
    let mut read = Vec::new();
    // Dropping the body at the bound ends the engine's sending.
    let _ = timeout(SLOWEST, collect(body, &mut read)).await;
    with_advice(ApiError::from_upstream(head.status, &read), &head.headers, policy)
}

/// Reads what comes of `body`, up to the bound.
pub(super) async fn collect(mut body: ByteStream, read: &mut Vec<u8>) {
    while let Some(Ok(bytes)) = body.next().await {
        let bytes: Bytes = bytes;
        let room = LONGEST.saturating_sub(read.len());
        read.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if room <= bytes.len() {
            return;
        }
    }
}

/// What the engine advises on another attempt is passed on. A 429 or 503 without advice gets ours, since these
/// tell a client to come back and must say when.
pub(super) fn with_advice(mut error: ApiError, headers: &HeaderMap, policy: &RetryPolicy) -> ApiError {
    let expects_return =
        matches!(error.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let ours = || expects_return.then(|| hint::advertise(policy, None));
    error.retry_after = error.retry_after.or_else(|| hint::parse(headers, unix_now())).or_else(ours);
    error.should_retry = match headers.get("x-should-retry").map(http::HeaderValue::as_bytes) {
        Some(b"true") => Some(true),
        Some(b"false") => Some(false),
        _ => error.should_retry,
    };
    error
}

#[expect(clippy::disallowed_methods, reason = "dates in headers and chunks are those of the clock")]
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn advice(status: u16, headers: &[(&'static str, &'static str)]) -> (Option<Duration>, Option<bool>) {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let error = ApiError::from_upstream(StatusCode::from_u16(status).unwrap(), b"");
        let error = with_advice(error, &headers.collect(), &RetryPolicy::default());
        (error.retry_after, error.should_retry)
    }

    #[test]
    fn the_engines_advice_is_kept_and_ours_only_where_there_must_be_one() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(advice(503, &[("retry-after", "7")]), (seconds(7), None));
        assert_eq!(
            advice(429, &[("retry-after-ms", "2000"), ("x-should-retry", "false")]),
            (seconds(2), Some(false))
        );
        assert_eq!(advice(503, &[]), (seconds(15), None));
        assert_eq!(advice(429, &[("retry-after", "soon")]), (seconds(15), None));
        assert_eq!(advice(500, &[]), (None, None));
        assert_eq!(advice(500, &[("x-should-retry", "true")]), (None, Some(true)));
    }
}
