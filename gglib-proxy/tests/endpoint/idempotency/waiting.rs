//! What those who share a run are told while it waits for an engine.

use gglib_core::admission::{Outlook, WaitPhase};
use gglib_core::ports::{Liveness, Phase};

use super::*;
use crate::ports::progress;

#[tokio::test(start_paused = true)]
async fn they_wait_together_for_an_engine_too() {
    let ports = Ports::answering([slow()]).with_turns([Turn::After(secs(40))]);
    let endpoint = Piped::start(ports, shipped());
    let mut first = sent(&endpoint, &keyed(STREAM)).await;
    let mut second = later(&endpoint, &keyed(STREAM)).await;
    sleep(secs(1)).await;
    assert_eq!(endpoint.ports.stage.going_on(), [1, 0, 0]);
    let (first, second) = tokio::join!(first.answer(), second.answer());
    assert_whole(&first);
    assert_whole(&second);
    assert!(second.comments().contains(&": keep-alive"), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_on_one_key_are_told_where_they_stand_and_those_who_joined_are_counted() {
    let outlook = |position| {
        let outlook =
            Outlook { position, phase: WaitPhase::Loading, percent: Some(40), estimate: Some(secs(9)) };
        (Duration::ZERO, Some(outlook))
    };
    let ports = Ports::answering([slow()]).with_turns([Turn::After(secs(20))]).with_outlooks([
        outlook(3),
        outlook(2),
        outlook(2),
        outlook(1),
    ]);
    let endpoint = Piped::start(ports, shipped());
    let mut first = sent(&endpoint, &keyed(STREAM)).await;
    let mut second = later(&endpoint, &keyed(STREAM)).await;
    let (first, second) = tokio::join!(first.answer(), second.answer());
    // Of what comes before its head a client is told the last.
    for (answer, positions) in [(&first, vec![3, 2, 2, 1]), (&second, vec![1])] {
        let told = |position| {
            format!(" keep-alive waiting position={position} phase=loading percent=40 estimate_s=9")
        };
        let comments: Vec<_> =
            answer.comments().into_iter().map(|comment| comment.trim_start_matches(':')).collect();
        let waiting: Vec<_> = comments.iter().filter(|comment| comment.contains("waiting")).collect();
        let expected: Vec<_> = positions.into_iter().map(told).collect();
        assert_eq!(waiting, expected.iter().collect::<Vec<_>>(), "{answer:?}");
        assert_whole(answer);
    }
    assert_eq!(endpoint.ports.stage.sent(), 1);
    let metrics = endpoint.connect().ask("GET /metrics HTTP/1.1\r\nhost: gglib\r\n\r\n").await.body;
    assert!(metrics.contains("gglib_attached_requests_total{model=\"m\"} 1\n"), "{metrics}");
}

/// Three words on a wait of 14 s, and none on any other.
fn told_of_one_wait(answers: [Vec<Step>; 2]) -> Piped {
    let outlook = Outlook { position: 1, phase: WaitPhase::Loading, percent: None, estimate: None };
    let ports = Ports::answering(answers)
        .with_turns([Turn::After(secs(14)), Turn::After(secs(14))])
        .with_outlooks([(Duration::ZERO, Some(outlook)); 3])
        .with_health([Liveness::Dead]);
    Piped::start(ports, shipped())
}

#[tokio::test(start_paused = true)]
async fn who_joins_when_the_wait_is_over_is_not_told_of_it() {
    // It is at the prompt when the second one comes.
    let prompt = [Step::Head(StatusCode::OK), progress(100), Step::Wait(secs(30)), progress(900)];
    let endpoint = told_of_one_wait([prompt.into_iter().chain(slow().split_off(1)).collect(), Vec::new()]);
    let mut first = sent(&endpoint, &keyed(STREAM)).await;
    let mut second = later(&endpoint, &keyed(STREAM)).await;
    let (first, second) = tokio::join!(first.answer(), second.answer());
    assert_eq!(first.body.matches("keep-alive waiting").count(), 3, "{first:?}");
    assert_whole(&second);
    assert!(!second.body.contains("waiting"), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn who_joins_in_the_wait_after_a_recovery_is_not_told_of_the_one_before() {
    let endpoint = told_of_one_wait([vec![Step::Break(Phase::BeforeHeaders)], slow()]);
    let mut first = sent(&endpoint, &keyed(STREAM)).await;
    let mut second = later(&endpoint, &keyed(STREAM)).await;
    sleep(secs(2)).await;
    assert_eq!(endpoint.ports.stage.going_on(), [1, 0, 0], "they wait again");
    let (first, second) = tokio::join!(first.answer(), second.answer());
    assert_eq!(first.body.matches("keep-alive waiting").count(), 3, "{first:?}");
    assert_whole(&second);
    assert!(!second.body.contains("waiting"), "{second:?}");
}
