//! Whether a failure may be followed by another attempt: a table over phase, status and code.

use std::time::Duration;

use gglib_core::api::error::{ApiError, ErrorCode};
use http::StatusCode;

use super::Failure;

/// What a failure inside the idempotency window means for the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The same request may succeed later.
    Retryable {
        /// When the upstream wishes to see it again.
        hint: Option<Duration>,
    },
    /// The same request would fail the same way.
    Permanent,
}

/// Codes that our proxy gives when its own recoveries are spent. A response says so by `x-should-retry: false`;
/// an event has no headers, so there the code says it.
const SPENT: &[ErrorCode] = &[
    ErrorCode::UpstreamUnreachable,
    ErrorCode::UpstreamDied,
    ErrorCode::UpstreamIncomplete,
    ErrorCode::ModelLoadFailed,
    ErrorCode::TimeoutConnect,
    ErrorCode::TimeoutResponseHeaders,
    ErrorCode::TimeoutFirstContent,
    ErrorCode::TimeoutIdle,
    ErrorCode::TimeoutTotal,
    ErrorCode::TimeoutRequest,
];

/// Classifies a failure that came before any content was handed on. Never by the text of a message.
///
/// | failure | class |
/// |---|---|
/// | transport, in any phase | retryable |
/// | `x-should-retry: true` or `false` | as it says, whatever the status |
/// | error event with a code that says our proxy's recoveries are spent | permanent |
/// | 408, 429, 500, 502, 503, 504, 529 | retryable |
/// | any other status | permanent |
///
/// An error inside a stream has the status that goes with its code; so has our own verdict on an answer (502
/// incomplete or malformed, 504 too slow). A hint makes nothing retryable.
pub fn classify(failure: &Failure) -> Class {
    let (error, is_retryable) = match failure {
        Failure::Transport(_) => return Class::Retryable { hint: None },
        Failure::Status(error) => (error, error.should_retry.unwrap_or_else(|| is_transient(error.status))),
        Failure::Event(error) => (error, !is_spent(error) && is_transient(error.status)),
        Failure::Verdict(error) => (error, is_transient(error.status)),
    };
    if is_retryable { Class::Retryable { hint: error.retry_after } } else { Class::Permanent }
}

/// 529 is what Anthropic's services answer when they are overloaded.
fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504 | 529)
}

/// By the text: what a proxy of ours has sent arrives as an upstream's string.
fn is_spent(error: &ApiError) -> bool {
    SPENT.iter().any(|code| code.as_str() == error.code.as_str())
}

#[cfg(test)]
mod tests {
    use gglib_core::api::error::Code;
    use gglib_core::ports::{Phase, UpstreamError};

    use super::*;

    const RETRYABLE: Class = Class::Retryable { hint: None };

    fn with_status(status: u16) -> ApiError {
        let mut error = ApiError::new(ErrorCode::UpstreamError, "retry after 3 seconds");
        error.status = StatusCode::from_u16(status).unwrap();
        error
    }

    #[test]
    fn every_phase_of_the_transport_is_retryable() {
        for phase in [Phase::Connect, Phase::BeforeHeaders, Phase::AfterHeaders, Phase::MidBody] {
            let failure = Failure::Transport(UpstreamError::new(phase, "reset"));
            assert_eq!(classify(&failure), RETRYABLE, "{phase:?}");
        }
    }

    #[test]
    fn the_table_of_statuses() {
        let retryable: Vec<_> = (300..600)
            .filter(|&status| classify(&Failure::Status(with_status(status))) == RETRYABLE)
            .collect();
        assert_eq!(retryable, [408, 429, 500, 502, 503, 504, 529]);
    }

    #[test]
    fn advice_wins_over_the_status() {
        for status in [400, 401, 404, 409, 422, 429, 500, 503, 529] {
            for (advice, expected) in [(true, RETRYABLE), (false, Class::Permanent)] {
                let error = ApiError { should_retry: Some(advice), ..with_status(status) };
                assert_eq!(classify(&Failure::Status(error)), expected, "{status} {advice}");
            }
        }
    }

    #[test]
    fn a_hint_counts_only_where_a_retry_is_allowed() {
        let hint = Some(Duration::from_secs(7));
        for (status, expected) in [(503, Class::Retryable { hint }), (404, Class::Permanent)] {
            let failure = Failure::Status(ApiError { retry_after: hint, ..with_status(status) });
            assert_eq!(classify(&failure), expected);
            let failure = Failure::Event(ApiError { retry_after: hint, ..with_status(status) });
            assert_eq!(classify(&failure), expected);
        }
    }

    #[test]
    fn the_table_of_codes_in_a_stream() {
        let retryable: Vec<_> = ErrorCode::ALL
            .iter()
            .map(|&code| ApiError::new(code, ""))
            .filter(|error| classify(&Failure::Event(error.clone())) == RETRYABLE)
            .map(|error| error.code.as_str().to_owned())
            .collect();
        assert_eq!(
            retryable,
            [
                "queue_full",
                "rate_limit_exceeded",
                "internal",
                "upstream_malformed",
                "upstream_error",
                "model_loading",
                "wait_stalled",
                "wait_too_long",
                "draining",
            ]
        );
    }

    #[test]
    fn a_code_is_known_by_its_text() {
        let error = ApiError { code: Code::Upstream("upstream_died".into()), ..with_status(502) };
        assert_eq!(classify(&Failure::Event(error.clone())), Class::Permanent);
        assert_eq!(classify(&Failure::Status(error)), RETRYABLE, "a response has its own header for that");
        let foreign = ApiError { code: Code::Upstream("overloaded".into()), ..with_status(502) };
        assert_eq!(classify(&Failure::Event(foreign)), RETRYABLE);
    }

    #[test]
    fn our_own_verdicts_are_retryable() {
        for code in [
            ErrorCode::UpstreamIncomplete,
            ErrorCode::UpstreamMalformed,
            ErrorCode::TimeoutResponseHeaders,
            ErrorCode::TimeoutFirstContent,
            ErrorCode::TimeoutTotal,
        ] {
            assert_eq!(classify(&Failure::Verdict(ApiError::new(code, ""))), RETRYABLE, "{code}");
        }
    }
}
