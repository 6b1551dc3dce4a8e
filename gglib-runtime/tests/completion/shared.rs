//! What the calls of one client have in common: the budget and the breaker of the upstream.

use std::time::Duration;

use gglib_core::retry::{BreakerState, GiveUpReason, RetryEvent, RetryPolicy};
use gglib_runtime::completion::{CompletionClient, CompletionError};
use tokio::time::{Instant, sleep, timeout};

use crate::script::{BODY, Reply, Scripted, client, client_by, hello, read, whole};

fn failing() -> Reply {
    Reply::error(503, "model_loading")
}

async fn error_of(client: &CompletionClient) -> CompletionError {
    client.complete(BODY.into()).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn attempts_are_numbered_from_one_in_each_call() {
    let upstream = Scripted::new([failing(), failing(), whole(), failing(), whole()]);
    let (client, _) = client(&upstream);
    assert_eq!(read(&client).await.0, hello());
    assert_eq!(read(&client).await.0, hello());
    assert_eq!(upstream.numbers(), ["1", "2", "3", "1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_call_has_no_retries_while_those_of_the_first_use_up_the_budget() {
    let upstream = Scripted::new([failing()]);
    let (client, told) = client(&upstream);
    assert!(matches!(error_of(&client).await, CompletionError::GaveUp { attempts: 4, .. }));
    // Clones share.
    let error = error_of(&client.clone()).await;
    let CompletionError::GaveUp { reason, attempts, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*reason, *attempts), (GiveUpReason::BudgetExhausted, 1));
    assert_eq!(
        error.to_string(),
        "gave up after 1 attempt in 0.0 s (budget exhausted): 503 model_loading: it is so"
    );
    assert_eq!(told.names()[8..], ["attempt", "budget_exceeded", "exhausted"]);
    let RetryEvent::BudgetExceeded { percent: 10, usage, .. } = told.events()[9] else { panic!() };
    assert_eq!((usage.originals, usage.retries, usage.available), (2, 3, 0));
    assert_eq!(upstream.attempts(), 5);

    // After the window all is forgotten.
    sleep(Duration::from_secs(11)).await;
    let upstream_before = upstream.attempts();
    assert!(matches!(error_of(&client).await, CompletionError::GaveUp { attempts: 4, .. }));
    assert_eq!(upstream.attempts() - upstream_before, 4);
}

#[tokio::test(start_paused = true)]
async fn three_failed_calls_open_the_breaker_and_a_good_probe_closes_it() {
    let upstream = Scripted::new([failing(), failing(), failing(), whole()]);
    let (client, told) = client_by(&upstream, RetryPolicy::disabled());
    for _ in 0..3 {
        let error = error_of(&client).await;
        assert!(
            matches!(error, CompletionError::GaveUp { reason: GiveUpReason::AttemptsExhausted, .. }),
            "what the call met is what it says: {error:?}"
        );
    }
    let opened = told.events().pop();
    assert!(matches!(opened, Some(RetryEvent::BreakerChanged { to: BreakerState::Open, .. })), "{opened:?}");

    sleep(Duration::from_millis(17_500)).await;
    let (error, start) = (error_of(&client.clone()).await, Instant::now());
    let CompletionError::CircuitOpen { upstream: ref name, retry_after } = error else { panic!("{error:?}") };
    assert_eq!((&**name, retry_after), ("scripted", Duration::from_millis(42_500)));
    assert_eq!(
        error.to_string(),
        "not sent: scripted has failed too often in a row; try again in 42.5 s (circuit open)"
    );
    assert_eq!((upstream.attempts(), start.elapsed()), (3, Duration::ZERO));
    assert_eq!(told.names().last(), Some(&"exhausted"));

    sleep(retry_after).await;
    assert_eq!(read(&client).await.0, hello());
    assert_eq!(
        told.names()[told.names().len() - 4..],
        ["breaker_changed", "attempt", "success", "breaker_changed"]
    );
    // Closed: a further call is no probe.
    assert_eq!(read(&client).await.0, hello());
    assert_eq!(upstream.attempts(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_bad_probe_is_one_attempt_and_opens_the_breaker_again() {
    let upstream = Scripted::new([failing()]);
    let (client, _) = client(&upstream);
    for _ in 0..3 {
        error_of(&client).await;
    }
    let before = upstream.attempts();
    sleep(Duration::from_secs(60)).await;
    let error = error_of(&client).await;
    let CompletionError::GaveUp { reason: GiveUpReason::CircuitOpen, attempts: 1, retry_after, .. } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(retry_after, Some(Duration::from_secs(60)));
    assert!(matches!(error_of(&client).await, CompletionError::CircuitOpen { .. }));
    assert_eq!(upstream.attempts() - before, 1);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_merely_busy_or_refuses_opens_nothing() {
    for reply in [
        failing().header("retry-after", "1"),
        Reply::error(429, "queue_full"),
        Reply::error(400, "invalid_request"),
    ] {
        let upstream = Scripted::new([reply]);
        let (client, _) = client_by(&upstream, RetryPolicy::disabled());
        for _ in 0..5 {
            error_of(&client).await;
        }
        assert_eq!(upstream.attempts(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_gives_its_retry_back_and_says_nothing_about_the_upstream() {
    let upstream = Scripted::new([failing()]);
    let (client, told) = client(&upstream);
    for _ in 0..5 {
        timeout(Duration::from_millis(100), client.complete(BODY.into())).await.unwrap_err();
    }
    assert_eq!(told.names()[..3], ["attempt", "retry", "cancelled"]);
    assert_eq!((told.names().len(), upstream.attempts()), (15, 5));
    // All three retries that the budget has are left, and the breaker is closed.
    let error = error_of(&client).await;
    assert!(
        matches!(error, CompletionError::GaveUp { reason: GiveUpReason::AttemptsExhausted, attempts: 4, .. }),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_probe_leaves_its_place_to_the_next_call() {
    let slow = whole().after(Duration::from_secs(5));
    let upstream = Scripted::new([failing(), failing(), failing(), slow, whole()]);
    let (client, _) = client_by(&upstream, RetryPolicy::disabled());
    for _ in 0..3 {
        error_of(&client).await;
    }
    sleep(Duration::from_secs(60)).await;
    timeout(Duration::from_secs(1), client.stream(BODY.into())).await.unwrap_err();
    assert_eq!(read(&client).await.0, hello());
    assert_eq!(upstream.attempts(), 5);
}
