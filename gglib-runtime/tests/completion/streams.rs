//! Streams: their pieces, their clocks and their ends.

use std::time::Duration;

use gglib_core::ports::Phase;
use gglib_core::retry::RetryPolicy;
use gglib_runtime::completion::{CompletionError, Delta, Timeouts, Usage};
use tokio::time::Instant;

use crate::script::{
    Piece, Reply, Scripted, client, client_by, error, event, finish, hello, read, text, whole,
};

const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#;

#[tokio::test(start_paused = true)]
async fn pieces_come_as_they_were_sent_however_they_were_cut() {
    let sent = [text("Hé"), text("llo"), finish(), event(USAGE), event("[DONE]")];
    let bytes: String = sent
        .iter()
        .filter_map(|piece| if let Piece::Bytes(bytes) = piece { Some(&**bytes) } else { None })
        .collect();
    let single = bytes.chars().map(|character| Piece::Bytes(character.into())).collect();
    for pieces in [sent.to_vec(), vec![Piece::Bytes(bytes)], single] {
        let upstream = Scripted::new([Reply::stream(pieces)]);
        let (pieces, error) = read(&client(&upstream).0).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(
            pieces,
            [
                Delta::Text("Hé".into()),
                Delta::Text("llo".into()),
                Delta::Finish("stop".into()),
                Delta::Usage(Usage { prompt_tokens: 7, completion_tokens: 2 }),
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_answer_is_whole_however_its_connection_ends() {
    for end in [
        vec![],
        vec![event("[DONE]")],
        // The server keeps the connection open.
        vec![event("[DONE]"), Piece::Hanging],
        vec![Piece::Hanging],
        vec![Piece::Broken(Phase::MidBody)],
    ] {
        let upstream = Scripted::new([Reply::stream([vec![text("Hello"), finish()], end].concat())]);
        let (pieces, error) = read(&client(&upstream).0).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(pieces, hello());
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_after_the_finish_is_an_error() {
    let upstream = Scripted::new([Reply::stream([text("Hello"), finish(), event(&error("internal"))])]);
    let (pieces, error) = read(&client(&upstream).0).await;
    assert_eq!(pieces, hello());
    assert_eq!(error.unwrap().to_string(), "the answer broke off: 500 internal: it is so");
}

#[tokio::test(start_paused = true)]
async fn comments_are_signs_of_life() {
    let comment = [Piece::Quiet(Duration::from_secs(15)), Piece::Bytes(": keep-alive\n\n".into())];
    let waiting = std::iter::repeat_n(comment, 40).flatten();
    let upstream = Scripted::new([Reply::stream(waiting.chain([text("Hello"), finish()]))]);
    let start = Instant::now();
    assert_eq!(read(&client(&upstream).0).await.0, hello());
    assert_eq!(start.elapsed(), Duration::from_secs(600));
    assert_eq!(upstream.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_an_attempt() {
    let patient = RetryPolicy { total_deadline: Duration::MAX, ..RetryPolicy::default() };
    let quiet = || Reply::stream([Piece::Quiet(Duration::from_secs(61)), text("too late")]);
    for (reply, cause) in [
        (quiet(), "504 timeout_first_content: the upstream sent no byte for 60 s"),
        (
            whole().after(Duration::from_secs(61)),
            "504 timeout_response_headers: the upstream sent no response head for 60 s",
        ),
    ] {
        let upstream = Scripted::new([reply, whole()]);
        let (client, told) = client_by(&upstream, patient);
        let start = Instant::now();
        assert_eq!(read(&client).await.0, hello());
        assert_eq!(start.elapsed(), Duration::from_millis(60_500));
        assert_eq!(told.notices()[0], format!("attempt 1 of 4 failed, waiting 500ms: {cause}"));
    }

    let upstream = Scripted::new([Reply::stream([text("Hel"), Piece::Hanging])]);
    let (_, error) = read(&client(&upstream).0).await;
    let expected = "the answer broke off: 504 timeout_idle: the upstream sent no byte for 60 s";
    assert_eq!(error.unwrap().to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_has_an_end_even_if_it_never_falls_silent() {
    let word = [Piece::Quiet(Duration::from_secs(40)), text("on and ")];
    let upstream = Scripted::new([Reply::stream(std::iter::repeat_n(word, 10).flatten())]);
    let timeouts = Timeouts { attempt: Duration::from_secs(100), ..Timeouts::default() };
    let start = Instant::now();
    let (pieces, error) = read(&client(&upstream).0.with_timeouts(timeouts)).await;
    assert_eq!((pieces.len(), start.elapsed()), (2, Duration::from_secs(100)));
    let expected = "the answer broke off: 504 timeout_total: the attempt was not over after 100 s";
    assert_eq!(error.unwrap().to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_stream_is_told_from_an_error() {
    let json = |body: &str| Reply::status(200).header("content-type", "application/json").body(body);
    for (reply, expected, attempts) in [
        (
            json(r#"{"choices":[]}"#),
            "gave up after 4 attempts in 3.5 s (attempts exhausted): \
             502 upstream_malformed: the upstream answered with application/json instead of a stream",
            4,
        ),
        (json(&error("model_not_found")), "rejected: 404 model_not_found: it is so", 1),
        (
            Reply::status(308).header("location", "https://example.org/v1"),
            "rejected: 308 upstream_error: the upstream redirects to https://example.org/v1; use that as the base URL",
            1,
        ),
    ] {
        let upstream = Scripted::new([reply]);
        let (_, error) = read(&client(&upstream).0).await;
        assert_eq!(error.unwrap().to_string(), expected);
        assert_eq!(upstream.attempts(), attempts);
    }
    // Some servers do not say what they send.
    let upstream = Scripted::new([Reply::status(200).piece(text("Hello")).piece(finish())]);
    assert_eq!(read(&client(&upstream).0).await.0, hello());
}

#[tokio::test(start_paused = true)]
async fn the_request_asks_for_a_stream_and_is_otherwise_left_alone() {
    for (body, sent) in [
        (r#"{"a": 1e400}"#, r#"{"a": 1e400,"stream":true}"#),
        (r#"{"stream":false, "n":1}"#, r#"{"stream":true, "n":1}"#),
        (r#"{"stream": true}"#, r#"{"stream": true}"#),
    ] {
        let upstream = Scripted::new([whole()]);
        client(&upstream).0.stream(body.into()).await.unwrap();
        assert_eq!(upstream.body(), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_sent_is_not_sent() {
    for (body, expected) in [
        (&b"[]"[..], "rejected: 400 invalid_json: the body is an array; send one JSON object"),
        (br#"{"stream":1}"#, "rejected: 400 invalid_request: `stream` must be a boolean, not 1"),
        (
            br#"{"n":2}"#,
            "rejected: 400 invalid_request: `n` must be 1 in a stream; several answers come as a plain one",
        ),
    ] {
        let upstream = Scripted::new([whole()]);
        let error = client(&upstream).0.stream(body.into()).await.unwrap_err();
        assert!(matches!(error, CompletionError::Rejected(_)));
        assert_eq!(error.to_string(), expected);
        assert_eq!(upstream.attempts(), 0);
    }
}
