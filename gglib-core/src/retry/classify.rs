//! Whether a failure may be followed by another attempt.

use std::time::Duration;

use super::decision::GiveUpReason;
use super::failure::{Advice, Cause, Failure, IdempotencyWindow, Repeatability};
use super::status::StatusSet;
use crate::api::error::ErrorCode;
use crate::ports::Phase;

/// What a failure means for a backoff sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same request may succeed later.
    Retryable {
        /// When the server wishes to see it again.
        hint: Option<Duration>,
    },
    /// It may succeed later, and its work may then have been done twice: see
    /// [`UnsafeRepeats`](super::UnsafeRepeats).
    Conditional {
        /// When the server wishes to see it again.
        hint: Option<Duration>,
    },
    /// The same request would fail the same way, or must not be sent again.
    Permanent(GiveUpReason),
}

/// Codes of hosted services that come with a 429 which no waiting ends.
const OUT_OF_CREDIT: &[&str] = &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"];

/// Codes that our proxy gives when its own recoveries are spent. A response says so by `x-should-retry: false`;
/// an event has no headers, so there the code says it.
const SPENT: &[ErrorCode] = &[
    ErrorCode::UpstreamUnreachable,
    ErrorCode::UpstreamDied,
    ErrorCode::UpstreamIncomplete,
    ErrorCode::ModelLoadFailed,
    ErrorCode::InsufficientMemory,
    ErrorCode::TimeoutConnect,
    ErrorCode::TimeoutResponseHeaders,
    ErrorCode::TimeoutFirstContent,
    ErrorCode::TimeoutIdle,
    ErrorCode::TimeoutTotal,
    ErrorCode::TimeoutRequest,
];

/// Classifies a failure by its facts, for a policy that retries `statuses`. The first row that fits decides:
///
/// | failure | verdict |
/// |---|---|
/// | after content was handed on | permanent: stream committed |
/// | the request's body is gone | permanent |
/// | `x-should-retry` | as it says, whatever the status |
/// | code of a request that is wrong in itself (`context_length_exceeded` …), or of an account without credit | permanent |
/// | event whose code says that a gglib proxy has spent its own recoveries | permanent |
/// | status that is not in `statuses` | permanent |
/// | request idempotent, or the server has not begun its work | retryable |
/// | otherwise: the work may have been done | conditional |
///
/// Idempotent are the methods of RFC 9110 §9.2.2. `x-should-retry` is what OpenAI's and Anthropic's services send and their
/// clients follow. The statuses are those of RFC 9110 §15.5 and §15.6, 429 of RFC 6585 §4, and 529 of Anthropic's services.
///
/// A server has not begun its work if there was no connection, or its status is 408, 429, 503 or 529. 500 is
/// retried by those policies that have it in their set: it may be permanent, and nothing in it says so. A hint
/// makes nothing retryable, it only says when.
///
/// ```
/// use gglib_core::retry::{Advice, Cause, Failure, GiveUpReason, Verdict, classify, preset};
/// use http::StatusCode;
///
/// let statuses = preset::gglib().statuses;
/// let busy = Failure::new(Cause::Status(StatusCode::SERVICE_UNAVAILABLE));
/// assert_eq!(classify(&busy, statuses), Verdict::Retryable { hint: None });
/// let spent = Failure { advice: Some(Advice::GiveUp), ..busy };
/// assert_eq!(classify(&spent, statuses), Verdict::Permanent(GiveUpReason::NotRetryable));
/// ```
pub fn classify(failure: &Failure<'_>, statuses: StatusSet) -> Verdict {
    const PERMANENT: Verdict = Verdict::Permanent(GiveUpReason::NotRetryable);

    let hint = failure.hint;
    if failure.window == IdempotencyWindow::Closed {
        return Verdict::Permanent(GiveUpReason::StreamCommitted);
    }
    if failure.request == Repeatability::BodyGone {
        return PERMANENT;
    }
    match failure.advice {
        Some(Advice::Retry) => return Verdict::Retryable { hint },
        Some(Advice::GiveUp) => return PERMANENT,
        None => {}
    }
    if let Cause::Status(status) | Cause::Event(status) = failure.cause
        && (!statuses.contains(status) || has_permanent_code(failure))
    {
        return PERMANENT;
    }
    if failure.request == Repeatability::Idempotent || is_before_the_work(failure.cause) {
        Verdict::Retryable { hint }
    } else {
        Verdict::Conditional { hint }
    }
}

fn has_permanent_code(failure: &Failure<'_>) -> bool {
    let is_spent = || failure.known_code().is_some_and(|code| SPENT.contains(&code));
    failure.has_code_of_the_request()
        || failure.code.is_some_and(|code| OUT_OF_CREDIT.contains(&code))
        || (matches!(failure.cause, Cause::Event(_)) && is_spent())
}

fn is_before_the_work(cause: Cause) -> bool {
    match cause {
        Cause::Transport(phase) | Cause::Timeout(phase) => phase == Phase::Connect,
        Cause::Status(status) | Cause::Event(status) => {
            matches!(status.as_u16(), 408 | 429 | 503 | 529)
        }
        Cause::Malformed => false,
    }
}
