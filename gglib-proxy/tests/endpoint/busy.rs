//! A wait for the first content is a place in a queue while the engine gets on with another request, and a hang
//! otherwise.

use std::time::Duration;

use gglib_proxy::Settings;
use gglib_testkit::wire::{Piece, post};
use http::StatusCode;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::pipes::Piped;
use crate::ports::{Ports, Step, content, done, finish, opening, progress};
use crate::served::shipped;

const CHAT: &str = "/v1/chat/completions";
const STREAM: &str = r#"{"messages":[],"stream":true}"#;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// An answer that takes `times` × 50 s.
fn long(times: u64, piece: impl Fn(u64) -> Step) -> Vec<Step> {
    let pieces = (0..times).flat_map(|number| [Step::Wait(secs(50)), piece(number)]);
    opening().into_iter().chain(pieces).chain([content("end"), finish(), done()]).collect()
}

/// The head at once or late, and the first content after `wait`.
fn queued(wait: u64) -> [Vec<Step>; 2] {
    let rest = || [content("a"), finish(), done()];
    let early = opening().into_iter().chain([Step::Wait(secs(wait))]).chain(rest()).collect();
    let late = [Step::Wait(secs(wait))].into_iter().chain(opening()).chain(rest()).collect();
    [early, late]
}

/// The first request of `answers`, and a second one a moment later; with when the second one ended.
async fn both(answers: [Vec<Step>; 2]) -> (String, String, u64) {
    // What is given up would be served by another engine, else.
    let endpoint = Piped::start(Ports::answering(answers), Settings { relaunch: false, ..shipped() });
    let started = Instant::now();
    let (first, (second, after)) = tokio::join!(endpoint.chat(STREAM), async {
        sleep(secs(1)).await;
        let answer = endpoint.chat(STREAM).await;
        (answer, started.elapsed().as_secs())
    });
    let told = |answer: gglib_testkit::wire::Answer| match answer.end {
        Piece::End => answer.content(),
        _ => answer.error()["code"].as_str().unwrap().to_owned(),
    };
    (told(first), told(second), after)
}

#[tokio::test(start_paused = true)]
async fn who_waits_while_another_is_served_is_not_given_up() {
    let pieces: [fn(u64) -> Step; 2] =
        [|_| content("x"), |number| progress(1 + u32::try_from(number).unwrap())];
    for piece in pieces {
        for waiting in queued(900) {
            let (_, second, after) = both([long(18, piece), waiting]).await;
            assert_eq!((second.as_str(), after), ("a", 901));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_alone_is_given_up_and_so_are_two_that_both_wait() {
    for (waiting, code) in queued(900).into_iter().zip(["timeout_first_content", "timeout_response_headers"])
    {
        // Another one has been served before, and is gone.
        let (first, second, after) = both([long(0, content_of), waiting.clone()]).await;
        assert_eq!((first.as_str(), second.as_str(), after), ("end", code, 301));
        // The other one gets nowhere either.
        let (first, second, after) = both([waiting.clone(), waiting]).await;
        assert_eq!((first.as_str(), second.as_str(), after), (code, code, 301));
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_in_the_queue_is_kept_as_long_as_the_queue_moves_and_the_attempt_may_last() {
    // The other one is served for 500 s and then stuck: the wait lasts until a period without progress is over.
    let mut other = long(10, content_of);
    other.truncate(other.len() - 3);
    other.push(Step::Hang);
    for (waiting, code) in queued(3000).into_iter().zip(["timeout_first_content", "timeout_response_headers"])
    {
        let (_, second, after) = both([other.clone(), waiting]).await;
        assert_eq!((second.as_str(), after), (code, 901));
    }
    for waiting in queued(3000) {
        let (_, second, after) = both([long(60, content_of), waiting]).await;
        assert_eq!((second.as_str(), after), ("timeout_total", 1801));
    }
}

/// Clients that each wait for a minute and leave.
async fn impatient(endpoint: &Piped, path: &str, body: &str, count: usize) {
    for _ in 0..count {
        let mut client = endpoint.connect();
        client.send(post(path, body)).await;
        assert!(timeout(secs(60), client.answer()).await.is_err());
        drop(client);
        sleep(secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_hangs_is_found_out_although_none_of_its_clients_waits_long_enough() {
    let hang = || vec![Step::Hang];
    let endpoint = Piped::start(Ports::answering((0..6).map(|_| hang())), shipped());
    impatient(&endpoint, CHAT, STREAM, 4).await;
    let stage = &endpoint.ports.stage;
    assert_eq!((stage.sent(), stage.going_on()), (4, [0; 3]));
    // The fifth makes it five minutes in which somebody was there.
    impatient(&endpoint, CHAT, STREAM, 1).await;
    assert_eq!((stage.sent(), stage.going_on(), stage.condemned()), (6, [0, 1, 1], 0));
    assert_eq!(stage.last_body()["n_predict"], 1);
    sleep(secs(298)).await;
    assert_eq!((stage.going_on(), stage.condemned()), ([0, 1, 1], 0));
    sleep(secs(2)).await;
    assert_eq!((stage.sent(), stage.going_on(), stage.condemned()), (6, [0; 3], 1));
}

#[tokio::test(start_paused = true)]
async fn the_work_is_of_the_kind_that_was_asked_for_since_an_engine_may_be_unable_to_do_another() {
    let token = json!({"prompt":"1","n_predict":1,"cache_prompt":false});
    let rank = json!({"query":"1","documents":["1"]});
    for (path, body, at, work) in [
        ("/v1/completions", r#"{"prompt":"x"}"#, "/completion", token),
        ("/v1/embeddings", r#"{"input":"x"}"#, "/v1/embeddings", json!({"input":"1"})),
        ("/rerank", r#"{"query":"x","documents":["y"]}"#, "/v1/rerank", rank),
    ] {
        let endpoint = Piped::start(Ports::default(), shipped());
        impatient(&endpoint, path, body, 5).await;
        let stage = &endpoint.ports.stage;
        assert_eq!((stage.sent(), stage.last_path().as_str()), (6, at));
        assert_eq!(stage.last_body(), work);
        sleep(secs(300)).await;
        assert_eq!((stage.going_on(), stage.condemned()), ([0; 3], 1), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_slow_and_does_its_work_at_last_is_let_alone_and_tried_again_later() {
    let hang = || vec![Step::Hang];
    let slow = || vec![Step::Wait(secs(290)), Step::Head(StatusCode::OK)];
    let five = || (0..5).map(|_| hang());
    let answers = five().chain([slow()]).chain(five()).chain([slow()]);
    let endpoint = Piped::start(Ports::answering(answers), shipped());
    for round in 1..=2 {
        impatient(&endpoint, CHAT, STREAM, 5).await;
        sleep(secs(300)).await;
        let stage = &endpoint.ports.stage;
        assert_eq!((stage.sent(), stage.going_on(), stage.condemned()), (6 * round, [0; 3], 0));
    }
}

fn content_of(_: u64) -> Step {
    content("x")
}
