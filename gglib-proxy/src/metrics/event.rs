//! What happens to requests, as far as it is counted.

use std::time::Duration;

use gglib_core::api::error::{ApiError, Code, ErrorCode};
use gglib_core::model::ModelName;
use gglib_core::retry::RetriesAbove;
use http::StatusCode;

use super::Tokens;

/// The `code` of what is no error.
const NO_CODE: &str = "";

/// The `code` of all errors that an engine has its own code for.
const OTHER_CODE: &str = "upstream_own";

/// One thing that has happened to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// It has come.
    Received,
    /// It has been read, and its model is known.
    Identified { model: &'a ModelName, above: RetriesAbove },
    /// Its wait for an engine is over: by a lease or a refusal, or because nobody waits any more.
    LeftQueue { model: &'a ModelName, waited: Duration },
    /// It is answered by the run of the same idempotency key.
    Attached { model: &'a ModelName },
    /// It was sent again, because its connection broke.
    Resent { model: &'a ModelName },
    /// An engine was relaunched for it.
    Relaunched { model: &'a ModelName },
    /// Its stream goes on with another engine, from where the first one died.
    Continued { model: &'a ModelName },
    /// The first content of its answer has come, this long after the request had been read.
    FirstContent { model: &'a ModelName, after: Duration },
    /// Its answer had tool calls that no client could run, or none where one was due.
    BrokenTurn { model: &'a ModelName },
    /// Only the packaging of its tool calls was wrong.
    Mended { model: &'a ModelName },
    /// A second request has put its tool calls right.
    Repaired { model: &'a ModelName },
    /// A whole answer has come, this long after its first content if the client sees it.
    Answered { model: &'a ModelName, generation: Option<Duration>, tokens: Tokens },
    /// It is over; `model` is there if it was identified.
    Ended { model: Option<&'a ModelName>, end: End<'a>, after: Duration },
}

/// How a request has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End<'a> {
    /// With a whole answer.
    Success,
    /// With an error.
    Error(&'a ApiError),
    /// With a fault of ours.
    Panic,
    /// Its client left before the end.
    Abandoned,
}

impl End<'_> {
    /// All values of [`outcome`](Self::outcome).
    pub(super) const OUTCOMES: [&'static str; 4] = ["success", "failed", "refused", "abandoned"];

    /// A refusal is an error that says when to come back.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error(error) if is_refusal(error) => "refused",
            Self::Error(_) | Self::Panic => "failed",
            Self::Abandoned => "abandoned",
        }
    }

    /// All values of [`code`](Self::code).
    pub(super) fn codes() -> impl Iterator<Item = &'static str> {
        ErrorCode::ALL.iter().map(|code| code.as_str()).chain([NO_CODE, OTHER_CODE])
    }

    /// The code of an error, an engine's own summed up in one; else empty.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Success | Self::Abandoned => NO_CODE,
            Self::Panic => ErrorCode::Internal.as_str(),
            Self::Error(error) => match &error.code {
                Code::Known(code) => code.as_str(),
                Code::Upstream(_) => OTHER_CODE,
            },
        }
    }
}

fn is_refusal(error: &ApiError) -> bool {
    matches!(error.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
        && error.retry_after.is_some()
}
