//! The idempotency window: what closes it, and what happens on either side.

use gglib_core::api::error::{Code, ErrorCode};
use gglib_core::ports::Phase;
use gglib_runtime::completion::{CompletionError, Delta, Failure};

use crate::script::{Piece, Reply, Scripted, chunk, client, error, event, finish, hello, read, text, whole};

/// What a server may say without having said anything.
fn preliminaries() -> Vec<Piece> {
    vec![
        Piece::Bytes(": keep-alive\n\n".into()),
        chunk(r#"{"role":"assistant","content":null}"#),
        chunk(r#"{"content":"","reasoning_content":"","tool_calls":[]}"#),
        event(r#"{"choices":[],"prompt_progress":{"total":9,"cache":0,"processed":3,"time_ms":1}}"#),
        event(r#"{"choices":[],"usage":{"prompt_tokens":9}}"#),
    ]
}

/// How a stream can fail, and what is said of it.
fn failures() -> Vec<(Vec<Piece>, &'static str)> {
    vec![
        (vec![Piece::Broken(Phase::MidBody)], "the upstream broke off in the middle of its answer"),
        (
            vec![],
            "502 upstream_incomplete: the upstream's answer ended without a finish_reason for 1 of 1 choices",
        ),
        (
            vec![event("[DONE]")],
            "502 upstream_incomplete: the upstream's answer ended without a finish_reason for 1 of 1 choices",
        ),
        (vec![event(&error("queue_full"))], "429 queue_full: it is so"),
        (vec![event(&error("wait_stalled"))], "503 wait_stalled: it is so"),
        (
            vec![event(r#"{"error":{"message":"slot","code":500,"type":"server_error"}}"#)],
            "500 upstream_error: slot",
        ),
        (
            vec![Piece::Quiet(std::time::Duration::from_secs(30)), event(&error("draining"))],
            "503 draining: it is so",
        ),
        (vec![Piece::Hanging], "504 "),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_content_is_retried() {
    for (failure, _) in failures().into_iter().filter(|(failure, _)| !matches!(failure[..], [Piece::Hanging]))
    {
        let upstream = Scripted::new([Reply::stream([preliminaries(), failure].concat()), whole()]);
        let (client, told) = client(&upstream);
        let (pieces, error) = read(&client).await;
        assert!(error.is_none(), "{error:?}");
        // Nothing of the failed attempt is left: its usage neither.
        assert_eq!(pieces, hello());
        assert_eq!(upstream.attempts(), 2);
        assert_eq!(told.notices()[1], "recovered in 2 attempts, having waited 500ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_content_is_never_retried() {
    let contents = [
        (r#"{"content":"Hel"}"#, Delta::Text("Hel".into())),
        (r#"{"reasoning_content":"Hm"}"#, Delta::Reasoning("Hm".into())),
        (r#"{"refusal":"No"}"#, Delta::Refusal("No".into())),
        (r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#, call("{")),
    ];
    for (content, expected) in contents {
        for (failure, text) in failures() {
            let upstream = Scripted::new([Reply::stream([vec![chunk(content)], failure].concat()), whole()]);
            let (client, told) = client(&upstream);
            let (pieces, error) = read(&client).await;
            assert_eq!(pieces, std::slice::from_ref(&expected));
            let error = error.expect("a stream that failed says so");
            assert!(matches!(error, CompletionError::Broken(_)), "{error:?}");
            let expected = format!("the answer broke off: {text}");
            assert!(error.to_string().starts_with(&expected), "{error} is not {expected}");
            assert_eq!((upstream.attempts(), told.notices().len()), (1, 0));
        }
    }
}

fn call(arguments: &str) -> Delta {
    Delta::ToolCall(gglib_runtime::completion::ToolCallFragment {
        arguments: arguments.into(),
        ..Default::default()
    })
}

#[tokio::test(start_paused = true)]
async fn content_counts_from_the_moment_it_is_there() {
    // The failure is in the same bytes as the content.
    let (Piece::Bytes(content), Piece::Bytes(failure)) = (text("Hel"), event(&error("draining"))) else {
        unreachable!("events are bytes")
    };
    let upstream = Scripted::new([Reply::stream([Piece::Bytes(content + &failure)]), whole()]);
    let (pieces, error) = read(&client(&upstream).0).await;
    assert_eq!(pieces, [Delta::Text("Hel".into())]);
    assert!(matches!(error, Some(CompletionError::Broken(_))), "{error:?}");
    assert_eq!(upstream.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_event_that_says_it_is_final_is_believed() {
    for (code, status) in [("model_not_found", 404), ("upstream_died", 502), ("model_load_failed", 503)] {
        let upstream = Scripted::new([Reply::stream([event(&error(code))]), whole()]);
        let (client, told) = client(&upstream);
        let (_, error) = read(&client).await;
        let error = error.unwrap();
        assert_eq!(error.to_string(), format!("rejected: {status} {code}: it is so"));
        let CompletionError::Rejected(error) = error else { panic!("{error:?}") };
        assert_eq!(error.code.as_str(), code);
        assert_eq!((upstream.attempts(), told.notices().len()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_content_is_whole_when_it_is_finished() {
    let upstream = Scripted::new([Reply::stream([preliminaries(), vec![finish()]].concat())]);
    let (pieces, error) = read(&client(&upstream).0).await;
    assert!(error.is_none(), "{error:?}");
    assert!(matches!(pieces[..], [Delta::Usage(_), Delta::Finish(_)]), "{pieces:?}");
    assert_eq!(upstream.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_chunk_is_malformed() {
    for data in ["<html>", r#"{"choices":[{"delta":{"content":["a"]}}]}"#] {
        let upstream = Scripted::new([Reply::stream([event(data)])]);
        let (_, error) = read(&client(&upstream).0).await;
        let Some(CompletionError::GaveUp { last, attempts: 4, .. }) = error else { panic!("{error:?}") };
        let Failure::Verdict(error) = *last else { panic!("{last:?}") };
        assert_eq!(error.code, Code::Known(ErrorCode::UpstreamMalformed));
    }
}
