//! What is known of an attempt that failed.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::breaker::Outcome;
use crate::api::error::ErrorCode;
use crate::ports::Phase;

/// The header by which a server overrules the table of statuses.
const SHOULD_RETRY: &str = "x-should-retry";

/// The facts by which a failed attempt is [classified](super::classify).
///
/// No message is among them: texts are for people, and "429" in one may mean anything.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::retry::{Cause, Class, Failure};
/// use http::StatusCode;
///
/// let failure = Failure {
///     hint: Some(Duration::from_secs(3)),
///     code: Some("model_loading"),
///     ..Failure::new(Cause::Status(StatusCode::SERVICE_UNAVAILABLE))
/// };
/// assert_eq!(failure.class(), Class::Overloaded);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// Where the failure showed.
    pub cause: Cause,
    /// The `code` of the error body.
    pub code: Option<&'a str>,
    /// What the server advises, whatever its status says.
    pub advice: Option<Advice>,
    /// When the server wishes to see the request again, see [`hint::parse`](super::hint::parse).
    pub hint: Option<Duration>,
    /// Whether anything of the answer has been handed on.
    pub window: IdempotencyWindow,
    /// Whether the request can and may be sent again.
    pub request: Repeatability,
}

/// Where a failure showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Below HTTP: no connection (a name that does not resolve included), or one that broke off.
    Transport(Phase),
    /// One of our own timers of the attempt ran out.
    Timeout(Phase),
    /// A response whose status is an error.
    Status(StatusCode),
    /// An error inside a response whose status was a success; the status is the one that goes with its code.
    Event(StatusCode),
    /// A response that breaks its protocol: malformed, or without a proper end.
    Malformed,
}

/// What `x-should-retry` says, a header of OpenAI's and Anthropic's services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Another attempt is worth making.
    Retry,
    /// Another attempt would be a waste: the server, or a layer in between, has made its own.
    GiveUp,
}

/// The time from sending a request until the first content of its answer is handed on; gglib's own notion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdempotencyWindow {
    /// Nobody has seen anything of the answer.
    Open,
    /// Content has been handed on: a repeated attempt would give it twice.
    Closed,
}

/// Whether a request can and may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeatability {
    /// Doing the work twice is the same as doing it once: RFC 9110 §9.2.2, or a key that the server knows.
    Idempotent,
    /// The work might be done twice.
    NotIdempotent,
    /// There is nothing left to send: the body was a stream.
    BodyGone,
}

/// The kind of a failure, by which a [policy of its own](super::RetryRules::per_class) can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// 429: this client has asked too often.
    RateLimited,
    /// 503, 529: the server cannot serve anybody now.
    Overloaded,
    /// Any other 5xx, or an answer that breaks its protocol.
    ServerError,
    /// 408, 504, or one of our own timers.
    Timeout,
    /// No connection, or one that broke off.
    Transport,
    /// Any other status: the request itself was refused.
    Rejected,
}

impl Failure<'_> {
    /// A failure of which no more is known: before any content, of a request that is not idempotent.
    pub const fn new(cause: Cause) -> Self {
        Self {
            cause,
            code: None,
            advice: None,
            hint: None,
            window: IdempotencyWindow::Open,
            request: Repeatability::NotIdempotent,
        }
    }

    /// The kind of the failure.
    pub fn class(&self) -> Class {
        match self.cause {
            Cause::Transport(_) => Class::Transport,
            Cause::Timeout(_) => Class::Timeout,
            Cause::Malformed => Class::ServerError,
            Cause::Status(status) | Cause::Event(status) => match status.as_u16() {
                429 => Class::RateLimited,
                503 | 529 => Class::Overloaded,
                408 | 504 => Class::Timeout,
                500..=599 => Class::ServerError,
                _ => Class::Rejected,
            },
        }
    }

    /// What the failure says about the health of the target that gave it.
    ///
    /// A success, if the request was wrong in itself: the target has answered it. Nothing, if the target is merely
    /// busy: 429, or 503 with a time. Else a failure.
    pub fn outcome(&self) -> Outcome {
        match self.class() {
            Class::Rejected => Outcome::Success,
            _ if self.is_refused_for_itself() => Outcome::Success,
            Class::RateLimited => Outcome::Neutral,
            Class::Overloaded if self.hint.is_some() => Outcome::Neutral,
            Class::Overloaded | Class::ServerError | Class::Timeout | Class::Transport => Outcome::Failure,
        }
    }

    fn is_refused_for_itself(&self) -> bool {
        let not_supported = [StatusCode::NOT_IMPLEMENTED, StatusCode::HTTP_VERSION_NOT_SUPPORTED];
        let has_such_status = match self.cause {
            Cause::Status(status) | Cause::Event(status) => not_supported.contains(&status),
            Cause::Transport(_) | Cause::Timeout(_) | Cause::Malformed => false,
        };
        has_such_status || self.has_code_of_the_request()
    }

    /// Whether the code is one of ours that goes with a 4xx, whatever the status: some servers send 500 for
    /// everything.
    pub(super) fn has_code_of_the_request(&self) -> bool {
        self.known_code().is_some_and(|code| {
            let status = code.status();
            status.is_client_error()
                && !matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
        })
    }

    /// By the text: what a proxy of ours has sent arrives as an upstream's string.
    pub(super) fn known_code(&self) -> Option<ErrorCode> {
        let text = self.code?;
        ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl Advice {
    /// Reads `x-should-retry`: exactly `true` or `false`, as OpenAI's clients do; anything else is no advice.
    pub fn parse(headers: &HeaderMap) -> Option<Self> {
        match headers.get(SHOULD_RETRY)?.as_bytes() {
            b"true" => Some(Self::Retry),
            b"false" => Some(Self::GiveUp),
            _ => None,
        }
    }
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 6] = [
        Self::RateLimited,
        Self::Overloaded,
        Self::ServerError,
        Self::Timeout,
        Self::Transport,
        Self::Rejected,
    ];

    /// The class as a name for configuration and metrics; the text is stable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
            Self::Rejected => "rejected",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
