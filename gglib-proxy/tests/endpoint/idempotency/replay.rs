//! Answers that grow beyond what is held of them, and readers that fall behind.

use gglib_core::ports::Liveness;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_grown_too_long_is_not_joined_any_more_but_goes_on() {
    let large = "x".repeat(64 << 10);
    let parts = (0..80).map(|_| content(&large));
    let steps = opening().into_iter().chain(parts).chain([Step::Wait(secs(30)), finish(), done()]).collect();
    let endpoint = serve([steps, slow()]);
    let mut first = sent(&endpoint, &keyed(STREAM)).await;
    let late = async {
        let refused = later(&endpoint, &keyed(STREAM)).await.answer().await;
        assert_eq!(refused.head.status, 409);
        let error = refused.error();
        assert_eq!(error["code"], "idempotency_key_in_use");
        assert!(error["message"].as_str().unwrap().contains("more than 4 MiB"), "{error}");
        assert_eq!(refused.head.header("x-should-retry"), Some("false"));
    };
    let (answer, ()) = tokio::join!(first.answer(), late);
    assert_eq!((answer.content().len(), answer.end), (80 * large.len(), Piece::End));
    // It is not kept either.
    assert_whole(&sent(&endpoint, &keyed(STREAM)).await.answer().await);
    assert_eq!(endpoint.ports.stage.sent(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_holds_an_endless_stream_back_and_is_given_up() {
    let flood = opening().into_iter().chain([Step::Flood(format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}},\"finish_reason\":null}}]}}\n\n",
        "x".repeat(64 << 10)
    ))]);
    let endpoint = serve([flood.collect()]);
    let client = sent(&endpoint, &keyed(STREAM)).await;
    sleep(secs(30)).await;
    let taken = endpoint.ports.stage.taken();
    assert!(((4 << 20)..(9 << 20)).contains(&taken), "{taken}");
    sleep(secs(40)).await;
    assert_eq!(endpoint.ports.stage.going_on(), [0; 3]);
    drop(client);
}

/// An attempt whose time is over while it waits for a slow reader has not handed on what it waits with: when its engine
/// turns out to be dead, the next one goes on from what the client has.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_taken_up_while_its_reader_is_behind_has_nothing_twice() {
    // Not longer: what is held when the reader is behind must be short enough to be taken up.
    let flood = opening().into_iter().chain([Step::Flood(format!(
        "data: {{\"id\":\"x\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}},\"finish_reason\":null}}]}}\n\n",
        "x".repeat(1 << 10)
    ))]);
    let goes_on = opening().into_iter().chain([content("y"), finish(), done()]);
    let ports = Ports::answering([flood.collect(), goes_on.collect()]).with_health([Liveness::Dead]);
    let mut settings = shipped();
    settings.timeouts.total = secs(30);
    let endpoint = Piped::start(ports, settings);
    let body = r#"{"messages":[{"role":"user","content":"a"}],"stream":true}"#;
    let mut client = sent(&endpoint, &keyed(body)).await;
    sleep(secs(40)).await;
    let answer = client.answer().await;
    assert_eq!(answer.end, Piece::End, "{:?}", answer.data().last());
    let prefix = endpoint.ports.stage.last_body()["messages"][1]["content"].as_str().unwrap().len();
    assert_eq!((answer.content().len(), prefix > 3 << 20), (prefix + 1, true));
    assert!(answer.content().ends_with("xy"));
}
