//! Which failures may be followed by another attempt.

use std::fmt::Write;

use gglib_core::api::error::ErrorCode;
use gglib_core::ports::Phase;
use gglib_core::retry::{
    Advice, Cause, Class, Failure, GiveUpReason, IdempotencyWindow, Repeatability, StatusSet, Verdict,
    classify, preset,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use proptest::prelude::*;

use super::secs;

const PHASES: [Phase; 4] = [Phase::Connect, Phase::BeforeHeaders, Phase::AfterHeaders, Phase::MidBody];
const RETRYABLE: Verdict = Verdict::Retryable { hint: None };
const CONDITIONAL: Verdict = Verdict::Conditional { hint: None };
const PERMANENT: Verdict = Verdict::Permanent(GiveUpReason::NotRetryable);

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).expect("a status")
}

/// The failure of a request that may be repeated.
fn idempotent(cause: Cause) -> Failure<'static> {
    Failure { request: Repeatability::Idempotent, ..Failure::new(cause) }
}

fn answered(code: u16) -> Failure<'static> {
    idempotent(Cause::Status(status(code)))
}

fn under_gglib(failure: &Failure<'_>) -> Verdict {
    classify(failure, preset::gglib().statuses)
}

/// Cause by cause, for each of the three kinds of requests.
#[test]
fn the_table() {
    let transport = PHASES.map(Cause::Transport);
    let timeouts = PHASES.map(Cause::Timeout);
    let statuses =
        [400, 401, 403, 404, 408, 409, 413, 422, 425, 429, 500, 501, 502, 503, 504, 507, 529].map(status);
    let causes = transport
        .into_iter()
        .chain(timeouts)
        .chain([Cause::Malformed])
        .chain(statuses.map(Cause::Status))
        .chain(statuses.map(Cause::Event));
    let mut table =
        String::from("| cause | class | idempotent | not idempotent | body gone |\n|---|---|---|---|---|\n");
    for cause in causes {
        let verdicts = [Repeatability::Idempotent, Repeatability::NotIdempotent, Repeatability::BodyGone]
            .map(|request| match under_gglib(&Failure { request, ..Failure::new(cause) }) {
                Verdict::Retryable { .. } => "retry",
                Verdict::Conditional { .. } => "conditional",
                Verdict::Permanent(_) => "no",
            })
            .join(" | ");
        writeln!(table, "| {cause:?} | {} | {verdicts} |", Failure::new(cause).class())
            .expect("a string takes everything");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn statuses_are_a_matter_of_the_policy() {
    for rules in preset::all() {
        let retried: Vec<_> =
            (300..600).filter(|&code| classify(&answered(code), rules.statuses) == RETRYABLE).collect();
        assert_eq!(retried, rules.statuses.codes().collect::<Vec<_>>(), "{}", rules.name);
    }
    // 500 by policy.
    let cautious = StatusSet::of(&[408, 429, 502, 503, 504, 529]);
    assert_eq!(classify(&answered(500), cautious), PERMANENT);
    assert_eq!(under_gglib(&answered(500)), RETRYABLE);
}

#[test]
fn c89_a_hint_says_when_and_never_whether() {
    let hint = Some(secs(7.0));
    for (code, expected) in [
        (200, PERMANENT),
        (301, PERMANENT),
        (404, PERMANENT),
        (429, Verdict::Retryable { hint }),
        (503, Verdict::Retryable { hint }),
    ] {
        assert_eq!(under_gglib(&Failure { hint, ..answered(code) }), expected, "{code}");
    }
}

#[test]
fn c91_only_true_and_false_are_advice() {
    for (value, advice) in [
        ("true", Some(Advice::Retry)),
        ("false", Some(Advice::GiveUp)),
        ("TRUE", None),
        ("True", None),
        ("1", None),
        ("0", None),
        ("", None),
        ("false, true", None),
    ] {
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-should-retry"),
            HeaderValue::from_static(value),
        )]);
        assert_eq!(Advice::parse(&headers), advice, "{value:?}");
    }
    assert_eq!(Advice::parse(&HeaderMap::new()), None);
}

