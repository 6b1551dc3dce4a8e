//! Why an attempt failed, and why a call did.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::ports::{Phase, UpstreamError};
use gglib_core::retry::GiveUpReason;

/// Why one attempt failed, by the place where the failure showed.
#[derive(Debug)]
pub enum Failure {
    /// Below HTTP: no connection, or one that broke off.
    Transport(UpstreamError),
    /// A response whose status is an error.
    Status(ApiError),
    /// An error inside a response whose status was a success: an event of a stream, or the body.
    Event(ApiError),
    /// Our own verdict on an answer that ended without `finish_reason`, does not follow the protocol, or took too
    /// long.
    Verdict(ApiError),
}

/// Why a call has no answer, or not the whole of it.
#[derive(Debug)]
pub enum CompletionError {
    /// The upstream, or the check of the body before sending, refused the request for good: repeating it would
    /// end the same way, or the rules do not allow it.
    Rejected(ApiError),
    /// Every attempt failed, and the policy allows no further one.
    GaveUp {
        /// What is spent.
        reason: GiveUpReason,
        /// Attempts made.
        attempts: u32,
        /// From the beginning of the first attempt to the end of the last.
        elapsed: Duration,
        /// Why the last one failed.
        last: Box<Failure>,
        /// Until another call may be worth it, if that is known: the server's hint, or the end of the pause that
        /// [`CircuitOpen`](Self::CircuitOpen) tells of.
        retry_after: Option<Duration>,
    },
    /// Nothing was sent: too many calls in a row have failed, and until one call has found out whether the upstream
    /// is back, all others are refused at once.
    CircuitOpen {
        /// The upstream, see [`CompletionClient::with_name`](super::CompletionClient::with_name).
        upstream: Arc<str>,
        /// Until such a call is let through; zero if one is under way and about to be given up.
        retry_after: Duration,
    },
    /// A stream failed after content had been handed on. What came before is good, but not whole.
    Broken(Box<Failure>),
}

impl Failure {
    /// The failure in the terms of the error taxonomy; of a transport failure only the phase is left.
    pub fn into_error(self) -> ApiError {
        match self {
            Self::Transport(error) => {
                let code = match error.phase() {
                    Phase::Connect => ErrorCode::UpstreamUnreachable,
                    Phase::BeforeHeaders | Phase::AfterHeaders | Phase::MidBody => ErrorCode::UpstreamDied,
                };
                ApiError::new(code, error.to_string())
            }
            Self::Status(error) | Self::Event(error) | Self::Verdict(error) => error,
        }
    }
}

impl From<ApiError> for CompletionError {
    fn from(error: ApiError) -> Self {
        Self::Rejected(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => error.fmt(f),
            Self::Status(error) | Self::Event(error) | Self::Verdict(error) => coded(error, f),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Transport(error) => error.source(),
            Self::Status(_) | Self::Event(_) | Self::Verdict(_) => None,
        }
    }
}

/// Like `gave up after 2 attempts in 3.1 s (attempts exhausted): 503 model_loading: the model is being loaded`.
///
/// The last failure is part of the text, as it is what a person has to know; [`source`](Error::source) goes on
/// below it.
impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => {
                f.write_str("rejected: ")?;
                coded(error, f)
            }
            Self::GaveUp { reason, attempts, elapsed, last, .. } => {
                let plural = if *attempts == 1 { "" } else { "s" };
                let seconds = elapsed.as_secs_f64();
                write!(f, "gave up after {attempts} attempt{plural} in {seconds:.1} s ({reason}): {last}")
            }
            Self::CircuitOpen { upstream, retry_after } => {
                let seconds = retry_after.as_secs_f64();
                write!(
                    f,
                    "not sent: {upstream} has failed too often in a row; try again in {seconds:.1} s (circuit open)"
                )
            }
            Self::Broken(failure) => write!(f, "the answer broke off: {failure}"),
        }
    }
}

impl Error for CompletionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Rejected(_) | Self::CircuitOpen { .. } => None,
            Self::GaveUp { last: failure, .. } | Self::Broken(failure) => failure.source(),
        }
    }
}

fn coded(error: &ApiError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{} {}: {error}", error.status.as_u16(), error.code)
}
