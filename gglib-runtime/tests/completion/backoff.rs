//! How often, how long between, and what is said about it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use gglib_core::ports::BoxFuture;
use gglib_core::retry::{GiveUpReason, Jitter, RetryPolicy};
use gglib_runtime::completion::{CompletionError, Pause};
use tokio::time::{Instant, sleep};

use crate::script::{BODY, Reply, Scripted, client, client_by, error, event, hello, read, whole};

const LOADING: &str = "503 model_loading: it is so";

#[tokio::test(start_paused = true)]
async fn delays_double_and_the_last_failure_is_reported() {
    let upstream = Scripted::new([Reply::error(503, "model_loading")]);
    let (client, told) = client(&upstream);
    let start = Instant::now();
    let error = client.complete(BODY.into()).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_millis(3_500));
    assert_eq!(upstream.attempts(), 4);
    assert_eq!(
        error.to_string(),
        format!("gave up after 4 attempts in 3.5 s (attempts exhausted): {LOADING}")
    );
    assert_eq!(
        told.notices(),
        [
            format!("attempt 1 of 4 failed, waiting 500ms: {LOADING}"),
            format!("attempt 2 of 4 failed, waiting 1s: {LOADING}"),
            format!("attempt 3 of 4 failed, waiting 2s: {LOADING}"),
            format!("gave up after 4 attempts and 3.5s, attempts exhausted: {LOADING}"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_success_after_failures_says_what_it_took() {
    let upstream = Scripted::new([Reply::fails(), Reply::error(429, "queue_full"), whole()]);
    let (client, told) = client(&upstream);
    let (pieces, error) = read(&client).await;
    assert_eq!((pieces, error.map(|error| error.to_string())), (hello(), None));
    assert_eq!(
        told.notices(),
        [
            "attempt 1 of 4 failed, waiting 500ms: the upstream closed the connection before it answered",
            "attempt 2 of 4 failed, waiting 1s: 429 queue_full: it is so",
            "recovered in 3 attempts, having waited 1.5s",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_success_at_once_is_not_worth_a_notice() {
    let upstream = Scripted::new([whole()]);
    let (client, told) = client(&upstream);
    let start = Instant::now();
    assert_eq!(read(&client).await.0, hello());
    assert_eq!((told.notices().len(), start.elapsed()), (0, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_a_floor_up_to_the_longest_delay() {
    let busy = || Reply::error(503, "model_loading");
    let inside = r#"{"error":{"message":"","type":"server_error","code":"draining","metadata":{"retry_after_ms":2300}}}"#;
    for (reply, delay) in [
        (busy().header("retry-after", "5"), Duration::from_millis(5_500)),
        (busy().header("retry-after", "5").header("retry-after-ms", "1200"), Duration::from_millis(1_700)),
        (busy().header("retry-after", "600"), Duration::from_millis(15_500)),
        (busy().header("retry-after", "soon"), Duration::from_millis(500)),
        // Dates are compared with the wall clock: one is past, one far ahead.
        (busy().header("retry-after", "Fri, 29 Sep 2023 16:26:57 GMT"), Duration::from_millis(500)),
        (busy().header("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT"), Duration::from_millis(15_500)),
        (Reply::status(503).body(inside), Duration::from_millis(2_800)),
        (Reply::stream([event(inside)]), Duration::from_millis(2_800)),
    ] {
        let upstream = Scripted::new([reply, whole()]);
        let start = Instant::now();
        assert_eq!(read(&client(&upstream).0).await.0, hello());
        assert_eq!(start.elapsed(), delay);
    }
}

#[tokio::test(start_paused = true)]
async fn the_disabled_policy_makes_one_attempt() {
    let upstream = Scripted::new([Reply::error(503, "model_loading").header("retry-after", "1")]);
    let (client, told) = client_by(&upstream, RetryPolicy::disabled());
    let start = Instant::now();
    let (_, error) = read(&client).await;
    let text = error.unwrap().to_string();
    assert_eq!(text, format!("gave up after 1 attempt in 0.0 s (attempts exhausted): {LOADING}"));
    assert_eq!((upstream.attempts(), start.elapsed()), (1, Duration::ZERO));
    assert_eq!(told.notices().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_no_giving_up() {
    for status in [400, 401, 403, 404, 409, 413, 422, 501] {
        let upstream = Scripted::new([Reply::error(status, "no_such").header("retry-after", "1")]);
        let (client, told) = client(&upstream);
        let (_, error) = read(&client).await;
        assert_eq!(error.unwrap().to_string(), format!("rejected: {status} no_such: it is so"));
        assert_eq!((upstream.attempts(), told.notices().len()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_servers_advice_wins_over_the_status() {
    for (status, advice, attempts) in [
        (400, "true", 4),
        (404, "true", 4),
        (503, "false", 1),
        (429, "false", 1),
        (400, "TRUE", 1),
        (503, "False", 4),
        (503, "0", 4),
        (503, "", 4),
    ] {
        let upstream = Scripted::new([Reply::error(status, "x").header("x-should-retry", advice)]);
        let error = client(&upstream).0.complete(BODY.into()).await.unwrap_err();
        assert_eq!(upstream.attempts(), attempts, "{status} {advice}");
        assert_eq!(matches!(error, CompletionError::GaveUp { .. }), attempts == 4, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_attempts_counts_against_the_deadline() {
    let slow = Reply::error(503, "wait_stalled").after(Duration::from_secs(25));
    let upstream = Scripted::new([slow]);
    let (client, told) = client(&upstream);
    let error = client.complete(BODY.into()).await.unwrap_err();
    // 25 s, 0.5 s, 25 s, 1 s, 25 s; the third failure comes after the deadline.
    assert_eq!(
        error.to_string(),
        "gave up after 3 attempts in 76.5 s (deadline exceeded): 503 wait_stalled: it is so"
    );
    assert_eq!((upstream.attempts(), told.notices().len()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_does_not_fit_is_not_begun() {
    let slow = Reply::error(503, "draining").header("retry-after", "10").after(Duration::from_secs(50));
    let upstream = Scripted::new([slow]);
    let start = Instant::now();
    let error = client(&upstream).0.complete(BODY.into()).await.unwrap_err();
    assert!(matches!(
        error,
        CompletionError::GaveUp { reason: GiveUpReason::DeadlineExceeded, attempts: 1, .. }
    ));
    assert_eq!(start.elapsed(), Duration::from_secs(50));
}

/// A machine that is suspended during every pause.
struct Suspended;

impl Pause for Suspended {
    fn pause(&self, _: Duration) -> BoxFuture<'_, ()> {
        Box::pin(sleep(Duration::from_secs(7_200)))
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_looked_at_again_after_a_pause() {
    let upstream = Scripted::new([Reply::error(503, "model_loading")]);
    let (client, told) = client(&upstream);
    let error = client.with_pause(Arc::new(Suspended)).complete(BODY.into()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("gave up after 1 attempt in 7200.0 s (deadline exceeded): {LOADING}")
    );
    assert_eq!(upstream.attempts(), 1);
    assert_eq!(
        told.notices()[1],
        format!("gave up after 1 attempts and 7200s, deadline exceeded: {LOADING}")
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_a_long_pause_is_nothing() {
    let upstream = Scripted::new([Reply::error(503, "model_loading"), whole()]);
    let policy = RetryPolicy { total_deadline: Duration::MAX, ..RetryPolicy::default() };
    let client = client_by(&upstream, policy).0.with_pause(Arc::new(Suspended));
    assert_eq!(read(&client).await.0, hello());
}

#[tokio::test(start_paused = true)]
async fn decorrelated_delays_grow_from_the_one_before() {
    let upstream = Scripted::new([Reply::fails()]);
    let policy = RetryPolicy { jitter: Jitter::Decorrelated, ..RetryPolicy::default() };
    let (client, told) = client_by(&upstream, policy);
    client.complete(BODY.into()).await.unwrap_err();
    let delays: Vec<_> = told
        .notices()
        .iter()
        .filter_map(|notice| Some(notice.split_once("waiting ")?.1.split_once(':')?.0.to_owned()))
        .collect();
    // Halfway from 1 s to three times the delay before.
    assert_eq!(delays, ["2s", "3.5s", "5.75s"]);
}

#[tokio::test(start_paused = true)]
async fn a_transport_failure_keeps_its_cause() {
    let upstream = Scripted::new([Reply::fails()]);
    let error = client(&upstream).0.complete(BODY.into()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "gave up after 4 attempts in 3.5 s (attempts exhausted): \
         the upstream closed the connection before it answered"
    );
    assert_eq!(error.source().unwrap().to_string(), "connection reset");
}

#[tokio::test(start_paused = true)]
async fn the_status_counts_even_when_its_body_does_not_come() {
    for (status, attempts) in [(401, 1), (503, 4)] {
        let broken = crate::script::Piece::Broken(gglib_core::ports::Phase::MidBody);
        let upstream = Scripted::new([Reply::status(status).body(&error("x")[..9]).piece(broken)]);
        client(&upstream).0.complete(BODY.into()).await.unwrap_err();
        assert_eq!(upstream.attempts(), attempts, "{status}");
    }
}