#[test]
fn c91_advice_wins_over_status_code_and_idempotency() {
    for code in [400, 401, 404, 409, 422, 429, 500, 503, 529] {
        for failure in [answered(code), Failure { code: Some("insufficient_quota"), ..answered(code) }] {
            let advised = |advice| under_gglib(&Failure { advice: Some(advice), ..failure });
            assert_eq!(advised(Advice::Retry), RETRYABLE, "{code}");
            assert_eq!(advised(Advice::GiveUp), PERMANENT, "{code}");
        }
    }
    let unsafe_to_repeat = Failure { request: Repeatability::NotIdempotent, ..answered(500) };
    assert_eq!(under_gglib(&Failure { advice: Some(Advice::Retry), ..unsafe_to_repeat }), RETRYABLE);
}

#[test]
fn c92_c123_a_body_that_is_gone_beats_advice() {
    for advice in [None, Some(Advice::Retry)] {
        for cause in [Cause::Status(status(503)), Cause::Transport(Phase::Connect)] {
            let failure = Failure { request: Repeatability::BodyGone, advice, ..Failure::new(cause) };
            assert_eq!(under_gglib(&failure), PERMANENT, "{failure:?}");
        }
    }
}

#[test]
fn c122_work_that_may_have_been_done_is_repeated_on_condition_only() {
    for (cause, expected) in [
        (Cause::Transport(Phase::Connect), RETRYABLE),
        (Cause::Transport(Phase::BeforeHeaders), CONDITIONAL),
        (Cause::Transport(Phase::MidBody), CONDITIONAL),
        (Cause::Timeout(Phase::Connect), RETRYABLE),
        (Cause::Timeout(Phase::BeforeHeaders), CONDITIONAL),
        (Cause::Malformed, CONDITIONAL),
        (Cause::Status(status(429)), RETRYABLE),
        (Cause::Status(status(503)), RETRYABLE),
        (Cause::Status(status(500)), CONDITIONAL),
        (Cause::Status(status(504)), CONDITIONAL),
    ] {
        assert_eq!(under_gglib(&Failure::new(cause)), expected, "{cause:?}");
        assert_eq!(under_gglib(&idempotent(cause)), RETRYABLE, "{cause:?}");
    }
}

#[test]
fn c124_c125_a_stream_is_repeated_until_its_first_content() {
    for phase in [Phase::AfterHeaders, Phase::MidBody] {
        let before = idempotent(Cause::Transport(phase));
        assert_eq!(under_gglib(&before), RETRYABLE, "{phase:?}");
        for advice in [None, Some(Advice::Retry)] {
            let after = Failure { window: IdempotencyWindow::Closed, advice, ..before };
            assert_eq!(under_gglib(&after), Verdict::Permanent(GiveUpReason::StreamCommitted), "{phase:?}");
        }
    }
}

#[test]
fn c131_only_the_code_counts_and_only_whole() {
    // A code is compared, not searched.
    for code in ["429", "error 429: rate_limit_exceeded", "rate_limit_exceeded", "not_insufficient_quota"] {
        assert_eq!(under_gglib(&Failure { code: Some(code), ..answered(400) }), PERMANENT, "{code}");
        assert_eq!(under_gglib(&Failure { code: Some(code), ..answered(503) }), RETRYABLE, "{code}");
    }
}

#[test]
fn c133_408_is_retried_and_409_only_on_advice() {
    assert_eq!(under_gglib(&answered(408)), RETRYABLE);
    assert_eq!(under_gglib(&answered(409)), PERMANENT);
    assert_eq!(under_gglib(&Failure { advice: Some(Advice::Retry), ..answered(409) }), RETRYABLE);
    // One preset has its own view of it.
    assert_eq!(classify(&answered(409), preset::openai_sdk().statuses), RETRYABLE);
}

