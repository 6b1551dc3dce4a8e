//! A failure in the terms of the retry policy.

use gglib_core::api::error::{ApiError, Code, ErrorCode};
use gglib_core::ports::Phase;
use gglib_core::retry::{self, Advice, Cause, IdempotencyWindow, Repeatability};

use super::Failure;

impl Failure {
    /// The facts by which the policy [classifies](retry::classify) a failure that came before any content was
    /// handed on.
    ///
    /// A completion is not idempotent: the model may have done its work, and does it again for the next attempt.
    /// Whether that is allowed is the rules' to say. gglib's allow it, as nobody has seen the first answer.
    ///
    /// ```
    /// use gglib_core::api::error::{ApiError, ErrorCode};
    /// use gglib_core::retry::{Verdict, classify, preset};
    /// use gglib_runtime::completion::Failure;
    ///
    /// let failure = Failure::Status(ApiError::new(ErrorCode::ModelLoading, "soon"));
    /// let verdict = classify(&failure.facts(), preset::gglib().statuses);
    /// assert_eq!(verdict, Verdict::Retryable { hint: None });
    /// ```
    pub fn facts(&self) -> retry::Failure<'_> {
        let (cause, error) = match self {
            Self::Transport(error) => (Cause::Transport(error.phase()), None),
            Self::Status(error) => (Cause::Status(error.status), Some(error)),
            Self::Event(error) => (Cause::Event(error.status), Some(error)),
            Self::Verdict(error) => (cause_of_verdict(error), Some(error)),
        };
        retry::Failure {
            cause,
            code: error.map(|error| error.code.as_str()),
            advice: error.and_then(|error| error.should_retry).map(advice),
            hint: error.and_then(|error| error.retry_after),
            window: IdempotencyWindow::Open,
            request: Repeatability::NotIdempotent,
        }
    }
}

/// A timer of ours that ran out, by what it waited for; else an answer that breaks the protocol.
fn cause_of_verdict(error: &ApiError) -> Cause {
    match error.code {
        Code::Known(ErrorCode::TimeoutResponseHeaders) => Cause::Timeout(Phase::BeforeHeaders),
        Code::Known(ErrorCode::TimeoutFirstContent) => Cause::Timeout(Phase::AfterHeaders),
        Code::Known(ErrorCode::TimeoutIdle | ErrorCode::TimeoutTotal) => Cause::Timeout(Phase::MidBody),
        _ => Cause::Malformed,
    }
}

fn advice(should_retry: bool) -> Advice {
    if should_retry { Advice::Retry } else { Advice::GiveUp }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gglib_core::ports::UpstreamError;
    use gglib_core::retry::{Class, GiveUpReason, UnsafeRepeats, Verdict, classify, preset};
    use http::StatusCode;

    use super::*;

    /// The verdict by gglib's own rules, which repeat on condition.
    fn verdict(failure: &Failure) -> Verdict {
        let rules = preset::gglib();
        assert_eq!(rules.unsafe_repeats, UnsafeRepeats::Allow);
        match classify(&failure.facts(), rules.statuses) {
            Verdict::Conditional { hint } => Verdict::Retryable { hint },
            verdict => verdict,
        }
    }

    const RETRYABLE: Verdict = Verdict::Retryable { hint: None };
    const PERMANENT: Verdict = Verdict::Permanent(GiveUpReason::NotRetryable);

    fn with_status(status: u16) -> ApiError {
        let mut error = ApiError::new(ErrorCode::UpstreamError, "retry after 3 seconds");
        error.status = StatusCode::from_u16(status).unwrap();
        error
    }

    #[test]
    fn every_phase_of_the_transport_is_retryable() {
        for phase in [Phase::Connect, Phase::BeforeHeaders, Phase::AfterHeaders, Phase::MidBody] {
            let failure = Failure::Transport(UpstreamError::new(phase, "reset"));
            assert_eq!(verdict(&failure), RETRYABLE, "{phase:?}");
            assert_eq!(failure.facts().cause, Cause::Transport(phase));
        }
    }

    #[test]
    fn the_table_of_statuses() {
        let retryable: Vec<_> = (300..600)
            .filter(|&status| verdict(&Failure::Status(with_status(status))) == RETRYABLE)
            .collect();
        assert_eq!(retryable, [408, 429, 500, 502, 503, 504, 529]);
    }

    #[test]
    fn advice_wins_over_the_status() {
        for status in [400, 401, 404, 409, 422, 429, 500, 503, 529] {
            for (advice, expected) in [(true, RETRYABLE), (false, PERMANENT)] {
                let error = ApiError { should_retry: Some(advice), ..with_status(status) };
                assert_eq!(verdict(&Failure::Status(error)), expected, "{status} {advice}");
            }
        }
    }

    #[test]
    fn a_hint_counts_only_where_a_retry_is_allowed() {
        let hint = Some(Duration::from_secs(7));
        for (status, expected) in [(503, Verdict::Retryable { hint }), (404, PERMANENT)] {
            let failure = Failure::Status(ApiError { retry_after: hint, ..with_status(status) });
            assert_eq!(verdict(&failure), expected);
            let failure = Failure::Event(ApiError { retry_after: hint, ..with_status(status) });
            assert_eq!(verdict(&failure), expected);
        }
    }

    #[test]
    fn the_table_of_codes_in_a_stream() {
        let retryable: Vec<_> = ErrorCode::ALL
            .iter()
            .map(|&code| ApiError::new(code, ""))
            .filter(|error| verdict(&Failure::Event(error.clone())) == RETRYABLE)
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
                "breaker_open",
                "wait_stalled",
                "wait_too_long",
                "draining",
            ]
        );
    }

    #[test]
    fn a_code_is_known_by_its_text() {
        let error = ApiError { code: Code::Upstream("upstream_died".into()), ..with_status(502) };
        assert_eq!(verdict(&Failure::Event(error.clone())), PERMANENT);
        assert_eq!(verdict(&Failure::Status(error)), RETRYABLE, "a response has its own header for that");
        let foreign = ApiError { code: Code::Upstream("overloaded".into()), ..with_status(502) };
        assert_eq!(verdict(&Failure::Event(foreign)), RETRYABLE);
    }

    #[test]
    fn our_own_verdicts_are_retryable() {
        for (code, class) in [
            (ErrorCode::UpstreamIncomplete, Class::ServerError),
            (ErrorCode::UpstreamMalformed, Class::ServerError),
            (ErrorCode::TimeoutResponseHeaders, Class::Timeout),
            (ErrorCode::TimeoutFirstContent, Class::Timeout),
            (ErrorCode::TimeoutIdle, Class::Timeout),
            (ErrorCode::TimeoutTotal, Class::Timeout),
        ] {
            let failure = Failure::Verdict(ApiError::new(code, ""));
            assert_eq!((verdict(&failure), failure.facts().class()), (RETRYABLE, class), "{code}");
        }
    }
}
