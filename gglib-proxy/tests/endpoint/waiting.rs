//! What a waiting or refused client is told: where it stands, and when to come back.

use std::time::Duration;

use gglib_core::admission::{ModelSnapshot, Outlook, Refusal, Snapshot, WaitPhase};
use gglib_core::model::ModelName;
use gglib_core::ports::Refused;
use gglib_core::retry::BreakerSettings;
use gglib_testkit::wire::{Piece, post};
use gglib_testkit::{Death, End, Engines, Launch, Reply, Script};
use http::StatusCode;
use tokio::time::Instant;

use crate::pipes::{MODEL, Piped};
use crate::ports::{Ports, Step, Turn, content, done, finish, opening, progress};
use crate::served::{BOUND, Served, shipped};

const STREAM: &str = r#"{"messages":[],"stream":true}"#;
const PLAIN: &str = r#"{"messages":[]}"#;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn whole() -> Vec<Step> {
    opening().into_iter().chain([content("a"), finish(), done()]).collect()
}

fn outlook(position: usize, phase: WaitPhase, estimate: Option<u64>) -> (Duration, Option<Outlook>) {
    let estimate = estimate.map(Duration::from_millis);
    let percent = (phase == WaitPhase::Loading).then_some(55);
    (Duration::ZERO, Some(Outlook { position, estimate, phase, percent }))
}

