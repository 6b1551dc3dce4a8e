//! An upstream's error body, read into the taxonomy.

use http::StatusCode;
use serde_json::{Map, Value};

use super::{ApiError, Code, ErrorCode};

/// The most that is quoted of a body that is no JSON error: 2 KiB.
const QUOTED: usize = 2048;

impl ApiError {
    /// Reads an upstream's error body.
    ///
    /// Understood are OpenAI's `{"error":{…}}`, a bare string in `error`, and top-level `message` or `detail`;
    /// of anything else the text itself becomes the message, trimmed and cut to 2 KiB.
    ///
    /// A string `code` is kept, and with it the upstream's `type`. Any other code is replaced by ours for the
    /// upstream's `type`, or else for the status: llama-server gives the status as an integer. What is not kept
    /// in place stays in the metadata: the raw values as `upstream_code` and `upstream_type`, every other
    /// member (`n_ctx`, `n_prompt_tokens` …) under its own name.
    ///
    /// `status` is the response's own. A status that is no error (the body came with a 200, or inside a
    /// stream) is replaced by the integer code if that is one, else by the default of the code.
    pub fn from_upstream(status: StatusCode, body: &[u8]) -> Self {
        match error_object(body) {
            Some(object) => from_object(status, object),
            None => from_text(status, body),
        }
    }
}

fn error_object(body: &[u8]) -> Option<Map<String, Value>> {
    let Ok(Value::Object(mut top)) = serde_json::from_slice(body) else { return None };
    match top.shift_remove("error") {
        Some(Value::Object(error)) => Some(error),
        Some(Value::String(message)) => Some(Map::from_iter([("message".to_owned(), message.into())])),
        _ if top.contains_key("message") || top.contains_key("detail") => Some(top),
        _ => None,
    }
}

fn from_object(status: StatusCode, mut object: Map<String, Value>) -> ApiError {
    let mut take = |name| object.shift_remove(name).filter(|value| !value.is_null());
    let message = take("message").or_else(|| take("detail")).map(text).filter(|text| !text.is_empty());
    let raw_code = take("code");
    let raw_kind = take("type");
    let param = take("param").map(text);
    let mut metadata = match take("metadata") {
        Some(Value::Object(metadata)) => metadata,
        Some(other) => Map::from_iter([("metadata".to_owned(), other)]),
        None => Map::new(),
    };
    metadata.extend(object);

    let integer = raw_code.as_ref().and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let coded = integer.and_then(|code| StatusCode::from_u16(code).ok()).filter(|&status| is_error(status));
    let stated = Some(status).filter(|&status| is_error(status)).or(coded);
    let known =
        raw_kind.as_ref().and_then(Value::as_str).and_then(of_kind).unwrap_or_else(|| of_status(stated));
    let status = stated.unwrap_or_else(|| known.status());

    let mut error = ApiError::new(known, message.unwrap_or_else(|| silent(status)));
    error.status = status;
    error.param = param;
    match raw_code {
        Some(Value::String(code)) => {
            error.code = Code::Upstream(code.into());
            error.upstream_kind = raw_kind.map(|kind| text(kind).into());
        }
        other => {
            let kind = raw_kind.filter(|kind| kind.as_str() != Some(error.kind()));
            metadata.extend(other.map(|code| ("upstream_code".to_owned(), code)));
            metadata.extend(kind.map(|kind| ("upstream_type".to_owned(), kind)));
        }
    }
    *error.metadata = metadata;
    error
}

fn from_text(status: StatusCode, body: &[u8]) -> ApiError {
    let body = String::from_utf8_lossy(&body[..body.len().min(QUOTED * 4)]);
    let trimmed = body.trim();
    let quoted = trimmed[..trimmed.floor_char_boundary(QUOTED)].trim_end();
    let known = of_status(Some(status).filter(|&status| is_error(status)));
    let status = Some(status).filter(|&status| is_error(status)).unwrap_or(known.status());
    let message = if quoted.is_empty() { silent(status) } else { quoted.to_owned() };
    let mut error = ApiError::new(known, message);
    error.status = status;
    error
}

/// Our code for an upstream's `type`; the ones that say no more than the status are left to it.
fn of_kind(kind: &str) -> Option<ErrorCode> {
    Some(match kind {
        "exceed_context_size_error" => ErrorCode::ContextLengthExceeded,
        "invalid_request_error" => ErrorCode::InvalidRequest,
        "authentication_error" => ErrorCode::InvalidApiKey,
        "permission_error" => ErrorCode::PermissionDenied,
        "not_found_error" => ErrorCode::RouteNotFound,
        "rate_limit_error" => ErrorCode::RateLimitExceeded,
        "not_supported_error" => ErrorCode::NotSupported,
        "unavailable_error" => ErrorCode::ModelLoading,
        _ => return None,
    })
}

fn of_status(status: Option<StatusCode>) -> ErrorCode {
    match status.map_or(502, |status| status.as_u16()) {
        401 => ErrorCode::InvalidApiKey,
        403 => ErrorCode::PermissionDenied,
        404 => ErrorCode::RouteNotFound,
        405 => ErrorCode::MethodNotAllowed,
        413 => ErrorCode::BodyTooLarge,
        429 => ErrorCode::RateLimitExceeded,
        400..=499 => ErrorCode::InvalidRequest,
        501 => ErrorCode::NotSupported,
        _ => ErrorCode::UpstreamError,
    }
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

fn silent(status: StatusCode) -> String {
    format!("the upstream answered {} without a message", status.as_u16())
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
