//! Engines that are there and do nothing: found out, killed for good, and replaced once, on every route, while the
//! client has seen no content. Their neighbours are let alone.

use std::time::Duration;

use futures_util::future::join_all;
use gglib_proxy::Settings;
use gglib_testkit::wire::{Answer, Piece};
use gglib_testkit::{Engines, Entry, Fault, Launch, Reply, Script, Scripted};
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use crate::served::{Served, in_flight, shipped};

/// The time for a hang to show.
const BRIEF: Duration = Duration::from_secs(2);

/// Every route, and whether its answer is streamed.
const REQUESTS: [(&str, &str, bool); 6] = [
    ("/v1/chat/completions", r#"{"model":"a","messages":[],"stream":true}"#, true),
    ("/v1/chat/completions", r#"{"model":"a","messages":[]}"#, false),
    ("/v1/completions", r#"{"model":"a","prompt":"x","stream":true}"#, true),
    ("/v1/completions", r#"{"model":"a","prompt":"x"}"#, false),
    ("/v1/embeddings", r#"{"model":"a","input":"x"}"#, false),
    ("/rerank", r#"{"model":"a","query":"x","documents":["y"]}"#, false),
];

/// What makes an engine hang before a client has seen content, streamed or not.
const BEFORE_CONTENT: [Fault; 8] = [
    Fault::HangBeforeHeaders,
    Fault::HangAfter(0),
    Fault::PingAfter(0),
    Fault::PingThenDie(0, Duration::from_millis(300)),
    Fault::StopBeforeHeaders,
    Fault::StopAfter(0),
    Fault::DieBeforeHeaders,
    Fault::DieAfter(0),
];

/// And in the middle of an answer, of which a plain client has seen nothing.
const MID_ANSWER: [Fault; 3] = [Fault::HangAfter(2), Fault::PingAfter(2), Fault::StopAfter(2)];

fn settings() -> Settings {
    let mut settings = shipped();
    settings.timeouts.connect = BRIEF;
    settings.timeouts.response_headers = BRIEF;
    settings.timeouts.first_content = BRIEF;
    settings.timeouts.idle = BRIEF;
    settings
}

/// An engine that hangs for good, whoever asks it to end, and then one that is well.
fn hanging(fault: Fault) -> Script {
    let first = Launch {
        replies: vec![Reply { fault: Some(fault), ..Reply::numbered(5) }],
        ping_every: Some(Duration::from_millis(50)),
        ignores_sigterm: true,
        ..Launch::default()
    };
    Script { launches: vec![first, healthy()] }
}

fn healthy() -> Launch {
    Launch { replies: vec![Reply::numbered(5)], ..Launch::default() }
}

/// An endpoint with `script` as the engine of model a, beside a neighbour that has been asked once.
async fn serve(script: &Script) -> (Scripted, Scripted, Served) {
    let scripted = script.place();
    let neighbour = Script::always(healthy()).place();
    let mut engines = Engines::fake()
        .scripted("a", &scripted)
        .with("a", |model| model.args.push("--embeddings".to_owned()))
        .scripted("b", &neighbour);
    engines.admission.max_resident = 2;
    let served = Served::start(engines, settings()).await;
    assert_eq!(served.chat(r#"{"model":"b","messages":[]}"#).await.head.status, 200);
    (scripted, neighbour, served)
}

/// What an answer says, whatever its form.
fn said(answer: &Answer) -> Value {
    let text = |choices: &Value| choices[0]["text"].as_str().map(str::to_owned);
    if answer.head.header("content-type") == Some("text/event-stream") {
        let chunks = answer.data().into_iter().filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let texts: Vec<_> = chunks.filter_map(|chunk| text(&chunk["choices"])).collect();
        return if texts.is_empty() { answer.content().into() } else { texts.concat().into() };
    }
    let json = answer.json();
    match json["object"].as_str() {
        Some("text_completion") => text(&json["choices"]).into(),
        Some("list") => json.get("data").or(json.get("results")).cloned().unwrap_or_default(),
        _ => answer.content().into(),
    }
}

fn expected(path: &str) -> Value {
    match path {
        "/v1/embeddings" => json!([{ "object": "embedding", "index": 0, "embedding": [0.25, -0.5] }]),
        "/rerank" => json!([{ "index": 0, "relevance_score": 0.5 }]),
        _ => Reply::numbered(5).content().into(),
    }
}

fn check_whole(answer: &Answer, path: &str, streamed: bool, what: &str) {
    assert_eq!((answer.head.status, &answer.end), (200, &Piece::End), "{what}: {answer:?}");
    assert_eq!(said(answer), expected(path), "{what}: {}", answer.body);
    assert_eq!(
        answer.body.matches("data: [DONE]\n\n").count(),
        usize::from(streamed),
        "{what}: {}",
        answer.body
    );
}

/// The process of a launch, from 1.
fn pid(scripted: &Scripted, number: usize) -> Pid {
    let pid = scripted.log().entries.iter().find_map(|entry| match entry {
        Entry::Launched { launch, pid, .. } if *launch == number => Some(*pid),
        _ => None,
    });
    Pid::from_raw(i32::try_from(pid.unwrap()).unwrap()).unwrap()
}

/// Checks that `path` is answered whole by a second engine, that the first one is gone, and that its neighbour is not.
async fn replaced_once(fault: Fault, (path, body, streamed): (&str, &str, bool)) {
    let what = format!("{fault:?} {path} {body}");
    let (scripted, neighbour, served) = serve(&hanging(fault)).await;
    let answer = served.ask(path, body).await;
    check_whole(&answer, path, streamed, &what);
    let told = answer.head.header("x-gglib-recovery") == Some("relaunch")
        || answer.body.contains(": gglib-recovery relaunch\n\n");
    assert!(told, "{what}: {answer:?}");
    assert_eq!((scripted.log().requests(), scripted.log().launches()), (2, 2), "{what}");
    assert!(test_kill_process(pid(&scripted, 1)).is_err(), "{what}: the engine that hung is still there");
    assert!(test_kill_process(pid(&scripted, 2)).is_ok(), "{what}: the second engine is gone");
    assert!(test_kill_process(pid(&neighbour, 1)).is_ok(), "{what}: the neighbour is gone");

    let status = served.status().await;
    let totals = &status["totals"];
    assert_eq!([&totals["relaunches"], &totals["failed"], &totals["loads"]], [1, 0, 3], "{what}");
    served.until("the lease to be back", |status| in_flight(status) == 0).await;
    check_whole(&served.ask(path, body).await, path, streamed, &what);
    assert_eq!(scripted.log().launches(), 2, "{what}");
}

#[tokio::test]
async fn an_engine_that_hangs_before_content_is_killed_and_replaced_once_on_every_route() {
    for fault in BEFORE_CONTENT {
        join_all(REQUESTS.map(|request| replaced_once(fault, request))).await;
    }
}

#[tokio::test]
async fn an_engine_that_hangs_in_the_middle_of_a_plain_answer_is_killed_and_replaced_once_on_every_route() {
    for fault in MID_ANSWER {
        let plain = REQUESTS.into_iter().filter(|(_, _, streamed)| !streamed);
        join_all(plain.map(|request| replaced_once(fault, request))).await;
    }
}

#[tokio::test]
async fn an_engine_that_hangs_after_content_ends_the_stream_with_an_error_and_is_killed() {
    for fault in MID_ANSWER {
        let streamed = REQUESTS.into_iter().filter(|(_, _, streamed)| *streamed);
        join_all(streamed.map(async |(path, body, _)| {
            let what = format!("{fault:?} {path}");
            let (scripted, neighbour, served) = serve(&hanging(fault)).await;
            let answer = served.ask(path, body).await;
            assert_eq!(
                (&answer.end, &answer.error()["code"]),
                (&Piece::Cut, &"timeout_idle".into()),
                "{what}"
            );
            assert_eq!(said(&answer), Reply::numbered(2).content(), "{what}: {}", answer.body);
            assert!(test_kill_process(pid(&scripted, 1)).is_err(), "{what}: it is still there");
            assert!(test_kill_process(pid(&neighbour, 1)).is_ok(), "{what}: the neighbour is gone");
            check_whole(&served.ask(path, body).await, path, true, &what);
            assert_eq!((scripted.log().launches(), neighbour.log().launches()), (2, 1), "{what}");
        }))
        .await;
    }
}

#[tokio::test]
async fn an_engine_that_is_healthy_and_fails_at_everything_is_replaced_at_the_third_failure() {
    join_all(REQUESTS.map(async |(path, body, streamed)| {
        let first = Launch { fails_with: Some(500), ignores_sigterm: true, ..Launch::default() };
        let (scripted, neighbour, served) = serve(&Script { launches: vec![first, healthy()] }).await;
        for _ in 0..2 {
            let answer = served.ask(path, body).await;
            assert_eq!(
                (answer.head.status, &answer.error()["code"]),
                (500, &"upstream_error".into()),
                "{path}"
            );
            assert_eq!(scripted.log().launches(), 1, "{path}");
        }
        check_whole(&served.ask(path, body).await, path, streamed, path);
        assert_eq!((scripted.log().launches(), neighbour.log().launches()), (2, 1), "{path}");
        assert!(test_kill_process(pid(&scripted, 1)).is_err(), "{path}: it is still there");
        // The first two, the third, the piece of work that it was given, and the third again.
        assert_eq!(scripted.log().requests(), 5, "{path}");
        let totals = &served.status().await["totals"];
        assert_eq!([&totals["relaunches"], &totals["failed"]], [1, 2], "{path}");
    }))
    .await;
}

#[tokio::test]
async fn an_engine_that_fails_only_at_what_it_is_asked_stays() {
    let failing = Reply { fault: Some(Fault::Status(500)), ..Reply::numbered(5) };
    let launch = Launch { replies: vec![failing], ..Launch::default() };
    let (scripted, _, served) = serve(&Script::always(launch)).await;
    let (path, body, _) = REQUESTS[1];
    for _ in 0..5 {
        assert_eq!(served.ask(path, body).await.head.status, 500);
    }
    assert_eq!(scripted.log().launches(), 1);
}

#[tokio::test]
async fn failures_with_answers_between_them_are_no_row() {
    let failing = || Reply { fault: Some(Fault::Status(500)), ..Reply::numbered(5) };
    let replies = vec![failing(), failing(), Reply::numbered(5), failing(), failing(), Reply::numbered(5)];
    let (scripted, _, served) = serve(&Script::always(Launch { replies, ..Launch::default() })).await;
    let (path, body, _) = REQUESTS[0];
    for status in [500, 500, 200, 500, 500, 200] {
        assert_eq!(served.ask(path, body).await.head.status, status);
    }
    // Without a look at the engine, which would be a request of its own.
    assert_eq!((scripted.log().requests(), scripted.log().launches()), (6, 1));
}

#[tokio::test]
async fn an_engine_that_does_not_last_is_launched_three_times_and_then_the_breaker_tells_when_again() {
    for fault in [Fault::DieBeforeHeaders, Fault::HangBeforeHeaders] {
        join_all(REQUESTS.map(async |(path, body, _)| {
            let what = format!("{fault:?} {path}");
            let launch = Launch { ignores_sigterm: true, ..hanging(fault).launches.remove(0) };
            let scripted = Script::always(launch).place();
            let mut engines = Engines::fake()
                .scripted("a", &scripted)
                .with("a", |model| model.args.push("--embeddings".to_owned()));
            engines.admission.breaker.open_for = Duration::from_secs(30);
            let served = Served::start(engines, settings()).await;
            // The first request has one relaunch; the second one would have another, were it not for the breaker.
            let code = |answer: &Answer| answer.error()["code"].as_str().map(str::to_owned);
            let spent = code(&served.ask(path, body).await);
            assert!(
                ["upstream_died", "timeout_response_headers"].map(Some).contains(&spent.as_deref()),
                "{what}"
            );
            assert_eq!(scripted.log().launches(), 2, "{what}");
            let refused = served.ask(path, body).await;
            assert_eq!(code(&refused).as_deref(), Some("breaker_open"), "{what}: {refused:?}");
            let at_once = served.ask(path, body).await;
            assert_eq!(
                (at_once.head.status, code(&at_once).as_deref()),
                (503, Some("breaker_open")),
                "{what}"
            );
            assert!(at_once.head.header("retry-after").is_some(), "{what}");
            assert_eq!(scripted.log().launches(), 3, "{what}");
        }))
        .await;
    }
}