/// T39: whoever waits for a long load sees what for, and for how long.
#[tokio::test(start_paused = true)]
async fn a_waiting_stream_is_told_where_it_stands() {
    let ports = Ports::answering([whole()]).with_turns([Turn::After(secs(18))]).with_outlooks([
        outlook(3, WaitPhase::Turn, None),
        outlook(2, WaitPhase::Turn, Some(14_200)),
        outlook(2, WaitPhase::Loading, Some(9_000)),
        outlook(1, WaitPhase::Place, Some(0)),
    ]);
    let endpoint = Piped::start(ports, shipped());
    let accepted = Instant::now();
    let mut client = endpoint.connect();
    client.send(post("/v1/chat/completions", STREAM)).await;
    client.head().await.unwrap();
    let told = [
        (1500, ": keep-alive waiting position=3 phase=turn\n\n"),
        (6000, ": keep-alive waiting position=2 phase=turn estimate_s=15\n\n"),
        (11_000, ": keep-alive waiting position=2 phase=loading percent=55 estimate_s=9\n\n"),
        (16_000, ": keep-alive waiting position=1 phase=place estimate_s=0\n\n"),
    ];
    for (at, comment) in told {
        assert_eq!(client.piece().await, Piece::Data(comment.to_owned()));
        assert_eq!(accepted.elapsed(), Duration::from_millis(at), "{comment}");
    }
    let (rest, end) = client.rest().await;
    assert!(rest.starts_with("data: {") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert_eq!(end, Piece::End);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_does_not_say_how_a_wait_stands_holds_no_stream_up() {
    let silent = (0..100).map(|_| (secs(5), None));
    let ports = Ports::answering([whole()]).with_turns([Turn::After(secs(48))]).with_outlooks(silent);
    let endpoint = Piped::start(ports, shipped());
    let accepted = Instant::now();
    let mut client = endpoint.connect();
    client.send(post("/v1/chat/completions", STREAM)).await;
    client.head().await.unwrap();
    for at in [11_500, 21_500, 31_500, 41_500] {
        assert_eq!(client.piece().await, Piece::Data(": keep-alive\n\n".to_owned()));
        assert_eq!(accepted.elapsed(), Duration::from_millis(at));
    }
    assert!(client.rest().await.0.ends_with("data: [DONE]\n\n"));
    // The grant was taken when the question was given up.
    assert!(accepted.elapsed() <= secs(48 + 5), "{:?}", accepted.elapsed());
}

/// T24: a client with an idle limit survives a wait of minutes, whatever is waited for.
#[tokio::test(start_paused = true)]
async fn a_stream_is_never_silent_in_the_queue_during_a_load_and_during_a_long_prompt() {
    let phases = [WaitPhase::Turn, WaitPhase::Loading, WaitPhase::Place];
    let outlooks = (0..72).map(|count| outlook(1, phases[count / 24], Some(1000)));
    let prefill = (1..=6).flat_map(|step| [Step::Wait(secs(50)), progress(step * 100)]);
    let steps =
        vec![Step::Head(StatusCode::OK)].into_iter().chain(prefill).chain(whole().into_iter().skip(1));
    let ports =
        Ports::answering([steps.collect()]).with_turns([Turn::After(secs(360))]).with_outlooks(outlooks);
    let endpoint = Piped::start(ports, shipped());
    let accepted = Instant::now();
    let mut client = endpoint.connect();
    client.send(post("/v1/chat/completions", STREAM)).await;
    client.head().await.unwrap();
    assert!(accepted.elapsed() < secs(2), "{:?}", accepted.elapsed());
    let (mut latest, mut latest_chunk, mut seen) = (accepted, accepted, String::new());
    while !seen.ends_with("data: [DONE]\n\n") {
        let Piece::Data(event) = client.piece().await else { panic!("an end after {seen}") };
        assert!(latest.elapsed() <= secs(15), "silent for {:?}", latest.elapsed());
        latest = Instant::now();
        if event.starts_with("data: ") {
            assert!(latest_chunk.elapsed() <= secs(60), "no chunk for {:?}", latest_chunk.elapsed());
            latest_chunk = Instant::now();
        } else {
            assert!(event.starts_with(": keep-alive") && event.ends_with("\n\n"), "{event:?}");
        }
        seen += &event;
    }
    assert_eq!(accepted.elapsed(), secs(360 + 300));
    assert!(phases.iter().all(|phase| seen.contains(&format!("phase={}", phase.as_str()))), "{seen}");
}

fn refused(refusal: Refusal, retry_after: u64) -> Refused {
    Refused { refusal, retry_after: Some(Duration::from_millis(retry_after)) }
}

fn serving_every(interval: Duration) -> Snapshot {
    let model = ModelName::new(MODEL);
    let known = ModelSnapshot { model, loads: 1, loading: secs(1), interval: Some(interval) };
    Snapshot { models: vec![known], ..Snapshot::default() }
}

#[tokio::test(start_paused = true)]
async fn each_refused_client_is_told_the_time_of_a_place_of_its_own() {
    let full = || Turn::RefusedUntil(Duration::ZERO, refused(Refusal::QueueFull { limit: 256 }, 12_300));
    let ports = Ports::default().with_turns([full(), full(), full()]);
    let endpoint = Piped::start(ports.showing(serving_every(Duration::from_millis(800))), shipped());
    for (seconds, millis) in [("13", 12_300), ("14", 13_100), ("14", 13_900)] {
        let answer = endpoint.chat(STREAM).await;
        assert_eq!(answer.head.status, 429);
        assert_eq!(answer.head.header("retry-after"), Some(seconds));
        assert_eq!(answer.head.header("retry-after-ms"), Some(millis.to_string().as_str()));
        assert_eq!(answer.error()["metadata"]["retry_after_ms"], millis);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_tells_the_truth_also_inside_a_stream_and_beyond_a_minute() {
    let breaker = Refusal::BreakerOpen { failures: 3, reason: "no".into() };
    let refusals = [
        (Refusal::WaitedTooLong { after: secs(600) }, "wait_too_long"),
        (Refusal::Stalled { after: secs(180) }, "wait_stalled"),
        (breaker, "breaker_open"),
    ];
    for (refusal, code) in refusals {
        let refused = |after| Turn::RefusedUntil(after, refused(refusal.clone(), 75_250));
        let ports = Ports::default().with_turns([refused(secs(3)), refused(Duration::ZERO)]);
        let endpoint = Piped::start(ports, shipped());
        let late = endpoint.chat(STREAM).await;
        assert_eq!((late.head.status, late.error()["code"].as_str()), (200, Some(code)));
        assert_eq!(late.error()["metadata"]["retry_after_ms"], 75_250, "{code}");
        let early = endpoint.chat(PLAIN).await;
        assert_eq!((early.head.status, early.head.header("retry-after")), (503, Some("60")), "{code}");
        assert_eq!(early.error()["metadata"]["retry_after_ms"], 75_250, "{code}");
    }
}

/// T25: with answers measured, one request too many hears when there is room.
#[tokio::test]
async fn a_full_queue_refuses_before_any_byte_with_a_time_from_what_was_measured() {
    // The first answer is measured, and the second is what is waited for.
    let paced = |pace| Reply { pace: Duration::from_millis(pace), ..Reply::numbered(10) };
    let replies = vec![paced(100), paced(500), paced(0)];
    let scripted = Script::always(Launch { replies, ..Launch::default() }).place();
    let mut engines = Engines::fake().scripted("a", &scripted);
    engines.admission.queue = 2;
    let served = Served::start(engines, shipped()).await;
    assert_eq!(served.chat(STREAM).await.head.status, 200);
    let others = futures_util::future::join_all((0..3).map(|_| served.chat(STREAM)));
    let refused = async {
        served.until("a full queue", |status| status["queue"][0]["waiting"] == 2).await;
        let status = served.status().await;
        (served.chat(STREAM).await, served.chat(STREAM).await, status)
    };
    let (others, (first, second, status)) = tokio::join!(others, refused);
    assert!(others.iter().all(|answer| answer.content().split(' ').count() == 11), "{others:?}");
    let told = [&first, &second].map(|answer| {
        assert_eq!((answer.head.status, &answer.end), (429, &Piece::End), "{answer:?}");
        assert_eq!(answer.error()["type"], "rate_limit_error");
        let seconds: u64 = answer.head.header("retry-after").unwrap().parse().unwrap();
        let millis = answer.error()["metadata"]["retry_after_ms"].as_u64().unwrap();
        assert_eq!(millis.div_ceil(1000).max(1), seconds);
        millis
    });
    assert!(told[0] < 15_000, "it is no default: {told:?}");
    assert!(told[1] > told[0], "a place of its own: {told:?}");
    let waiters = status["queue"][0]["first"].as_array().unwrap();
    let positions: Vec<_> = waiters.iter().map(|waiter| waiter["position"].as_u64()).collect();
    assert_eq!(positions, [Some(1), Some(2)]);
    assert!(waiters.iter().all(|waiter| waiter["phase"] == "place" && waiter["estimate_ms"].is_u64()));
    assert!(waiters.iter().all(|waiter| waiter["percent"].is_null()));
}

/// T40: what nobody configured is told from what cannot be served now.
#[tokio::test]
async fn an_unknown_model_is_404_with_near_names_and_a_known_one_that_is_not_ready_503_with_a_time() {
    let last_words = "llama_model_load: unknown model architecture: 'x'";
    let dying = Launch {
        stderr: vec!["build: 1".to_owned(), last_words.to_owned()],
        death: Some(Death::BeforeBind),
        end: End::Exit(1),
        ..Launch::default()
    };
    let scripted = Script::always(dying).place();
    let mut engines = Engines::fake().scripted("smollm2", &scripted);
    engines.admission.breaker = BreakerSettings::MODEL_LOAD;
    let served = Served::start(engines, shipped()).await;

    let unknown = served.chat(r#"{"model":"smolm2","messages":[],"stream":true}"#).await;
    assert_eq!((unknown.head.status, unknown.error()["code"].as_str()), (404, Some("model_not_found")));
    assert!(unknown.error()["message"].as_str().unwrap().contains("did you mean `smollm2`"));
    assert_eq!(unknown.head.header("retry-after"), None);
    assert_eq!(scripted.log().launches(), 0);

    let known = r#"{"model":"smollm2","messages":[],"stream":true}"#;
    let failed = tokio::time::timeout(BOUND, served.chat(known)).await.unwrap();
    assert_eq!(failed.error()["code"], "model_load_failed");
    let refused = served.chat(known).await;
    assert_eq!((refused.head.status, refused.error()["code"].as_str()), (503, Some("breaker_open")));
    // Why, in the engine's own last words, and when it is tried again.
    let error = refused.error();
    let message = error["message"].as_str().unwrap();
    let why = "the model could not be loaded (1 in a row failed), and the next load waits: llama-server ended with exit \
               status 1 while loading; its last lines:\nbuild: 1\n";
    assert!(message.contains(why) && message.contains(last_words), "{message}");
    let millis = error["metadata"]["retry_after_ms"].as_u64().unwrap();
    assert!((1..=10_000).contains(&millis), "the time until the probe: {millis}");
    let seconds: u64 = refused.head.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(seconds, millis.div_ceil(1000));
    assert_eq!(scripted.log().launches(), 1);
    let status = served.status().await;
    let breaker = &status["breakers"][0];
    assert_eq!((breaker["model"].as_str(), breaker["state"].as_str()), (Some("smollm2"), Some("open")));
    assert!(breaker["retry_in_ms"].as_u64().is_some_and(|left| left <= 10_000), "{breaker}");
}

#[tokio::test(start_paused = true)]
async fn the_last_twenty_requests_are_remembered_the_latest_first_and_nothing_of_what_they_said() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":20}}}"#;
    let dead = vec![Step::Break(gglib_core::ports::Phase::BeforeHeaders)];
    let mut used = opening();
    used.extend([content("secret"), finish(), Step::Send(format!("data: {usage}\n\n")), done()]);
    let drained = (0..20).map(|_| Turn::Refused(secs(1), Refusal::Draining));
    let waits = [Turn::After(secs(2)), Turn::After(secs(3))];
    let ports = Ports::answering([dead, used])
        .with_health([gglib_core::ports::Liveness::Dead])
        .with_turns(drained.chain(waits));
    let endpoint = Piped::start(ports, shipped());
    for _ in 0..20 {
        endpoint.chat(PLAIN).await;
    }
    let named = post("/v1/chat/completions", PLAIN).replacen("\r\n\r\n", "\r\nx-request-id: mine\r\n\r\n", 1);
    assert_eq!(endpoint.connect().ask(named).await.content(), "secret");
    let status = endpoint.status().await;
    let recent = status["recent"].as_array().unwrap();
    assert_eq!(recent.len(), 20);
    let mut last = recent[0].clone();
    assert!(last["ended_at"].take().as_u64().is_some_and(|at| at > 1_600_000_000));
    assert_eq!(
        last.to_string(),
        r#"{"request_id":"mine","ended_at":null,"model":"m","outcome":"success","code":null,"waited_ms":5000,"duration_ms":5000,"prompt_tokens":30,"cached_tokens":20,"completion_tokens":7,"recovery":"relaunch"}"#
    );
    assert_eq!(
        (recent[1]["outcome"].as_str(), recent[1]["code"].as_str()),
        (Some("refused"), Some("draining"))
    );
    assert_eq!(recent[1]["waited_ms"], 1000);
    assert!(!status.to_string().contains("secret"));
}
