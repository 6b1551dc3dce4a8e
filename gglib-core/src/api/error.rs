//! The one error taxonomy, and its shape on the wire: OpenAI's error body.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::body::{BodyError, MemberError};

pub use code::{ErrorCode, Row, table};

mod code;
mod upstream;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The longest delay that a header asks for: SDKs ignore, or sit out, anything longer.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// An explicit end of a request that is not the answer, in the terms of OpenAI's error body.
///
/// Sent as a JSON body with [`headers`](Self::headers) while the status line is still ours to choose, and as an
/// event of the stream ([`to_sse`](Self::to_sse)) afterwards.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::api::error::{ApiError, ErrorCode};
///
/// let error = ApiError::new(ErrorCode::QueueFull, "256 requests already wait for `smollm2`")
///     .with_retry_after(Duration::from_millis(2300));
/// assert_eq!(error.status, 429);
/// assert_eq!(error.headers()["retry-after"], "3");
/// assert_eq!(
///     error.to_json(),
///     r#"{"error":{"message":"256 requests already wait for `smollm2`","type":"rate_limit_error","code":"queue_full","param":null,"metadata":{"retry_after_ms":2300}}}"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status; inside a stream only a hint, carried by nothing but the code.
    pub status: StatusCode,
    /// What went wrong, for programs.
    pub code: Code,
    /// OpenAI's `type`, where an upstream chose one that must be kept; see [`kind`](Self::kind).
    pub upstream_kind: Option<Box<str>>,
    /// What went wrong, for people; never empty.
    pub message: String,
    /// The member of the request body that is at fault.
    pub param: Option<String>,
    /// When another attempt is worth making, unrounded.
    pub retry_after: Option<Duration>,
    /// What `x-should-retry` says; absent when `None`.
    pub should_retry: Option<bool>,
    /// Anything else that is known, as `error.metadata`.
    pub metadata: Box<Map<String, Value>>,
}

/// The `code` of an error: one of ours, or a string that an upstream chose.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A code of the table.
    Known(ErrorCode),
    /// An upstream's own string code, kept because clients look for it.
    Upstream(Box<str>),
}

impl ApiError {
    /// An error with the default status of its code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            status: code.status(),
            code: Code::Known(code),
            upstream_kind: None,
            message: message.into(),
            param: None,
            retry_after: None,
            should_retry: None,
            metadata: Box::default(),
        }
    }

    /// Names the member of the request body that is at fault.
    #[must_use]
    pub fn with_param(mut self, member: impl Into<String>) -> Self {
        self.param = Some(member.into());
        self
    }

    /// Says when another attempt is worth making.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Adds a member to `error.metadata`.
    #[must_use]
    pub fn with_metadata(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.to_owned(), value.into());
        self
    }

    /// Tells SDKs not to repeat the request: our own recoveries are spent, and theirs would multiply them.
    #[must_use]
    pub fn not_worth_retrying(mut self) -> Self {
        self.should_retry = Some(false);
        self
    }

    /// OpenAI's `type`: the upstream's where it is kept, else the one of the status.
    pub fn kind(&self) -> &str {
        self.upstream_kind.as_deref().unwrap_or_else(|| code::kind_of(self.status))
    }

    /// The error body: `{"error":{"message","type","code","param"}}`, and `metadata` when there is any.
    ///
    /// `metadata.retry_after_ms` holds the unrounded [`retry_after`](Self::retry_after) in milliseconds, which
    /// the headers may round and clamp.
    pub fn to_json(&self) -> Bytes {
        let mut error = Map::from_iter([
            ("message".to_owned(), self.message.as_str().into()),
            ("type".to_owned(), self.kind().into()),
            ("code".to_owned(), self.code.as_str().into()),
            ("param".to_owned(), self.param.as_deref().into()),
        ]);
        let mut metadata = Map::clone(&self.metadata);
        metadata
            .extend(self.retry_after.map(|delay| ("retry_after_ms".to_owned(), milliseconds(delay).into())));
        if !metadata.is_empty() {
            error.insert("metadata".to_owned(), metadata.into());
        }
        json!({ "error": error }).to_string().into()
    }

    /// The error as one event of a stream: `data: {"error":…}` and a blank line.
    pub fn to_sse(&self) -> Bytes {
        crate::sse::encode::data(&self.to_json())
    }

    /// The headers that advise on another attempt.
    ///
    /// `retry-after` in whole seconds, rounded up, within 1..=60 (RFC 9110 §10.2.3 knows no fractions);
    /// `retry-after-ms` in milliseconds, within 1..=60000; `x-should-retry` as OpenAI's SDKs read it.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(delay) = self.retry_after {
            let millis = milliseconds(delay.min(MAX_RETRY_AFTER)).max(1);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
        }
        if let Some(should_retry) = self.should_retry {
            let value = if should_retry { "true" } else { "false" };
            headers.insert(SHOULD_RETRY, HeaderValue::from_static(value));
        }
        headers
    }
}

impl Code {
    /// The text on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(code) => code.as_str(),
            Self::Upstream(code) => code,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        Self::new(ErrorCode::InvalidJson, error.to_string())
    }
}

impl From<MemberError> for ApiError {
    fn from(error: MemberError) -> Self {
        Self::new(ErrorCode::InvalidRequest, error.to_string()).with_param(error.member)
    }
}

/// Rounded up, so that nobody comes back early.
fn milliseconds(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
