//! Plain answers: handed on whole, so that everything before that is inside the window.

use std::time::Duration;

use gglib_core::ports::Phase;
use gglib_core::retry::RetryPolicy;
use gglib_runtime::completion::CompletionError;
use tokio::time::Instant;

use crate::script::{BODY, Piece, Reply, Scripted, client, client_by, error};

const ANSWER: &str = r#"{"object":"chat.completion","choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}], "n":1e400}"#;

fn whole() -> Reply {
    let (half, rest) = ANSWER.split_at(40);
    Reply::status(200).header("content-type", "application/json").body(half).body(rest)
}

#[tokio::test(start_paused = true)]
async fn an_answer_comes_byte_for_byte() {
    let upstream = Scripted::new([whole()]);
    assert_eq!(client(&upstream).0.complete(BODY.into()).await.unwrap(), ANSWER);
    assert_eq!(upstream.body().as_bytes(), BODY);
    let upstream = Scripted::new([whole()]);
    client(&upstream).0.complete(r#"{"stream":true}"#.into()).await.unwrap();
    assert_eq!(upstream.body(), r#"{"stream":false}"#);
}

#[tokio::test(start_paused = true)]
async fn every_failure_before_the_last_byte_is_retried() {
    for failure in [
        whole().piece(Piece::Broken(Phase::MidBody)),
        Reply::status(200).piece(Piece::Broken(Phase::AfterHeaders)),
        Reply::status(200).body(&ANSWER[..40]),
        Reply::status(200).body("<html>"),
        Reply::status(200).body(&error("draining")),
    ] {
        let upstream = Scripted::new([failure, whole()]);
        let (client, told) = client(&upstream);
        assert_eq!(client.complete(BODY.into()).await.unwrap(), ANSWER);
        assert_eq!(upstream.attempts(), 2);
        assert_eq!(told.notices()[1], "recovered in 2 attempts, having waited 500ms");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_a_success_is_an_error() {
    let upstream = Scripted::new([Reply::status(200).body(&error("model_not_found"))]);
    let error = client(&upstream).0.complete(BODY.into()).await.unwrap_err();
    assert_eq!(error.to_string(), "rejected: 404 model_not_found: it is so");
}

#[tokio::test(start_paused = true)]
async fn silence_is_allowed_for_as_long_as_the_attempt() {
    let slow = |minutes: u64| {
        let half = Duration::from_secs(30 * minutes);
        Reply::status(200).piece(Piece::Quiet(half)).body(ANSWER).after(half)
    };
    let upstream = Scripted::new([slow(44)]);
    assert_eq!(client(&upstream).0.complete(BODY.into()).await.unwrap(), ANSWER);

    let upstream = Scripted::new([slow(46)]);
    let start = Instant::now();
    let error = client_by(&upstream, RetryPolicy::disabled()).0.complete(BODY.into()).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(45 * 60));
    let CompletionError::GaveUp { last, .. } = error else { panic!("{error:?}") };
    assert_eq!(last.to_string(), "504 timeout_total: the attempt was not over after 2700 s");
}
