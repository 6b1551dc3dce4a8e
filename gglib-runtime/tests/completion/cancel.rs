//! Dropping a call, or its stream, ends it.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::script::{BODY, Piece, Reply, Scripted, client, text};

/// Longer than every delay and deadline.
const LATER: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn while_it_sleeps() {
    let upstream = Scripted::new([Reply::error(503, "model_loading")]);
    let (client, told) = client(&upstream);
    timeout(Duration::from_millis(499), client.complete(BODY.into())).await.unwrap_err();
    sleep(LATER).await;
    assert_eq!((upstream.attempts(), upstream.in_flight()), (1, 0));
    assert_eq!(told.notices().len(), 1, "giving up is something else");
}

#[tokio::test(start_paused = true)]
async fn during_an_attempt() {
    let upstream = Scripted::new([Reply::status(200).after(LATER)]);
    let (client, told) = client(&upstream);
    {
        let mut call = Box::pin(client.complete(BODY.into()));
        timeout(Duration::from_secs(1), &mut call).await.unwrap_err();
        assert_eq!((upstream.attempts(), upstream.in_flight()), (1, 1));
    }
    assert_eq!(upstream.in_flight(), 0);
    sleep(2 * LATER).await;
    assert_eq!((upstream.attempts(), told.notices().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn in_the_middle_of_a_stream() {
    let upstream = Scripted::new([Reply::stream([text("Hel"), Piece::Hanging])]);
    let mut deltas = client(&upstream).0.stream(BODY.into()).await.unwrap();
    deltas.next().await.unwrap().unwrap();
    assert_eq!(upstream.in_flight(), 1);
    drop(deltas);
    assert_eq!((upstream.attempts(), upstream.in_flight()), (1, 0));
}
