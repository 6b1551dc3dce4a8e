//! What a person is told while a request waits for its next attempt.

use std::time::Duration;

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
    let next = attempt.saturating_add(1);
    Some(format!("{cause}, trying again {} ({next} of {max_attempts})", after(delay)))
}

/// Like `in 2.0 s`; a delay may be drawn so short that nobody sees it.
fn after(delay: Duration) -> String {
    let tenths = (delay.as_secs_f64() * 10.0).round();
    if tenths < 1.0 { "at once".to_owned() } else { format!("in {:.1} s", tenths / 10.0) }
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
        (Some(ErrorCode::UpstreamIncomplete), ..) => format!("the answer from {upstream} was not complete"),
        (Some(ErrorCode::UpstreamMalformed), ..) => format!("the answer from {upstream} makes no sense"),
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
    use gglib_core::api::error::{ApiError, Code};
    use gglib_core::ports::UpstreamError;
    use gglib_core::retry::EventSource;
    use gglib_runtime::completion::Failure;
    use http::StatusCode;
    use insta::assert_snapshot;

    use super::*;

    const SOURCE: EventSource<'static> = EventSource { target: "127.0.0.1:8080", rules: "gglib" };

    fn told(failure: &Failure, delay: Duration) -> String {
        let event = RetryEvent::RetryScheduled {
            attempt: 1,
            max_attempts: 4,
            class: failure.facts().class(),
            hint: None,
            delay,
        };
        wait(&Notice { source: SOURCE, event: &event, last: Some(failure) }).expect("a wait is told of")
    }

    /// What is told of each failure, after its class.
    fn table(failures: impl IntoIterator<Item = Failure>) -> String {
        let line = |failure: Failure| {
            format!("{:<12} {}", failure.facts().class(), told(&failure, Duration::from_millis(1_960)))
        };
        failures.into_iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn answered((status, code): (u16, &str)) -> Failure {
        let mut error = ApiError::new(ErrorCode::Internal, "model_loading 429 queue_full");
        (error.status, error.code) = (StatusCode::from_u16(status).unwrap(), Code::Upstream(code.into()));
        Failure::Status(error)
    }

    #[test]
    fn codes_of_ours_are_said_in_plain_words() {
        let codes = [
            "model_loading",
            "model_load_failed",
            "breaker_open",
            "insufficient_memory",
            "wait_stalled",
            "wait_too_long",
            "draining",
        ];
        let refused = codes.map(|code| answered((503, code)));
        assert_snapshot!(table(refused.into_iter().chain([answered((429, "queue_full"))])), @"
        overloaded   model is loading, trying again in 2.0 s (2 of 4)
        overloaded   model could not be loaded, trying again in 2.0 s (2 of 4)
        overloaded   model could not be loaded lately, trying again in 2.0 s (2 of 4)
        overloaded   model does not fit into memory, trying again in 2.0 s (2 of 4)
        overloaded   the queue stands still, trying again in 2.0 s (2 of 4)
        overloaded   the queue is too slow, trying again in 2.0 s (2 of 4)
        overloaded   127.0.0.1:8080 is shutting down, trying again in 2.0 s (2 of 4)
        rate_limited the queue is full, trying again in 2.0 s (2 of 4)
        ");
    }

    #[test]
    fn other_answers_are_told_of_by_class_and_their_messages_are_not() {
        let statuses = [429, 503, 529, 500, 502, 408, 504, 404];
        assert_snapshot!(table(statuses.map(|status| answered((status, "x")))), @"
        rate_limited 127.0.0.1:8080 has had too many requests, trying again in 2.0 s (2 of 4)
        overloaded   127.0.0.1:8080 is busy, trying again in 2.0 s (2 of 4)
        overloaded   127.0.0.1:8080 is busy, trying again in 2.0 s (2 of 4)
        server_error 127.0.0.1:8080 failed (500), trying again in 2.0 s (2 of 4)
        server_error 127.0.0.1:8080 failed (502), trying again in 2.0 s (2 of 4)
        timeout      127.0.0.1:8080 took too long, trying again in 2.0 s (2 of 4)
        timeout      127.0.0.1:8080 took too long, trying again in 2.0 s (2 of 4)
        rejected     127.0.0.1:8080 refused the request (404), trying again in 2.0 s (2 of 4)
        ");
    }

    #[test]
    fn answers_that_break_the_protocol_or_take_too_long() {
        let codes = [
            ErrorCode::UpstreamIncomplete,
            ErrorCode::UpstreamMalformed,
            ErrorCode::TimeoutResponseHeaders,
            ErrorCode::TimeoutFirstContent,
            ErrorCode::TimeoutIdle,
            ErrorCode::TimeoutTotal,
        ];
        assert_snapshot!(table(codes.map(|code| Failure::Verdict(ApiError::new(code, "")))), @"
        server_error the answer from 127.0.0.1:8080 was not complete, trying again in 2.0 s (2 of 4)
        server_error the answer from 127.0.0.1:8080 makes no sense, trying again in 2.0 s (2 of 4)
        timeout      127.0.0.1:8080 took too long, trying again in 2.0 s (2 of 4)
        timeout      127.0.0.1:8080 took too long, trying again in 2.0 s (2 of 4)
        timeout      127.0.0.1:8080 took too long, trying again in 2.0 s (2 of 4)
        timeout      127.0.0.1:8080 took too long, trying again in 2.0 s (2 of 4)
        ");
    }

    #[test]
    fn an_error_inside_a_stream_has_no_status_to_show() {
        let codes =
            [ErrorCode::ModelLoading, ErrorCode::QueueFull, ErrorCode::UpstreamError, ErrorCode::Internal];
        assert_snapshot!(table(codes.map(|code| Failure::Event(ApiError::new(code, "")))), @"
        overloaded   model is loading, trying again in 2.0 s (2 of 4)
        rate_limited the queue is full, trying again in 2.0 s (2 of 4)
        server_error 127.0.0.1:8080 failed, trying again in 2.0 s (2 of 4)
        server_error 127.0.0.1:8080 failed, trying again in 2.0 s (2 of 4)
        ");
    }

    #[test]
    fn connections_that_fail() {
        let phases = [Phase::Connect, Phase::BeforeHeaders, Phase::AfterHeaders, Phase::MidBody];
        let broken = phases.map(|phase| Failure::Transport(UpstreamError::new(phase, "reset")));
        assert_snapshot!(table(broken), @"
        transport    no answer from 127.0.0.1:8080, trying again in 2.0 s (2 of 4)
        transport    no answer from 127.0.0.1:8080, trying again in 2.0 s (2 of 4)
        transport    the answer from 127.0.0.1:8080 broke off, trying again in 2.0 s (2 of 4)
        transport    the answer from 127.0.0.1:8080 broke off, trying again in 2.0 s (2 of 4)
        ");
    }

    #[test]
    fn a_delay_that_nobody_sees_is_none() {
        let loading = answered((503, "model_loading"));
        for (millis, expected) in [(0, "at once"), (49, "at once"), (51, "in 0.1 s"), (15_000, "in 15.0 s")] {
            let expected = format!("model is loading, trying again {expected} (2 of 4)");
            assert_eq!(told(&loading, Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn only_a_wait_is_told_of() {
        for event in [
            RetryEvent::AttemptStarted { attempt: 2 },
            RetryEvent::Succeeded { attempts: 2, total_delay: Duration::ZERO },
            RetryEvent::Cancelled { attempts: 1, total_delay: Duration::ZERO },
        ] {
            assert_eq!(wait(&Notice { source: SOURCE, event: &event, last: None }), None);
        }
    }
}
