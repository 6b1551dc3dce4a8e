//! Mistakes that other clients have made, each with the right answer. Numbered as in the retry policy's own cases.

use std::time::Duration;

use gglib_core::retry::{GiveUpReason, RetryPolicy};
use gglib_runtime::completion::CompletionError;
use tokio::time::Instant;

use crate::script::{BODY, Piece, Reply, Scripted, client, client_by, hello, read, whole};

/// Configured is wired: the client asks the budget, and the rules it was given set the budget's size.
#[tokio::test(start_paused = true)]
async fn c105_the_budget_is_that_of_the_rules() {
    for max_attempts in [2, 4, 6] {
        let upstream = Scripted::new([Reply::error(503, "model_loading")]);
        let (client, _) = client_by(&upstream, RetryPolicy { max_attempts, ..RetryPolicy::default() });
        let reason_and_attempts = async || match client.complete(BODY.into()).await.unwrap_err() {
            CompletionError::GaveUp { reason, attempts, .. } => (reason, attempts),
            error => panic!("{error:?}"),
        };
        // Within the window of 10 s, whatever the delays: the clock stands still but for them.
        let first = reason_and_attempts().await;
        assert_eq!(first, (GiveUpReason::AttemptsExhausted, max_attempts));
        if max_attempts < 6 {
            assert_eq!(reason_and_attempts().await, (GiveUpReason::BudgetExhausted, 1));
        }
    }
}

/// A server that knows the key can tell a repetition from new work.
#[tokio::test(start_paused = true)]
async fn c127_the_attempts_of_a_call_share_a_key_that_no_other_call_has() {
    let upstream = Scripted::new([Reply::fails(), Reply::error(503, "draining"), whole(), whole()]);
    let (client, _) = client(&upstream);
    assert_eq!(read(&client).await.0, hello());
    assert_eq!(read(&client).await.0, hello());
    let keys = upstream.headers("idempotency-key");
    let [first, second, third, other] = &keys[..] else { panic!("{keys:?}") };
    assert!(first == second && second == third && first != other, "{keys:?}");
    assert_eq!(first.len(), "gglib-".len() + 32);
}

/// An error's body is read so far as errors are long, and no longer than it takes; its status counts anyway.
#[tokio::test(start_paused = true)]
async fn c132_a_long_error_is_not_read_to_its_end() {
    let piece = Piece::Bytes(" ".repeat(64 * 1024));
    for (status, attempts) in [(503, 4), (401, 1)] {
        let endless = (0..160).fold(Reply::status(status), |reply, _| reply.piece(piece.clone()));
        let upstream = Scripted::new([endless]);
        client(&upstream).0.complete(BODY.into()).await.unwrap_err();
        assert_eq!(upstream.attempts(), attempts);
        // Up to the first byte too many.
        assert_eq!(upstream.pieces(), 5 * attempts, "{status}");
    }

    // What a hanging one costs is 10 s, not the time of a whole attempt.
    let upstream = Scripted::new([Reply::status(401).piece(Piece::Hanging)]);
    let start = Instant::now();
    client(&upstream).0.complete(BODY.into()).await.unwrap_err();
    assert_eq!((upstream.attempts(), start.elapsed()), (1, Duration::from_secs(10)));
}
