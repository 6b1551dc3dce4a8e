//! Every bound of time, with the clock paused: what happens, when, and that nothing is left behind.

use std::time::Duration;

use gglib_core::admission::Refusal;
use gglib_core::ports::{Liveness, Phase};
use gglib_proxy::Settings;
use gglib_testkit::wire::{Piece, post};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::pipes::{PIPE, Piped};
use crate::ports::{Ports, Step, Turn, content, done, finish, opening, progress};
use crate::served::shipped;

const STREAM: &str = r#"{"messages":[],"stream":true}"#;
const PLAIN: &str = r#"{"messages":[]}"#;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn script(start: Vec<Step>, rest: impl IntoIterator<Item = Step>) -> Vec<Step> {
    start.into_iter().chain(rest).collect()
}

fn whole() -> Vec<Step> {
    script(opening(), [content("a"), finish(), done()])
}

fn pinging(times: u64) -> impl Iterator<Item = Step> {
    (0..times).flat_map(|_| [Step::Wait(secs(1)), Step::Send(":\n\n".to_owned())])
}

/// The shipped settings without the recovery that would begin anew on another engine.
fn one_attempt() -> Settings {
    Settings { relaunch: false, ..shipped() }
}

/// What an attempt's clock ends, with which code, and when.
fn expiries() -> Vec<(&'static str, Vec<Step>, &'static str, u64)> {
    let head = || vec![Step::Head(StatusCode::OK)];
    let progressing = (1..=5).flat_map(|step| [Step::Wait(secs(200)), progress(step * 100)]);
    let content_for_ever = (0..40).flat_map(|_| [Step::Wait(secs(50)), content("a")]);
    vec![
        ("no head", vec![Step::Hang], "timeout_response_headers", 300),
        ("no body", script(head(), [Step::Hang]), "timeout_first_content", 300),
        ("only the role", script(opening(), [Step::Hang]), "timeout_first_content", 300),
        ("only pings", script(opening(), pinging(400).chain([Step::Hang])), "timeout_first_content", 300),
        (
            "progress that ceases",
            script(head(), progressing.chain([progress(500), Step::Hang])),
            "timeout_first_content",
            1000 + 300,
        ),
        ("content that ceases", script(opening(), [content("a"), Step::Hang]), "timeout_idle", 60),
        (
            "content, then only pings",
            script(opening(), [content("a")].into_iter().chain(pinging(400))),
            "timeout_idle",
            60,
        ),
        ("content without end", script(opening(), content_for_ever), "timeout_total", 1800),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_clock_of_an_attempt_has_its_code_in_a_stream() {
    for (name, steps, code, after) in expiries() {
        let endpoint = Piped::start(Ports::answering([steps]), one_attempt());
        let started = Instant::now();
        let answer = endpoint.chat(STREAM).await;
        assert_eq!(answer.error()["code"], code, "{name}: {answer:?}");
        assert_eq!(started.elapsed().as_secs(), after, "{name}");
        assert_eq!((answer.head.status, answer.end), (200, Piece::Cut), "{name}");
        assert!(!answer.body.contains("[DONE]"), "{name}: {}", answer.body);
        assert_eq!((endpoint.ports.stage.sent(), endpoint.ports.stage.going_on()), (1, [0; 3]), "{name}");
        // An engine that gets on is slow; one that does not hangs.
        let hangs = usize::from(code != "timeout_total");
        assert_eq!(endpoint.ports.stage.condemned(), hangs, "{name}");
        let totals = endpoint.totals().await;
        assert_eq!([&totals["failed"], &totals["abandoned"]], [1, 0], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_clock_of_an_attempt_has_its_code_in_a_plain_answer() {
    for (name, steps, code, after) in expiries() {
        let endpoint = Piped::start(Ports::answering([steps]), one_attempt());
        let started = Instant::now();
        let answer = endpoint.chat(PLAIN).await;
        assert_eq!(answer.error()["code"], code, "{name}: {answer:?}");
        assert_eq!(started.elapsed().as_secs(), after, "{name}");
        assert_eq!(answer.head.status, 504, "{name}");
        assert_eq!(answer.head.header("x-should-retry"), Some("false"), "{name}");
        assert_eq!((endpoint.ports.stage.sent(), endpoint.ports.stage.going_on()), (1, [0; 3]), "{name}");
        // An engine that gets on is slow; one that does not hangs.
        let hangs = usize::from(code != "timeout_total");
        assert_eq!(endpoint.ports.stage.condemned(), hangs, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_comments_cease_is_looked_at_after_ten_seconds_and_only_a_dead_one_is_replaced() {
    let ceasing = || script(opening(), pinging(20).chain([Step::Hang]));
    // A head, comments for 20 s and 10 s of silence, or the time for the prompt.
    for (health, after) in [(Liveness::Dead, 30), (Liveness::Alive, 300)] {
        for body in [STREAM, PLAIN] {
            let ports = Ports::answering([ceasing(), whole()]).with_health([health]);
            let endpoint = Piped::start(ports, shipped());
            let started = Instant::now();
            assert_eq!(endpoint.chat(body).await.content(), "a");
            assert_eq!((endpoint.ports.stage.sent(), started.elapsed().as_secs()), (2, after), "{health:?}");
            assert_eq!(endpoint.totals().await["relaunches"], 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_has_sent_a_comment_once_is_known_to_and_one_that_never_did_is_not_looked_at() {
    let silent = || script(opening(), [Step::Hang]);
    for (first, after) in [(pinging(1).collect(), 10), (vec![], 300)] {
        let first = script(opening(), first.into_iter().chain([content("a"), finish(), done()]));
        let ports = Ports::answering([first, silent(), whole()]).with_health([Liveness::Dead]);
        let endpoint = Piped::start(ports, shipped());
        assert_eq!(endpoint.chat(STREAM).await.content(), "a");
        let started = Instant::now();
        assert_eq!(endpoint.chat(STREAM).await.content(), "a");
        assert_eq!((endpoint.ports.stage.sent(), started.elapsed().as_secs()), (3, after));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_is_served_as_long_as_an_attempt_may_last() {
    let large = "x".repeat(PIPE);
    let steps = script(opening(), (0..10_000).map(|_| content(&large)));
    let endpoint = Piped::start(Ports::answering([steps]), shipped());
    let mut client = endpoint.connect();
    client.send(post("/v1/chat/completions", STREAM)).await;
    client.head().await.unwrap();
    let started = Instant::now();
    while endpoint.ports.stage.going_on() == [0, 1, 1] {
        assert!(matches!(client.piece().await, Piece::Data(_)));
        assert!(started.elapsed() <= secs(1800), "the engine is held for {:?}", started.elapsed());
        sleep(secs(25)).await;
    }
    let (rest, end) = client.rest().await;
    assert!(rest.contains("timeout_total") && end == Piece::Cut, "{}", &rest[rest.len() - 200..]);
    assert_eq!(endpoint.ports.stage.going_on(), [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_advances_is_never_too_slow() {
    let advancing = (1..=8).flat_map(|step| [Step::Wait(secs(200)), progress(step * 100)]);
    let steps = script(opening(), advancing.chain([content("a"), finish(), done()]));
    let endpoint = Piped::start(Ports::answering([steps]), shipped());
    let answer = endpoint.chat(STREAM).await;
    assert_eq!((answer.content().as_str(), answer.end), ("a", Piece::End));
    assert!(!answer.body.contains("prompt_progress"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_late_is_waited_for_if_the_engine_lives_and_not_if_it_is_dead() {
    let late = || script(vec![Step::Wait(secs(100))], whole());
    for (health, sent, after) in [(Liveness::Alive, 1, 100), (Liveness::Dead, 2, 32)] {
        let ports = Ports::answering([late(), whole()]).with_health([health, health]);
        let endpoint = Piped::start(ports, shipped());
        let started = Instant::now();
        assert_eq!(endpoint.chat(PLAIN).await.content(), "a");
        assert_eq!((endpoint.ports.stage.sent(), started.elapsed().as_secs()), (sent, after));
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_takes_no_connection_has_its_code() {
    for body in [STREAM, PLAIN] {
        let no_connection = || vec![Step::Wait(secs(2)), Step::NoConnection];
        let endpoint = Piped::start(Ports::answering([no_connection(), no_connection()]), shipped());
        let answer = endpoint.chat(body).await;
        let code = answer.error()["code"].clone();
        // Known within the grace or not, it is the same error.
        assert_eq!(
            (code, answer.head.status == 200),
            ("timeout_connect".into(), body == STREAM),
            "{answer:?}"
        );
        assert_eq!((endpoint.ports.stage.sent(), endpoint.ports.stage.going_on()), (2, [0; 3]));
    }
}

#[tokio::test(start_paused = true)]
async fn one_bound_spans_the_wait_and_all_attempts() {
    for body in [STREAM, PLAIN] {
        let died = vec![Step::Wait(secs(25)), Step::Break(Phase::BeforeHeaders)];
        let minutes = |minutes: u64| Turn::After(secs(60 * minutes));
        let ports =
            Ports::answering([died]).with_turns([minutes(30), minutes(30)]).with_health([Liveness::Dead]);
        let endpoint = Piped::start(ports, shipped());
        let started = Instant::now();
        let answer = endpoint.chat(body).await;
        assert_eq!(answer.error()["code"], "timeout_request", "{answer:?}");
        if body == PLAIN {
            assert_eq!(answer.head.status, 504);
            assert_eq!(answer.head.header("x-should-retry"), Some("false"));
        }
        assert_eq!(started.elapsed().as_secs(), 45 * 60);
        assert_eq!(endpoint.ports.stage.going_on(), [0; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_off_by_the_shutdown_says_so_and_so_does_a_plain_answer() {
    let body = r#"{"messages":[{"role":"user","content":"a"}],"stream":true}"#;
    let begun = || script(opening(), [content("a"), Step::Wait(secs(5)), Step::Break(Phase::MidBody)]);
    let silent = || vec![Step::Wait(secs(5)), Step::Break(Phase::BeforeHeaders)];
    // The first engine, and those of a relaunch and of a continuation.
    let died = || vec![Step::Break(Phase::BeforeHeaders)];
    let cut = || script(opening(), [content("a"), Step::Break(Phase::MidBody)]);
    let scripts = [
        (body, vec![begun()]),
        (PLAIN, vec![begun()]),
        (body, vec![silent()]),
        (PLAIN, vec![silent()]),
        (body, vec![died(), silent()]),
        (PLAIN, vec![died(), silent()]),
        (body, vec![died(), begun()]),
        (body, vec![cut(), silent()]),
        (body, vec![cut(), begun()]),
    ];
    for (body, steps) in scripts {
        let sent = steps.len();
        let ports = Ports::answering(steps.into_iter().chain([whole()])).with_health([Liveness::Dead; 2]);
        let endpoint = Piped::start(ports, shipped());
        let (answer, ()) = tokio::join!(endpoint.chat(body), async {
            sleep(secs(2)).await;
            endpoint.app.drain();
        });
        let error = answer.error();
        assert_eq!(error["code"], "draining", "{answer:?}");
        assert_eq!(error["metadata"]["retry_after_ms"], 15_000, "{answer:?}");
        let (status, end) = if body == PLAIN { (503, Piece::End) } else { (200, Piece::Cut) };
        assert_eq!((answer.head.status, &answer.end), (status, &end));
        assert_eq!(endpoint.ports.stage.sent(), sent, "nothing is begun anew");
    }
    // And one that waits for an engine to go on.
    let ports = Ports::answering([cut()])
        .with_turns([Turn::After(secs(0)), Turn::Refused(secs(5), Refusal::Draining)])
        .with_health([Liveness::Dead]);
    let endpoint = Piped::start(ports, shipped());
    let (answer, ()) = tokio::join!(endpoint.chat(body), async {
        sleep(secs(2)).await;
        endpoint.app.drain();
    });
    assert_eq!(answer.error()["code"], "draining", "{answer:?}");
    assert_eq!(endpoint.totals().await["continuations"], 0, "it never had an engine");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_stream_gets_its_head_in_time_and_signs_of_life_from_then_on() {
    let steps = script(opening(), [content("a"), finish(), done()]);
    let ports = Ports::answering([steps]).with_turns([Turn::After(secs(590))]);
    let endpoint = Piped::start(ports, shipped());
    let accepted = Instant::now();
    let mut client = endpoint.connect();
    client.send(post("/v1/chat/completions", STREAM)).await;
    let head = client.head().await.unwrap();
    assert!(accepted.elapsed() <= secs(2), "{:?}", accepted.elapsed());
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("cache-control"), Some("no-cache"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));

    let (mut latest, mut latest_chunk) = (accepted, accepted);
    let mut seen = String::new();
    while accepted.elapsed() < secs(590) {
        let Piece::Data(event) = client.piece().await else { panic!("an end after {seen}") };
        assert!(latest.elapsed() <= secs(15), "silent for {:?}", latest.elapsed());
        latest = Instant::now();
        if event != ": keep-alive\n\n" {
            assert!(latest_chunk.elapsed() <= secs(60), "no chunk for {:?}", latest_chunk.elapsed());
            latest_chunk = Instant::now();
        }
        seen += &event;
    }
    let (rest, end) = client.rest().await;
    assert!(rest.ends_with("data: [DONE]\n\n") && end == Piece::End, "{rest}");
    let chunks: Vec<Value> = (seen + &rest)
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    assert_eq!(chunks[0]["choices"], json!([{ "index": 0, "delta": {}, "finish_reason": null }]));
    assert!(chunks.len() > 10, "{chunks:?}");
    // The engine's chunks go by what ours went by before it spoke.
    assert!(chunks[0]["id"].as_str().is_some_and(|id| id.starts_with("chatcmpl-")), "{chunks:?}");
    for member in ["id", "object", "created", "model"] {
        assert!(chunks.iter().all(|chunk| chunk[member] == chunks[0][member]), "{member}: {chunks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_engine_is_covered_by_chunks_like_its_own() {
    let mut settings = shipped();
    settings.timeouts.idle = secs(120);
    let steps = script(opening(), [content("a"), Step::Wait(secs(100)), content("b"), finish(), done()]);
    let endpoint = Piped::start(Ports::answering([steps]), settings);
    let answer = endpoint.chat(STREAM).await;
    let data = answer.data();
    assert_eq!(
        data[2],
        r#"{"id":"x","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":null}]}"#
    );
    assert_eq!((data.len(), answer.content().as_str()), (6, "ab"), "{}", answer.body);
    assert!(answer.comments().iter().all(|comment| *comment == ": keep-alive"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_known_at_once_has_a_status_and_a_later_one_is_an_event() {
    let refusals = [
        (Refusal::QueueFull { limit: 256 }, 429, "queue_full", "rate_limit_error"),
        (Refusal::QueueTooLong { wait: secs(700), limit: secs(600) }, 429, "queue_full", "rate_limit_error"),
        (Refusal::Stalled { after: secs(180) }, 503, "wait_stalled", "server_error"),
        (Refusal::WaitedTooLong { after: secs(600) }, 503, "wait_too_long", "server_error"),
        (Refusal::Draining, 503, "draining", "server_error"),
        (Refusal::LoadFailed { reason: "no".into() }, 503, "model_load_failed", "server_error"),
    ];
    for (refusal, status, code, kind) in refusals {
        let refused = |after| [Turn::Refused(after, refusal.clone())];
        for body in [STREAM, PLAIN] {
            let ports = Ports::default().with_turns(refused(Duration::from_millis(1400)));
            let answer = Piped::start(ports, shipped()).chat(body).await;
            assert_eq!((answer.head.status, &answer.end), (status, &Piece::End), "{answer:?}");
            assert_eq!([&answer.error()["code"], &answer.error()["type"]], [code, kind]);
            let after: u64 = answer.head.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=60).contains(&after), "{after}");
            let spent = code == "model_load_failed";
            assert_eq!(answer.head.header("x-should-retry"), spent.then_some("false"), "{code}");
        }
        let endpoint = Piped::start(Ports::default().with_turns(refused(secs(2))), shipped());
        let answer = endpoint.chat(STREAM).await;
        assert_eq!((answer.head.status, &answer.end), (200, &Piece::Cut), "{answer:?}");
        let error = answer.error();
        assert_eq!([&error["code"], &error["type"]], [code, kind]);
        assert_eq!(error["metadata"]["retry_after_ms"], 15_000);
        assert_eq!(answer.data().len(), 1, "{}", answer.body);
        assert_eq!(endpoint.totals().await["failed"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_last_finish_reason_nothing_can_spoil_the_answer() {
    let finished = || script(opening(), [content("a"), finish()]);
    let rests = [
        ("the end", vec![], 0),
        ("[DONE] and then nothing", vec![done(), Step::Hang], 0),
        ("nothing", vec![Step::Hang], 2),
        ("pings", pinging(100).collect(), 2),
        ("a cut", vec![Step::Wait(secs(1)), Step::Break(Phase::MidBody)], 1),
    ];
    for (name, rest, after) in rests {
        for body in [STREAM, PLAIN] {
            let endpoint = Piped::start(Ports::answering([script(finished(), rest.clone())]), shipped());
            let started = Instant::now();
            let answer = endpoint.chat(body).await;
            assert_eq!((answer.content().as_str(), &answer.end), ("a", &Piece::End), "{name}: {answer:?}");
            assert_eq!(answer.body.matches("[DONE]").count(), usize::from(body == STREAM), "{name}");
            assert_eq!(started.elapsed().as_secs(), after, "{name}");
            assert_eq!((endpoint.ports.stage.sent(), endpoint.ports.stage.going_on()), (1, [0; 3]), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_given_up_and_costs_little_meanwhile() {
    let flood = script(opening(), [content("a"), Step::Flood("data: {\"choices\":[]}\n\n".repeat(50))]);
    let endpoint = Piped::start(Ports::answering([flood]), shipped());
    let mut client = endpoint.connect();
    client.send(post("/v1/chat/completions", STREAM)).await;
    client.head().await.unwrap();
    sleep(secs(59)).await;
    assert_eq!(endpoint.ports.stage.going_on(), [0, 1, 1]);
    let taken = endpoint.ports.stage.taken();
    assert!(taken < 1024 * 1024, "{taken} bytes wait for the client");
    sleep(secs(2)).await;
    assert_eq!(endpoint.ports.stage.going_on(), [0; 3]);
    let totals = endpoint.totals().await;
    assert_eq!([&totals["failed"], &totals["abandoned"]], [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_error_reaches_also_a_client_that_reads_late() {
    let long = "x".repeat(3000);
    let steps = script(opening(), [content(&long), content(&long), Step::Break(Phase::MidBody)]);
    let endpoint = Piped::start(Ports::answering([steps]), shipped());
    let mut client = endpoint.connect();
    client.send(post("/v1/chat/completions", STREAM)).await;
    sleep(secs(50)).await;
    let answer = client.answer().await;
    assert_eq!((answer.content().len(), &answer.end), (6000, &Piece::Cut));
    assert_eq!(answer.error()["code"], "upstream_died");
}

#[tokio::test(start_paused = true)]
async fn who_never_sends_a_whole_request_is_ended() {
    let endpoint = Piped::start(Ports::default(), shipped());
    for start in ["", "POST /v1/chat/completions HTTP/1.1\r\nhost: "] {
        let mut client = endpoint.connect();
        client.send(start).await;
        let started = Instant::now();
        assert!(client.head().await.is_none_or(|head| head.status == 408));
        assert_eq!(started.elapsed(), secs(100));
    }
    let mut client = endpoint.connect();
    let request = post("/v1/chat/completions", PLAIN);
    client.send(&request[..request.len() - 1]).await;
    let started = Instant::now();
    let answer = client.answer().await;
    assert_eq!((answer.head.status, answer.error()["type"].as_str()), (408, Some("invalid_request_error")));
    assert_eq!(started.elapsed(), secs(60));
}

#[tokio::test(start_paused = true)]
async fn who_leaves_is_noticed_at_once_wherever_the_request_is() {
    let phases = [
        ("the queue", Turn::After(secs(500)), vec![], [1, 0, 0]),
        ("before the head", Turn::After(secs(0)), vec![Step::Hang], [0, 1, 1]),
        ("the prompt", Turn::After(secs(0)), script(opening(), [Step::Hang]), [0, 1, 1]),
        (
            "the answer",
            Turn::After(secs(0)),
            script(opening(), (0..100).flat_map(|_| [content("a"), Step::Wait(secs(1))])),
            [0, 1, 1],
        ),
    ];
    for (name, turn, steps, going_on) in phases {
        for body in [STREAM, PLAIN] {
            let ports = Ports::answering([steps.clone(), steps.clone()]);
            let endpoint = Piped::start(ports.with_turns([turn.clone(), turn.clone()]), shipped());
            for patience in [Duration::from_millis(500), secs(20)] {
                let mut client = endpoint.connect();
                client.send(post("/v1/chat/completions", body)).await;
                let _ = timeout(patience, client.answer()).await.map(|answer| panic!("{name}: {answer:?}"));
                if patience < secs(1) {
                    assert_eq!(endpoint.ports.stage.going_on(), going_on, "{name} {body}");
                }
                drop(client);
                sleep(Duration::from_millis(900)).await;
                assert_eq!(endpoint.ports.stage.going_on(), [0; 3], "{name} {body}");
            }
            let totals = endpoint.totals().await;
            assert_eq!([&totals["requests"], &totals["failed"], &totals["abandoned"]], [2, 0, 2], "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_and_not_a_silence() {
    let steps = || script(opening(), [content("a"), Step::Wait(secs(3)), Step::Panic]);
    for (body, status) in [(PLAIN, 500), (STREAM, 200)] {
        let endpoint = Piped::start(Ports::answering([steps()]), shipped());
        let answer = endpoint.chat(body).await;
        assert_eq!((answer.head.status, answer.error()["code"].as_str()), (status, Some("internal")));
        assert_eq!(answer.end, if body == STREAM { Piece::Cut } else { Piece::End });
        assert!(answer.head.header("x-request-id").is_some());
        let totals = endpoint.totals().await;
        assert_eq!([&totals["failed"], &totals["abandoned"]], [1, 0], "{body}");
        assert_eq!(endpoint.ports.stage.going_on(), [0; 3]);
    }
    let queue = Piped::start(Ports::default().with_turns([Turn::Panic]), shipped());
    assert_eq!(queue.chat(STREAM).await.head.status, 500);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_idle_connections_and_lets_answers_finish() {
    let slow = script(opening(), [content("a"), Step::Wait(secs(50)), content("b"), finish(), done()]);
    let endpoint = Piped::start(Ports::answering([slow]), shipped());
    let (mut fresh, mut idle, mut busy) = (endpoint.connect(), endpoint.connect(), endpoint.connect());
    assert_eq!(idle.ask("GET /livez HTTP/1.1\r\nhost: gglib\r\n\r\n").await.head.status, 200);
    busy.send(post("/v1/chat/completions", STREAM)).await;
    busy.head().await.unwrap();
    let started = Instant::now();
    let (answer, fresh_end, idle_end, ()) = tokio::join!(
        busy.rest(),
        async { (fresh.head().await.is_none(), started.elapsed()) },
        async { (idle.head().await.is_none(), started.elapsed()) },
        endpoint.shut_down()
    );
    assert!(answer.0.ends_with("data: [DONE]\n\n") && answer.1 == Piece::End, "{answer:?}");
    assert_eq!([fresh_end, idle_end], [(true, secs(0)); 2]);
    assert_eq!(started.elapsed(), secs(50));
}
