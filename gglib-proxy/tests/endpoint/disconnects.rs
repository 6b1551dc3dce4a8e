//! A client that leaves: the engine's work ends within a second, wherever the request is, and nobody else notices.
//! The fake engine says what it was told; `clocks` checks the same on the paused clock.

use std::time::Duration;

use gglib_testkit::wire::{Wire, post};
use gglib_testkit::{Engines, Entry, Launch, Load, Log, Reply, Script};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::served::{BOUND, Served, in_flight, shipped};

const STREAM: &str = r#"{"model":"a","messages":[],"stream":true}"#;
const PLAIN: &str = r#"{"model":"a","messages":[]}"#;

async fn sent(served: &Served, body: &str) -> Wire<TcpStream> {
    let mut client = served.connect().await;
    client.send(post("/v1/chat/completions", body)).await;
    client
}

fn started(log: &Log) -> usize {
    log.entries.iter().filter(|entry| matches!(entry, Entry::Started { .. })).count()
}

fn abandoned(status: &serde_json::Value) -> u64 {
    status["totals"]["abandoned"].as_u64().unwrap()
}

#[tokio::test]
async fn in_the_prompt_and_in_the_answer_the_engine_is_told_within_a_second() {
    let slow = Reply { prefill: BOUND, ..Reply::numbered(5) };
    let long = Reply { pace: Duration::from_millis(50), ..Reply::numbered(2000) };
    for (phase, reply) in [("prompt", slow), ("answer", long)] {
        for body in [STREAM, PLAIN] {
            let scripted =
                Script::always(Launch { replies: vec![reply.clone()], ..Launch::default() }).place();
            let served = Served::start(Engines::fake().scripted("a", &scripted), shipped()).await;
            let client = sent(&served, body).await;
            scripted.until("the engine to start", BOUND, |log| started(log) == 1).await;
            sleep(Duration::from_millis(200)).await;
            assert_eq!(in_flight(&served.status().await), 1);
            drop(client);
            let took = served.until("the lease to be back", |status| in_flight(status) == 0).await;
            assert!(took < Duration::from_secs(1), "{phase} {body}: {took:?}");
            scripted.until("the engine to hear", Duration::from_secs(1), |log| log.cancelled() == 1).await;
            let totals = &served.status().await["totals"];
            let counts = ["requests", "failed", "abandoned"].map(|name| totals[name].as_u64().unwrap());
            assert_eq!(counts, [1, 0, 1], "{phase} {body}");
        }
    }
}

#[tokio::test]
async fn in_the_queue_the_place_is_given_up_and_the_neighbour_is_unharmed() {
    let long = Reply { pace: Duration::from_millis(100), ..Reply::numbered(50) };
    let scripted = Script::always(Launch { replies: vec![long], ..Launch::default() }).place();
    let served = Served::start(Engines::fake().scripted("a", &scripted), shipped()).await;
    let mut neighbour = sent(&served, STREAM).await;
    scripted.until("the neighbour to be served", BOUND, |log| started(log) == 1).await;
    for body in [STREAM, PLAIN] {
        let client = sent(&served, body).await;
        served.until("a place in the queue", |status| status["queue"][0]["waiting"] == 1).await;
        drop(client);
        let took = served.until("no place in the queue", |status| status["queue"][0].is_null()).await;
        assert!(took < Duration::from_secs(1), "{body}: {took:?}");
    }
    let answer = neighbour.answer().await;
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
    assert_eq!(answer.content().split(' ').count(), 51);
    assert_eq!((scripted.log().requests(), scripted.log().cancelled()), (1, 0));
    assert_eq!(abandoned(&served.status().await), 2);
}

#[tokio::test]
async fn while_loading_the_load_goes_on_for_whoever_comes_next() {
    let slow = Launch { load: Load::Takes(Duration::from_secs(6)), ..Launch::default() };
    let scripted = Script::always(slow).place();
    let served = Served::start(Engines::fake().scripted("a", &scripted), shipped()).await;
    for body in [STREAM, PLAIN] {
        let client = sent(&served, body).await;
        served.until("a load", |status| status["engines"][0]["state"] == "loading").await;
        sleep(Duration::from_millis(100)).await;
        drop(client);
        let took = served.until("no place in the queue", |status| status["queue"][0].is_null()).await;
        assert!(took < Duration::from_secs(1), "{body}: {took:?}");
    }
    let answer = served.chat(PLAIN).await;
    assert_eq!(answer.content(), "Smallassy");
    assert_eq!((scripted.log().launches(), scripted.log().requests()), (1, 1));
    assert_eq!(abandoned(&served.status().await), 2);
}

#[tokio::test]
async fn a_client_that_leaves_while_it_sends_costs_nothing() {
    let scripted = Script::default().place();
    let served = Served::start(Engines::fake().scripted("a", &scripted), shipped()).await;
    let mut client = served.connect().await;
    client.send(&post("/v1/chat/completions", PLAIN)[..120]).await;
    served.until("the request", |status| status["totals"]["requests"] == 1).await;
    drop(client);
    served.until("its end", |status| abandoned(status) == 1).await;
    assert_eq!(served.status().await["totals"]["failed"], 0);
    assert_eq!(scripted.log().launches(), 0);
}
