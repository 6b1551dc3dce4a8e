//! Errors, as a status with a body or as an event of a stream.

use std::time::Duration;

use gglib_core::api::error::ErrorCode;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::{Breach, End, Head, Outcome, is_of_type};

/// What a response is whose status is not 200.
pub(super) fn judge(head: &Head, body: &[u8], end: End) -> Result<Outcome, Breach> {
    let status = head.status;
    if !status.is_client_error() && !status.is_server_error() {
        return Err(Breach::Status(status));
    }
    is_of_type(head, "application/json")?;
    if end != End::Clean {
        return Err(Breach::CutBody);
    }
    let error = Wire::parse(body)?;
    if !expects_return(status) {
        return Ok(Outcome::Failed { status, code: error.code });
    }
    match retry_after(&head.headers)? {
        Some(retry_after) => Ok(Outcome::Refused { status, code: error.code, retry_after }),
        None => Err(Breach::NoRetryAfter { code: error.code }),
    }
}

/// What the error event of a stream is.
pub(super) fn judge_event(data: &[u8]) -> Result<Outcome, Breach> {
    let error = Wire::parse(data)?;
    let known = ErrorCode::ALL.iter().find(|known| known.as_str() == error.code);
    match (known.map(|known| known.status()).filter(|status| expects_return(*status)), error.retry_after) {
        (None, _) => Ok(Outcome::Failed { status: StatusCode::OK, code: error.code }),
        (Some(status), Some(retry_after)) => Ok(Outcome::Refused { status, code: error.code, retry_after }),
        (Some(_), None) => Err(Breach::NoRetryAfter { code: error.code }),
    }
}

/// These tell a client to come back, and must say when.
fn expects_return(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

/// RFC 9110 §10.2.3; above a minute clients take it for none.
fn retry_after(headers: &HeaderMap) -> Result<Option<Duration>, Breach> {
    let Some(value) = headers.get(header::RETRY_AFTER) else { return Ok(None) };
    let seconds = value.to_str().ok().and_then(|text| text.parse().ok());
    match seconds {
        Some(seconds @ 1..=60) => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(Breach::RetryAfter(String::from_utf8_lossy(value.as_bytes()).into_owned())),
    }
}

/// OpenAI's error body, as far as it matters.
struct Wire {
    code: String,
    retry_after: Option<Duration>,
}

impl Wire {
    fn parse(data: &[u8]) -> Result<Self, Breach> {
        let body: Value = serde_json::from_slice(data).map_err(|_| Breach::NotAnError("it is not JSON"))?;
        let error = &body["error"];
        if !error.is_object() {
            return Err(Breach::NotAnError("`error` is not an object"));
        }
        if error["message"].as_str().is_none_or(str::is_empty) {
            return Err(Breach::NotAnError("`error.message` is no text"));
        }
        if !error["type"].is_string() {
            return Err(Breach::NotAnError("`error.type` is not a string"));
        }
        let Some(code) = error["code"].as_str().filter(|code| !code.is_empty()) else {
            return Err(Breach::NotAnError("`error.code` is not a string"));
        };
        if !matches!(error.get("param"), Some(Value::Null | Value::String(_))) {
            return Err(Breach::NotAnError("`error.param` is missing or not a string"));
        }
        let retry_after = error["metadata"]["retry_after_ms"].as_u64().map(Duration::from_millis);
        Ok(Self { code: code.to_owned(), retry_after })
    }
}
