//! The ways to break the promise.

use std::time::Duration;

use http::StatusCode;
use thiserror::Error;

/// One way in which a request can end that the promise rules out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Breach {
    /// It had not ended when the client lost its patience.
    #[error("no end after {:.1} s", after.as_secs_f64())]
    Endless {
        /// The patience.
        after: Duration,
    },
    /// It ended too late.
    #[error("it took {:.1} s, which is more than {:.1} s", took.as_secs_f64(), bound.as_secs_f64())]
    TooLate {
        /// From sending to the end.
        took: Duration,
        /// What was promised.
        bound: Duration,
    },
    /// The connection ended without a response.
    #[error("the connection ended without an answer")]
    NoAnswer,
    /// A status that is neither an answer nor an error.
    #[error("status {}", .0.as_u16())]
    Status(StatusCode),
    /// A body of another type than its meaning demands.
    #[error("the content type is `{found}` instead of `{expected}`")]
    ContentType {
        /// What the header says.
        found: String,
        /// What it should say.
        expected: &'static str,
    },
    /// A body that is not a stream was cut off.
    #[error("the body was cut off")]
    CutBody,
    /// An error that is not of OpenAI's shape.
    #[error("the error is not OpenAI's: {0}")]
    NotAnError(&'static str),
    /// A 429 or 503 that does not say when to come back.
    #[error("{code} does not say when to come back")]
    NoRetryAfter {
        /// The error's code.
        code: String,
    },
    /// A `Retry-After` that is not a whole number of seconds from 1 to 60.
    #[error("Retry-After is `{0}`")]
    RetryAfter(String),
    /// An event of a stream that is no chunk.
    #[error("an event of the stream is no chunk")]
    Malformed,
    /// A stream that ended in good order without a `finish_reason` and without an error: it looks complete.
    #[error("the stream ended without a finish_reason, and looks complete")]
    Unfinished,
    /// A stream that was cut off without an error event.
    #[error("the stream was cut off without an error event")]
    CutWithoutError,
    /// An answer with none or several `[DONE]`, or one that is not its last event.
    #[error("[DONE] came {0} times, or not last")]
    Done(usize),
    /// A stream that went on after its error event, with `[DONE]` or anything else.
    #[error("the stream went on after its error event")]
    AfterError,
    /// A stream that ended in good order after its error event.
    #[error("the stream ended cleanly after its error event, and looks complete")]
    CleanAfterError,
    /// A stream that says not exactly once whose turn it is.
    #[error("the role came {0} times")]
    Role(usize),
    /// A plain answer without a message or `finish_reason`.
    #[error("the answer is not whole: {0}")]
    NotWhole(&'static str),
    /// What was delivered is not what was asked for: text was lost, repeated or made up.
    #[error("the text is wrong: {0}")]
    Text(String),
    /// The request was in order, but not the endpoint after it.
    #[error("afterwards: {0}")]
    Afterwards(String),
}
