//! Requests that are repeated while the first one still runs, with the clock paused.

use std::time::Duration;

use gglib_core::admission::Refusal;
use gglib_testkit::wire::{Answer, Piece, Wire};
use http::StatusCode;
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};

use crate::pipes::Piped;
use crate::ports::{Ports, Step, Turn, content, done, finish, opening};
use crate::served::shipped;

mod account;
mod replay;
mod waiting;

const STREAM: &str = r#"{"messages":[],"stream":true}"#;
const PLAIN: &str = r#"{"messages":[]}"#;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A POST of `body` with these headers.
fn request(headers: &[(&str, &str)], body: &str) -> String {
    let mut head = format!("POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    format!("{head}host: gglib\r\n\r\n{body}")
}

fn keyed(body: &str) -> String {
    request(&[("idempotency-key", "k"), ("authorization", "Bearer one")], body)
}

/// `a`, `b` and `c`, ten seconds apart.
fn slow() -> Vec<Step> {
    let texts = ["a", "b", "c"].into_iter().flat_map(|text| [content(text), Step::Wait(secs(10))]);
    opening().into_iter().chain(texts).chain([finish(), done()]).collect()
}

fn serve(answers: impl IntoIterator<Item = Vec<Step>>) -> Piped {
    Piped::start(Ports::answering(answers), shipped())
}

async fn sent(endpoint: &Piped, request: &str) -> Wire<DuplexStream> {
    let mut client = endpoint.connect();
    client.send(request).await;
    client
}

/// Once more, 15 s later, on a connection of its own.
async fn later(endpoint: &Piped, request: &str) -> Wire<DuplexStream> {
    sleep(secs(15)).await;
    sent(endpoint, request).await
}

fn assert_whole(answer: &Answer) {
    assert_eq!((answer.head.status, answer.content().as_str()), (200, "abc"), "{answer:?}");
    assert_eq!(answer.end, Piece::End);
}

async fn ended(endpoint: &Piped) -> [u64; 3] {
    let totals = endpoint.totals().await;
    ["requests", "failed", "abandoned"].map(|name| totals[name].as_u64().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_plain_request_that_is_repeated_gets_the_same_answer_of_one_generation() {
    let endpoint = serve([slow()]);
    let started = Instant::now();
    let mut first = sent(&endpoint, &keyed(PLAIN)).await;
    let mut second = later(&endpoint, &keyed(PLAIN)).await;
    let (first, second) = tokio::join!(first.answer(), second.answer());
    assert_eq!(started.elapsed(), secs(30));
    assert_whole(&first);
    assert_eq!(first.body, second.body);
    assert_eq!(second.head.header("content-type"), Some("application/json"));
    assert_eq!(endpoint.ports.stage.sent(), 1);
    assert_eq!(ended(&endpoint).await, [2, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_joined_midway_comes_from_its_beginning() {
    let endpoint = serve([slow()]);
    let mut first = sent(&endpoint, &keyed(STREAM)).await;
    let mut second = later(&endpoint, &keyed(STREAM)).await;
    let so_far = Instant::now();
    let head = second.head().await.unwrap();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let text = second.until("\"b\"").await;
    assert!(text.contains("\"a\""), "{text}");
    assert_eq!(so_far.elapsed(), secs(0), "what has been is there at once");
    let (first, (rest, end)) = tokio::join!(first.answer(), second.rest());
    assert_whole(&first);
    assert_eq!(end, Piece::End);
    // Event by event the same, signs of life excepted: each client has its own.
    let data = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("data: ")).map(str::to_owned).collect()
    };
    assert_eq!(data(&first.body), data(&(text + &rest)));
    assert_eq!(endpoint.ports.stage.sent(), 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_begun_it_may_leave_and_the_other_gets_all_of_it() {
    for body in [PLAIN, STREAM] {
        let endpoint = serve([slow()]);
        let first = sent(&endpoint, &keyed(body)).await;
        let mut second = later(&endpoint, &keyed(body)).await;
        sleep(secs(1)).await;
        drop(first);
        sleep(secs(1)).await;
        assert_eq!(endpoint.ports.stage.going_on(), [0, 1, 1]);
        assert_whole(&second.answer().await);
        assert_eq!(endpoint.ports.stage.sent(), 1);
        assert_eq!(ended(&endpoint).await, [2, 0, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_have_left_the_generation_is_cancelled_and_the_key_is_free() {
    for body in [PLAIN, STREAM] {
        let endpoint = serve([slow(), slow()]);
        let first = sent(&endpoint, &keyed(body)).await;
        let second = later(&endpoint, &keyed(body)).await;
        sleep(secs(1)).await;
        drop(first);
        drop(second);
        sleep(Duration::from_millis(900)).await;
        assert_eq!(endpoint.ports.stage.going_on(), [0; 3], "{body}");
        assert_eq!(ended(&endpoint).await, [2, 0, 2]);
        let mut again = sent(&endpoint, &keyed(body)).await;
        assert_whole(&again.answer().await);
        assert_eq!(endpoint.ports.stage.sent(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn another_key_and_other_credentials_have_a_generation_of_their_own() {
    let others = [
        vec![("idempotency-key", "l"), ("authorization", "Bearer one")],
        vec![("idempotency-key", "k"), ("authorization", "Bearer two")],
        vec![("idempotency-key", "k")],
        vec![("idempotency-key", "k"), ("authorization", "Bearer one"), ("x-api-key", "x")],
        vec![("authorization", "Bearer one")],
        vec![("authorization", "Bearer one")],
    ];
    let whole = |text| opening().into_iter().chain([content(text), finish(), done()]).collect::<Vec<_>>();
    let endpoint = serve([slow()].into_iter().chain(["1", "2", "3", "4", "5", "6"].map(whole)));
    let mut first = sent(&endpoint, &keyed(STREAM)).await;
    sleep(secs(1)).await;
    for (headers, text) in others.iter().zip(["1", "2", "3", "4", "5", "6"]) {
        let answer = sent(&endpoint, &request(headers, STREAM)).await.answer().await;
        assert_eq!(answer.content(), text, "{headers:?}");
    }
    assert_whole(&first.answer().await);
    assert_eq!(endpoint.ports.stage.sent(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_stands_for_another_request_is_refused_and_harms_nobody() {
    let endpoint = serve([slow()]);
    let mut first = sent(&endpoint, &keyed(STREAM)).await;
    let other = r#"{"messages":[],"stream":true,"seed":1}"#;
    for body in [other, PLAIN] {
        let refused = later(&endpoint, &keyed(body)).await.answer().await;
        assert_eq!(refused.head.status, 422);
        assert_eq!(refused.error()["code"], "idempotency_key_reused");
        assert_eq!(refused.error()["type"], "invalid_request_error");
    }
    assert_whole(&first.answer().await);
    assert_eq!(endpoint.ports.stage.sent(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_is_given_again_for_a_minute() {
    for body in [PLAIN, STREAM] {
        let endpoint = serve([slow(), slow()]);
        let first = sent(&endpoint, &keyed(body)).await.answer().await;
        sleep(secs(59)).await;
        let asked = Instant::now();
        let second = sent(&endpoint, &keyed(body)).await.answer().await;
        assert_whole(&second);
        assert_eq!(first.content(), second.content());
        assert_eq!(asked.elapsed(), secs(0));
        assert_eq!(endpoint.ports.stage.sent(), 1);
        sleep(secs(1)).await;
        assert_whole(&sent(&endpoint, &keyed(body)).await.answer().await);
        assert_eq!(endpoint.ports.stage.sent(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_told_to_all_who_wait_and_the_next_try_is_a_new_one() {
    for body in [PLAIN, STREAM] {
        let refused = Turn::Refused(secs(20), Refusal::Stalled { after: secs(20) });
        let endpoint = Piped::start(Ports::answering([slow()]).with_turns([refused]), shipped());
        let mut first = sent(&endpoint, &keyed(body)).await;
        let mut second = later(&endpoint, &keyed(body)).await;
        let (first, second) = tokio::join!(first.answer(), second.answer());
        for answer in [first, second] {
            assert_eq!(answer.error()["code"], "wait_stalled", "{answer:?}");
        }
        assert_eq!(ended(&endpoint).await, [2, 2, 0]);
        assert_whole(&sent(&endpoint, &keyed(body)).await.answer().await);
    }
}

#[tokio::test(start_paused = true)]
async fn who_joins_late_is_told_that_it_was_not_its_own_time_that_ran_out() {
    let hour = || Turn::After(secs(3600));
    for body in [PLAIN, STREAM] {
        let endpoint = Piped::start(Ports::default().with_turns([hour(), hour()]), shipped());
        let started = Instant::now();
        let mut first = sent(&endpoint, &keyed(body)).await;
        let second = async {
            sleep(secs(2700 - 15 - 1)).await;
            later(&endpoint, &keyed(body)).await.answer().await
        };
        let (first, second) = tokio::join!(first.answer(), second);
        assert_eq!(started.elapsed(), secs(2700));
        let [own, other] = [&first, &second].map(Answer::error);
        let message = "the request was not answered within 2700 s";
        assert_eq!([&own["code"], &own["message"]], ["timeout_request", message]);
        let message = "attached to an earlier request with this Idempotency-Key: the request was not answered within 2700 s";
        assert_eq!([&other["code"], &other["message"]], ["timeout_request", message]);
        // The second one has its status still, also of a stream.
        assert_eq!((second.head.status, second.head.header("x-should-retry")), (504, None), "{body}");
        if body == PLAIN {
            assert_eq!((first.head.status, first.head.header("x-should-retry")), (504, Some("false")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_run_reaches_everybody() {
    let steps = || opening().into_iter().chain([content("a"), Step::Wait(secs(20)), Step::Panic]).collect();
    for body in [PLAIN, STREAM] {
        let endpoint = serve([steps()]);
        let mut first = sent(&endpoint, &keyed(body)).await;
        let mut second = later(&endpoint, &keyed(body)).await;
        let (first, second) = tokio::join!(first.answer(), second.answer());
        for answer in [first, second] {
            assert_eq!(answer.error()["code"], "internal", "{body}");
        }
        assert_eq!(endpoint.ports.stage.going_on(), [0; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_empty_or_too_long_is_refused_by_name() {
    let endpoint = serve([]);
    let long = "k".repeat(256);
    for key in ["", &long] {
        let answer = sent(&endpoint, &request(&[("idempotency-key", key)], PLAIN)).await.answer().await;
        assert_eq!(answer.head.status, StatusCode::BAD_REQUEST.as_u16());
        assert!(answer.error()["message"].as_str().unwrap().contains("Idempotency-Key"), "{answer:?}");
    }
    assert_eq!(endpoint.ports.stage.sent(), 0);
}
