//! One-shot recoveries step by step: when they are taken, how they are told, and that they happen once.

use std::time::Duration;

use gglib_core::admission::Refusal;
use gglib_core::model::{Catalog, ModelName, ModelSpec};
use gglib_core::ports::{Liveness, Phase};
use gglib_proxy::Settings;
use gglib_testkit::wire::{Answer, Piece};
use http::StatusCode;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::pipes::{MODEL, Piped};
use crate::ports::{Ports, Step, Turn, content, done, finish, opening};
use crate::served::shipped;

const STREAM: &str = r#"{"messages":[],"stream":true}"#;
const PLAIN: &str = r#"{"messages":[]}"#;

fn whole() -> Vec<Step> {
    opening().into_iter().chain([content("a"), finish(), done()]).collect()
}

fn broken(phase: Phase) -> Vec<Step> {
    vec![Step::Break(phase)]
}

fn late(seconds: u64, phase: Phase) -> Vec<Step> {
    vec![Step::Wait(Duration::from_secs(seconds)), Step::Break(phase)]
}

async fn run(ports: Ports, body: &str) -> (Answer, Piped) {
    let endpoint = Piped::start(ports, shipped());
    let answer = endpoint.chat(body).await;
    (answer, endpoint)
}

async fn recoveries(endpoint: &Piped) -> [u64; 2] {
    let totals = endpoint.totals().await;
    [&totals["resends"], &totals["relaunches"]].map(|count| count.as_u64().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_recovery_before_the_head_is_told_in_a_header_and_a_later_one_in_a_comment() {
    for (health, how) in [(Liveness::Alive, "resend"), (Liveness::Dead, "relaunch")] {
        for body in [STREAM, PLAIN] {
            let ports = Ports::answering([broken(Phase::BeforeHeaders), whole()]).with_health([health]);
            let (answer, endpoint) = run(ports, body).await;
            assert_eq!((answer.content().as_str(), &answer.end), ("a", &Piece::End), "{how}: {answer:?}");
            assert_eq!(answer.head.header("x-gglib-recovery"), Some(how));
            assert!(!answer.body.contains("gglib-recovery"), "{}", answer.body);
            assert_eq!(endpoint.ports.stage.sent(), 2);
        }
        let ports = Ports::answering([late(5, Phase::BeforeHeaders), whole()]).with_health([health]);
        let (answer, endpoint) = run(ports, STREAM).await;
        assert_eq!(answer.head.header("x-gglib-recovery"), None);
        assert!(answer.body.starts_with(&format!(": gglib-recovery {how}\n\ndata: ")), "{}", answer.body);
        assert_eq!((answer.content().as_str(), &answer.end), ("a", &Piece::End));
        let expected = if how == "resend" { [1, 0] } else { [0, 1] };
        assert_eq!(recoveries(&endpoint).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn each_recovery_happens_once_and_then_it_is_over() {
    use Liveness::{Alive, Dead};
    use Phase::{AfterHeaders, BeforeHeaders, Connect};
    // The phases of successive failures, what each suspicion came to, and how it all ends: requests that reached
    // an engine, recoveries of each kind, and the code, if it is an error.
    let table = [
        (vec![Connect], vec![Alive], 2, [1, 0], None),
        (vec![Connect], vec![Dead], 2, [0, 1], None),
        (vec![Connect, BeforeHeaders], vec![Alive, Dead], 3, [1, 1], None),
        (vec![Connect, BeforeHeaders], vec![Alive, Alive], 2, [1, 0], Some("upstream_died")),
        (vec![BeforeHeaders, Connect], vec![Dead, Alive], 2, [0, 1], Some("upstream_unreachable")),
        (vec![BeforeHeaders, Connect], vec![Dead, Dead], 2, [0, 1], Some("upstream_unreachable")),
        (vec![Connect, Connect, AfterHeaders], vec![Alive, Dead, Dead], 3, [1, 1], Some("upstream_died")),
    ];
    for (phases, health, sent, counted, code) in table {
        for body in [STREAM, PLAIN] {
            let name = format!("{phases:?} {health:?} {body}");
            let scripts = phases.iter().map(|&phase| match phase {
                AfterHeaders => vec![Step::Head(StatusCode::OK), Step::Break(phase)],
                phase => broken(phase),
            });
            let ports = Ports::answering(scripts.chain([whole()])).with_health(health.clone());
            let (answer, endpoint) = run(ports, body).await;
            assert_eq!(endpoint.ports.stage.sent(), sent, "{name}");
            assert_eq!(recoveries(&endpoint).await, counted, "{name}");
            assert_eq!(endpoint.ports.stage.going_on(), [0; 3], "{name}");
            match code {
                None => assert_eq!(answer.content(), "a", "{name}"),
                Some(code) => {
                    assert_eq!(
                        (answer.head.status, answer.error()["code"].as_str()),
                        (502, Some(code)),
                        "{name}"
                    );
                    assert_eq!(answer.head.header("x-should-retry"), Some("false"), "{name}");
                    let last = if counted[1] > 0 { "relaunch" } else { "resend" };
                    assert_eq!(answer.head.header("x-gglib-recovery"), Some(last), "{name}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_after_a_recovery_is_not_worth_retrying_whatever_the_engine_says() {
    use Liveness::{Alive, Dead};
    let says = |status: StatusCode| {
        let error = json!({ "error": { "message": "no", "code": status.as_u16() } });
        vec![Step::Head(status), Step::Send(error.to_string())]
    };
    let garbage = || vec![Step::Head(StatusCode::OK), Step::Send("data: {garbage}\n\n".to_owned())];
    let broken = || broken(Phase::BeforeHeaders);
    // The answers, what each suspicion came to, and of the error: its status, and what it says of a further try.
    let table = [
        (vec![broken(), says(StatusCode::INTERNAL_SERVER_ERROR)], vec![Dead, Alive], 500, Some("false")),
        (vec![broken(), says(StatusCode::INTERNAL_SERVER_ERROR)], vec![Alive, Alive], 500, Some("false")),
        (vec![broken(), garbage()], vec![Dead], 502, Some("false")),
        (vec![broken(), garbage()], vec![Alive], 502, Some("false")),
        (vec![broken(), broken(), garbage()], vec![Alive, Dead], 502, Some("false")),
        // These tell a client what to do by themselves.
        (vec![broken(), says(StatusCode::SERVICE_UNAVAILABLE)], vec![Dead], 503, None),
        (vec![broken(), says(StatusCode::BAD_REQUEST)], vec![Dead], 400, None),
        // Without a recovery, a client may try again.
        (vec![says(StatusCode::INTERNAL_SERVER_ERROR)], vec![Alive], 500, None),
        (vec![garbage()], vec![], 502, None),
    ];
    for (answers, health, status, advice) in table {
        for body in [STREAM, PLAIN] {
            let ports = Ports::answering(answers.clone()).with_health(health.clone());
            let (answer, _) = run(ports, body).await;
            let name = format!("{answers:?} {health:?} {answer:?}");
            assert_eq!(answer.head.status, status, "{name}");
            assert_eq!(answer.head.header("x-should-retry"), advice, "{name}");
            assert_eq!(answer.head.header("retry-after").is_some(), status == 503, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_has_seen_is_never_sent_twice() {
    let seen: [Vec<Step>; 3] = [
        vec![content("a")],
        vec![Step::Send(crate::ports::event(r#"{"reasoning_content":"hm"}"#, "null"))],
        vec![Step::Send(crate::ports::event(r#"{"tool_calls":[{"index":0,"id":"1"}]}"#, "null"))],
    ];
    for (index, seen) in seen.into_iter().enumerate() {
        for health in [Liveness::Alive, Liveness::Dead] {
            let script = opening().into_iter().chain(seen.clone()).chain([Step::Break(Phase::MidBody)]);
            let ports = Ports::answering([script.collect(), whole()]).with_health([health]);
            let (answer, endpoint) = run(ports, STREAM).await;
            assert_eq!((&answer.end, endpoint.ports.stage.sent()), (&Piece::Cut, 1), "{index} {answer:?}");
            assert_eq!(answer.error()["code"], "upstream_died", "{index}");
            assert_eq!(recoveries(&endpoint).await, [0, 0], "{index}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_has_not_seen_leaves_no_trace_of_the_first_attempt() {
    let first = [
        Step::Head(StatusCode::OK),
        Step::Send(
            crate::ports::event(r#"{"role":"assistant","content":null}"#, "null")
                .replace("\"x\"", "\"first\""),
        ),
        Step::Send(":\n\n".to_owned()),
        Step::Break(Phase::MidBody),
    ];
    for body in [STREAM, PLAIN] {
        let ports = Ports::answering([first.to_vec(), whole()]).with_health([Liveness::Dead]);
        let (answer, _) = run(ports, body).await;
        assert_eq!(answer.content(), "a");
        assert!(!answer.body.contains("first"), "{}", answer.body);
    }
    // A plain client has seen nothing even of a long answer.
    let half = opening().into_iter().chain([content("half"), Step::Break(Phase::MidBody)]).collect();
    let (answer, endpoint) =
        run(Ports::answering([half, whole()]).with_health([Liveness::Dead]), PLAIN).await;
    assert_eq!((answer.content().as_str(), endpoint.ports.stage.sent()), ("a", 2));
}

/// Progress that the client asked for is handed on, and is no content: the engine may still be replaced.
#[tokio::test(start_paused = true)]
async fn an_answer_goes_by_one_id_also_when_progress_of_another_engine_was_seen() {
    let Step::Send(told) = crate::ports::progress(500) else { unreachable!() };
    let first = [
        Step::Head(StatusCode::OK),
        Step::Send(told.replace("\"x\"", "\"first\"")),
        Step::Break(Phase::MidBody),
    ];
    let ports = Ports::answering([first.to_vec(), whole()]).with_health([Liveness::Dead]);
    let (answer, endpoint) = run(ports, r#"{"messages":[],"stream":true,"return_progress":true}"#).await;
    assert_eq!((answer.content().as_str(), &answer.end), ("a", &Piece::End), "{answer:?}");
    assert_eq!(recoveries(&endpoint).await, [0, 1]);
    let data = answer.data();
    let chunks: Vec<_> =
        data[..data.len() - 1].iter().map(|data| data.contains("\"id\":\"first\"")).collect();
    assert!(chunks.len() > 2 && chunks.iter().all(|is_first| *is_first), "{}", answer.body);
}

/// What is torn behind the last `finish_reason` is no part of the answer.
#[tokio::test(start_paused = true)]
async fn an_engine_that_dies_over_its_usage_has_answered() {
    let torn = "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"completion_to";
    for torn in [torn.to_owned(), format!("{torn}\n")] {
        for (end, body) in [(Step::Break(Phase::MidBody), STREAM), (Step::Hang, STREAM), (Step::Hang, PLAIN)]
        {
            let steps = opening().into_iter().chain([content("a"), finish(), Step::Send(torn.clone()), end]);
            let ports = Ports::answering([steps.collect()]).with_health([Liveness::Dead]);
            let (answer, endpoint) = run(ports, body).await;
            assert_eq!((answer.head.status, &answer.end), (200, &Piece::End), "{answer:?}");
            assert_eq!(answer.content(), "a", "{answer:?}");
            assert!(!answer.body.contains("error"), "{answer:?}");
            assert_eq!((recoveries(&endpoint).await, endpoint.ports.stage.sent()), ([0, 0], 1));
        }
    }
}

/// An engine without chunked encoding ends its body by closing the connection, also when it is killed.
#[tokio::test(start_paused = true)]
async fn an_event_that_is_torn_by_the_end_of_the_body_is_a_suspicion() {
    for torn in ["data: {\"id\":\"x\",\"choi", "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\n"] {
        for (health, counted) in [(Liveness::Alive, [1, 0]), (Liveness::Dead, [0, 1])] {
            for body in [STREAM, PLAIN] {
                let first = opening().into_iter().chain([Step::Send(torn.to_owned())]).collect();
                let ports = Ports::answering([first, whole()]).with_health([health]);
                let (answer, endpoint) = run(ports, body).await;
                assert_eq!((answer.content().as_str(), &answer.end), ("a", &Piece::End), "{answer:?}");
                assert_eq!(recoveries(&endpoint).await, counted);
            }
        }
    }
    // Nothing is torn of an event that lacks nothing but the blank line behind it.
    let error = r#"data: {"error":{"message":"no","type":"invalid_request_error","code":400}}"#;
    for body in [STREAM, PLAIN] {
        let first = opening().into_iter().chain([Step::Send(error.to_owned())]).collect();
        let (answer, endpoint) = run(Ports::answering([first, whole()]), body).await;
        assert_eq!((answer.head.status, endpoint.ports.stage.sent()), (400, 1), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn however_many_chunks_without_content_came_first_the_client_sees_one_answer() {
    let empty = Step::Send(crate::ports::event(r#"{"content":""}"#, "null").replace("\"x\"", "\"first\""));
    let first = opening().into_iter().chain(vec![empty; 100]).chain([Step::Break(Phase::MidBody)]).collect();
    let ports = Ports::answering([first, whole()]).with_health([Liveness::Dead]);
    let (answer, endpoint) = run(ports, STREAM).await;
    assert_eq!((answer.content().as_str(), &answer.end), ("a", &Piece::End), "{answer:?}");
    assert_eq!(answer.body.matches("\"role\"").count(), 1, "{}", answer.body);
    assert!(!answer.body.contains("first"), "{}", answer.body);
    assert_eq!(recoveries(&endpoint).await, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_hangs_is_replaced_whatever_its_health_probe_says() {
    let pings =
        |count| (0..count).flat_map(|_| [Step::Wait(Duration::from_secs(1)), Step::Send(":\n\n".to_owned())]);
    let hangs: [Vec<Step>; 3] = [
        vec![Step::Hang],
        opening().into_iter().chain([Step::Hang]).collect(),
        opening().into_iter().chain(pings(400)).collect(),
    ];
    for steps in hangs {
        for health in [Liveness::Alive, Liveness::Dead] {
            for body in [STREAM, PLAIN] {
                let ports = Ports::answering([steps.clone(), whole()]).with_health([health, health]);
                let (answer, endpoint) = run(ports, body).await;
                assert_eq!(answer.content(), "a", "{answer:?}");
                let stage = &endpoint.ports.stage;
                assert_eq!((stage.sent(), stage.condemned(), stage.worked()), (2, 1, 1), "{steps:?}");
                assert_eq!(recoveries(&endpoint).await, [0, 1]);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_hangs_twice_is_not_replaced_a_second_time() {
    for body in [STREAM, PLAIN] {
        let (answer, endpoint) =
            run(Ports::answering([vec![Step::Hang], vec![Step::Hang], whole()]), body).await;
        assert_eq!(answer.error()["code"], "timeout_response_headers", "{answer:?}");
        // The next request must not meet the second one either.
        assert_eq!((endpoint.ports.stage.sent(), endpoint.ports.stage.condemned()), (2, 2));
        assert_eq!(recoveries(&endpoint).await, [0, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_at_everything_is_replaced_and_one_that_failed_at_this_is_not() {
    let error = r#"{"error":{"message":"Compute error.","type":"server_error","code":500}}"#;
    let status = vec![Step::Head(StatusCode::INTERNAL_SERVER_ERROR), Step::Send(error.to_owned())];
    let event = vec![Step::Head(StatusCode::OK), Step::Send(format!("data: {error}\n\n"))];
    for steps in [status, event] {
        for body in [STREAM, PLAIN] {
            for (health, sent) in [(Liveness::Alive, 1), (Liveness::Dead, 2)] {
                let ports = Ports::answering([steps.clone(), whole()]).with_health([health]);
                let (answer, endpoint) = run(ports, body).await;
                assert_eq!(endpoint.ports.stage.sent(), sent, "{answer:?}");
                if sent == 1 {
                    assert_eq!(
                        (answer.head.status, &answer.error()["code"]),
                        (500, &"upstream_error".into())
                    );
                } else {
                    assert_eq!(answer.content(), "a", "{answer:?}");
                }
                assert_eq!(recoveries(&endpoint).await, [0, sent as u64 - 1]);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_relaunch_that_is_refused_says_so() {
    let refused = Refusal::LoadFailed { reason: "out of memory".into() };
    let ports = Ports::answering([broken(Phase::Connect)])
        .with_turns([Turn::After(Duration::ZERO), Turn::Refused(Duration::ZERO, refused)])
        .with_health([Liveness::Dead]);
    let (answer, endpoint) = run(ports, STREAM).await;
    assert_eq!((answer.head.status, answer.error()["code"].as_str()), (503, Some("model_load_failed")));
    assert_eq!(answer.head.header("x-should-retry"), Some("false"));
    assert!(answer.head.header("retry-after").is_some());
    assert!(answer.body.contains("out of memory"), "{}", answer.body);
    assert_eq!(answer.head.header("x-gglib-recovery"), Some("relaunch"));
    assert_eq!(recoveries(&endpoint).await, [0, 0], "there was no other engine");
}

#[tokio::test(start_paused = true)]
async fn a_relaunch_is_by_the_settings_of_its_moment() {
    let mut changed = shipped();
    changed.timeouts.total = Duration::from_secs(100);
    for (settings, expected) in [(Settings { relaunch: false, ..shipped() }, 1), (changed, 2)] {
        let endless = (0..100).flat_map(|_| [content("a"), Step::Wait(Duration::from_secs(50))]);
        let endless = opening().into_iter().chain(endless).collect();
        let ports = Ports::answering([late(5, Phase::BeforeHeaders), endless]).with_health([Liveness::Dead]);
        let endpoint = Piped::start(ports, shipped());
        let started = Instant::now();
        let (answer, ()) = tokio::join!(endpoint.chat(PLAIN), async {
            sleep(Duration::from_secs(1)).await;
            let models = Catalog::new([(ModelName::new(MODEL), ModelSpec::new("m.gguf"))].into());
            endpoint.app.configure(models, settings, Vec::new());
        });
        assert_eq!(endpoint.ports.stage.sent(), expected, "{answer:?}");
        if expected == 2 {
            assert_eq!(answer.error()["code"], "timeout_total");
            assert_eq!(started.elapsed(), Duration::from_secs(5 + 100));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_engines_own_error_is_the_answer_wherever_it_stands() {
    let error = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
    let whole = vec![Step::Head(StatusCode::SERVICE_UNAVAILABLE), Step::Send(error.to_owned())];
    let torn = vec![Step::Head(StatusCode::BAD_REQUEST), Step::Break(Phase::AfterHeaders)];
    let event = vec![Step::Head(StatusCode::OK), Step::Send(format!("data: {error}\n\n"))];
    for (script, status, code) in
        [(whole, 503, "model_loading"), (torn, 400, "invalid_request"), (event, 503, "model_loading")]
    {
        for body in [STREAM, PLAIN] {
            let (answer, endpoint) = run(Ports::answering([script.clone()]), body).await;
            assert_eq!(
                (answer.head.status, answer.error()["code"].as_str()),
                (status, Some(code)),
                "{answer:?}"
            );
            assert_eq!(answer.head.header("retry-after"), (status == 503).then_some("15"));
            assert_eq!(endpoint.ports.stage.sent(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_stream_counts_like_its_status_and_is_told_once() {
    let error = |code: u16| format!("data: {{\"error\":{{\"message\":\"no\",\"code\":{code}}}}}\n\n");
    for (code, waits) in [(429, true), (503, true), (400, false), (401, false)] {
        for opens in [false, true] {
            for body in [STREAM, PLAIN] {
                let head = if opens { opening() } else { vec![Step::Head(StatusCode::OK)] };
                // Whoever goes on reading, or asking, finds more than the one error.
                let steps = head.into_iter().chain([Step::Send(error(code)), content("a"), finish(), done()]);
                let (answer, endpoint) = run(Ports::answering([steps.collect(), whole()]), body).await;
                assert_eq!((answer.head.status, &answer.end), (code, &Piece::End), "{answer:?}");
                assert_eq!(answer.head.header("retry-after").is_some(), waits, "{code}");
                assert_eq!(endpoint.ports.stage.sent(), 1, "{code}");
                assert_eq!(recoveries(&endpoint).await, [0, 0]);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_without_content_leaves_the_window_open() {
    let usage = Step::Send("data: {\"id\":\"x\",\"choices\":[],\"usage\":null}\n\n".to_owned());
    let empty = Step::Send(crate::ports::event(r#"{"content":""}"#, "null"));
    let strange = Step::Send(
        "event: response.created\ndata: {\"id\":\"x\",\"type\":\"response.created\"}\n\n".to_owned(),
    );
    for steps in
        [vec![usage.clone()], vec![empty.clone(); 3], vec![strange.clone()], vec![strange, usage, empty]]
    {
        for body in [STREAM, PLAIN] {
            let steps = opening().into_iter().chain(steps.clone()).chain([Step::Break(Phase::MidBody)]);
            let ports = Ports::answering([steps.collect(), whole()]).with_health([Liveness::Dead]);
            let (answer, endpoint) = run(ports, body).await;
            assert_eq!((answer.content().as_str(), &answer.end), ("a", &Piece::End), "{answer:?}");
            assert_eq!(recoveries(&endpoint).await, [0, 1]);
        }
    }
}