/// Some servers answer 500 to a prompt that is too long, and 429 to an account without credit.
#[test]
fn a_code_tells_what_its_status_does_not() {
    for code in [
        "context_length_exceeded",
        "model_not_found",
        "invalid_api_key",
        "insufficient_quota",
        "billing_not_active",
    ] {
        for answer in [429, 500, 503] {
            let failure = Failure { code: Some(code), hint: Some(secs(1.0)), ..answered(answer) };
            assert_eq!(under_gglib(&failure), PERMANENT, "{code} with {answer}");
        }
    }
    for code in ["queue_full", "rate_limit_exceeded", "model_loading", "overloaded_error"] {
        assert_eq!(under_gglib(&Failure { code: Some(code), ..answered(503) }), RETRYABLE, "{code}");
    }
}

#[test]
fn in_a_stream_a_code_of_ours_says_whether_recoveries_are_spent() {
    let retried = |cause: fn(StatusCode) -> Cause| -> Vec<&str> {
        ErrorCode::ALL
            .iter()
            .filter(|code| {
                let failure = Failure { code: Some(code.as_str()), ..idempotent(cause(code.status())) };
                under_gglib(&failure) == RETRYABLE
            })
            .map(|code| code.as_str())
            .collect()
    };
    let in_events = [
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
    ];
    assert_eq!(retried(Cause::Event), in_events);
    // A response has a header for it, which is looked at before.
    let in_responses = retried(Cause::Status);
    assert!(in_responses.contains(&"upstream_died") && in_responses.contains(&"timeout_total"));
    assert!(in_events.iter().all(|code| in_responses.contains(code)));
}

#[test]
fn classes_have_names() {
    assert_eq!(
        Class::ALL.map(|class| class.to_string()),
        ["rate_limited", "overloaded", "server_error", "timeout", "transport", "rejected"]
    );
}

proptest! {
    /// Whatever else is known: closed windows and lost bodies are final, advice decides next, and a hint is
    /// passed on untouched.
    #[test]
    fn the_rows_apply_in_order(
        code in prop::option::of(prop::sample::select(vec!["insufficient_quota", "upstream_died", "", "queue_full"])),
        advice in prop::option::of(prop::sample::select(vec![Advice::Retry, Advice::GiveUp])),
        hint in prop::option::of(super::any_duration()),
        window in prop::sample::select(vec![IdempotencyWindow::Open, IdempotencyWindow::Closed]),
        request in prop::sample::select(
            vec![Repeatability::Idempotent, Repeatability::NotIdempotent, Repeatability::BodyGone]
        ),
        code_of_status in 100..1000_u16,
        place in 0..4_usize,
        kind in 0..5_u8,
    ) {
        let cause = match kind {
            0 => Cause::Transport(PHASES[place]),
            1 => Cause::Timeout(PHASES[place]),
            2 => Cause::Status(status(code_of_status)),
            3 => Cause::Event(status(code_of_status)),
            _ => Cause::Malformed,
        };
        let failure = Failure { cause, code, advice, hint, window, request };
        let verdict = under_gglib(&failure);
        match verdict {
            Verdict::Retryable { hint: passed } => {
                prop_assert_eq!(passed, hint);
                prop_assert_eq!(window, IdempotencyWindow::Open);
                prop_assert!(request != Repeatability::BodyGone && advice != Some(Advice::GiveUp));
            }
            Verdict::Conditional { hint: passed } => {
                prop_assert_eq!(passed, hint);
                prop_assert_eq!((window, request), (IdempotencyWindow::Open, Repeatability::NotIdempotent));
                prop_assert_eq!(advice, None);
            }
            Verdict::Permanent(reason) => {
                prop_assert_eq!(reason == GiveUpReason::StreamCommitted, window == IdempotencyWindow::Closed);
            }
        }
        // Repeating what is safer to repeat is never less allowed.
        if verdict == (Verdict::Retryable { hint }) {
            let safer = Failure { request: Repeatability::Idempotent, ..failure };
            prop_assert_eq!(under_gglib(&safer), verdict);
        }
    }
}
