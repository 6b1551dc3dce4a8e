//! What a person is told while a request waits for its next attempt.

use gglib_core::api::error::ErrorCode;
use gglib_core::ports::Phase;
use gglib_core::retry::{Cause, Class, Failure, RetryEvent};
use gglib_runtime::completion::Notice;

/// Like `model is loading, trying again in 2.0 s (2 of 4)`; `None` for everything but a wait, since success speaks
/// for itself, and a give-up is the command's error.
pub(crate) fn wait(notice: &Notice<'_>) -> Option<String> {
    let RetryEvent::RetryScheduled { attempt, max_attempts, class, delay, .. } = *notice.event else {
        return None;
    };
    let facts = notice.last.map(gglib_runtime::completion::Failure::facts);
    let cause = reason(class, facts.as_ref(), notice.source.target);
    let (seconds, next) = (delay.as_secs_f64(), attempt.saturating_add(1));
    Some(format!("{cause}, trying again in {seconds:.1} s ({next} of {max_attempts})"))
}

/// By code where it is one of ours, else by class: a server's message may say anything.
fn reason(class: Class, facts: Option<&Failure<'_>>, upstream: &str) -> String {
    let code = facts.and_then(|facts| facts.code);
    let known = ErrorCode::ALL.iter().find(|known| Some(known.as_str()) == code);
    match (known, class, facts.map(|facts| facts.cause)) {
        (Some(ErrorCode::ModelLoading), ..) => "model is loading".to_owned(),
        (Some(ErrorCode::ModelLoadFailed), ..) => "model could not be loaded".to_owned(),
        (Some(ErrorCode::BreakerOpen), ..) => "model could not be loaded lately".to_owned(),
        (Some(ErrorCode::InsufficientMemory), ..) => "model does not fit into memory".to_owned(),
        (Some(ErrorCode::QueueFull), ..) => "the queue is full".to_owned(),
        (Some(ErrorCode::WaitStalled), ..) => "the queue stands still".to_owned(),
        (Some(ErrorCode::WaitTooLong), ..) => "the queue is too slow".to_owned(),
        (Some(ErrorCode::Draining), ..) => format!("{upstream} is shutting down"),
        (_, Class::RateLimited, _) => format!("{upstream} has had too many requests"),
        (_, Class::Overloaded, _) => format!("{upstream} is busy"),
        (_, Class::Timeout, _) => format!("{upstream} took too long"),
        (_, Class::Transport, Some(Cause::Transport(Phase::Connect | Phase::BeforeHeaders)) | None) => {
            format!("no answer from {upstream}")
        }
        (_, Class::Transport, _) => format!("the answer from {upstream} broke off"),
        (_, Class::ServerError, _) => format!("{upstream} failed{}", status(facts)),
        (_, Class::Rejected, _) => format!("{upstream} refused the request{}", status(facts)),
    }
}

/// ` (500)`, where a status was sent.
fn status(facts: Option<&Failure<'_>>) -> String {
    match facts.map(|facts| facts.cause) {
        Some(Cause::Status(status)) => format!(" ({})", status.as_u16()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gglib_core::api::error::{ApiError, Code};
    use gglib_core::ports::UpstreamError;
    use gglib_core::retry::EventSource;
    use gglib_runtime::completion::Failure;
    use http::StatusCode;

    use super::*;

    fn told(failure: &Failure) -> String {
        let event = RetryEvent::RetryScheduled {
            attempt: 1,
            max_attempts: 4,
            class: failure.facts().class(),
            hint: None,
            delay: Duration::from_millis(1_960),
        };
        let source = EventSource { target: "127.0.0.1:8080", rules: "gglib" };
        wait(&Notice { source, event: &event, last: Some(failure) }).expect("a wait is told of")
    }

    fn answered(status: u16, code: &str) -> Failure {
        let mut error = ApiError::new(ErrorCode::Internal, "model_loading 429 queue_full");
        (error.status, error.code) = (StatusCode::from_u16(status).unwrap(), Code::Upstream(code.into()));
        Failure::Status(error)
    }

    #[test]
    fn codes_and_classes_decide_and_messages_do_not() {
        for (failure, expected) in [
            (answered(503, "model_loading"), "model is loading"),
            (answered(503, "model_load_failed"), "model could not be loaded"),
            (answered(503, "breaker_open"), "model could not be loaded lately"),
            (answered(503, "insufficient_memory"), "model does not fit into memory"),
            (answered(429, "queue_full"), "the queue is full"),
            (answered(503, "wait_stalled"), "the queue stands still"),
            (answered(503, "wait_too_long"), "the queue is too slow"),
            (answered(503, "draining"), "127.0.0.1:8080 is shutting down"),
            (answered(429, "tokens"), "127.0.0.1:8080 has had too many requests"),
            (answered(503, "x"), "127.0.0.1:8080 is busy"),
            (answered(529, "x"), "127.0.0.1:8080 is busy"),
            (answered(504, "x"), "127.0.0.1:8080 took too long"),
            (answered(500, "x"), "127.0.0.1:8080 failed (500)"),
            (answered(404, "x"), "127.0.0.1:8080 refused the request (404)"),
            (
                Failure::Verdict(ApiError::new(ErrorCode::TimeoutFirstContent, "")),
                "127.0.0.1:8080 took too long",
            ),
            (Failure::Verdict(ApiError::new(ErrorCode::UpstreamIncomplete, "")), "127.0.0.1:8080 failed"),
            (
                Failure::Transport(UpstreamError::new(Phase::Connect, "refused")),
                "no answer from 127.0.0.1:8080",
            ),
            (
                Failure::Transport(UpstreamError::new(Phase::BeforeHeaders, "reset")),
                "no answer from 127.0.0.1:8080",
            ),
            (
                Failure::Transport(UpstreamError::new(Phase::MidBody, "reset")),
                "the answer from 127.0.0.1:8080 broke off",
            ),
        ] {
            assert_eq!(told(&failure), format!("{expected}, trying again in 2.0 s (2 of 4)"));
        }
    }

    #[test]
    fn only_a_wait_is_told_of() {
        let source = EventSource { target: "127.0.0.1:8080", rules: "gglib" };
        for event in [
            RetryEvent::AttemptStarted { attempt: 2 },
            RetryEvent::Succeeded { attempts: 2, total_delay: Duration::ZERO },
            RetryEvent::Cancelled { attempts: 1, total_delay: Duration::ZERO },
        ] {
            assert_eq!(wait(&Notice { source, event: &event, last: None }), None);
        }
    }
}
