//! A stream whose engine dies in the middle: it goes on where it can, once, and is an explicit error otherwise.

use std::time::Duration;

use gglib_core::admission::Refusal;
use gglib_core::model::{Catalog, ModelName, ModelSpec};
use gglib_core::ports::{Liveness, Phase};
use gglib_proxy::Settings;
use gglib_testkit::wire::{Answer, Piece, post};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::pipes::{MODEL, Piped};
use crate::ports::{Ports, Step, Turn, content, done, event, finish, opening, progress};
use crate::served::shipped;

fn request(more: &Value) -> String {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Count." }], "stream": true });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    body.to_string()
}

/// An engine that dies after these pieces of text.
fn dies_after(pieces: &[&str]) -> Vec<Step> {
    let start = opening().into_iter().chain([progress(1000)]);
    start.chain(pieces.iter().map(|piece| content(piece))).chain([Step::Break(Phase::MidBody)]).collect()
}

/// An engine that counts so many tokens in the text that it is asked about.
fn counts(tokens: usize) -> Vec<Step> {
    vec![Step::Head(StatusCode::OK), Step::Send(json!({ "tokens": vec![0; tokens] }).to_string())]
}

/// How the second engine repeats the prefix.
#[derive(Clone, Copy, Debug)]
enum Repeats {
    WithProgress,
    Alone,
    Not,
}

/// An engine that goes on after `prefix` with these pieces.
fn goes_on(prefix: &str, repeats: Repeats, pieces: &[&str]) -> Vec<Step> {
    let told = progress(0);
    let told = match repeats {
        Repeats::WithProgress => {
            let Step::Send(text) = told else { unreachable!() };
            let choice =
                format!("[{{\"index\":0,\"delta\":{{\"content\":\"{prefix}\"}},\"finish_reason\":null}}]");
            vec![Step::Send(text.replace("[]", &choice)), progress(1000)]
        }
        Repeats::Alone => vec![content(prefix)],
        Repeats::Not => vec![told, progress(1000)],
    };
    let steps = opening().into_iter().chain(told).chain(pieces.iter().map(|piece| content(piece)));
    renamed(steps.chain([finish(), done()]).collect())
}

/// The same under another id, as another answer has.
fn renamed(steps: Vec<Step>) -> Vec<Step> {
    let rename = |step| match step {
        Step::Send(text) => Step::Send(text.replace("\"id\":\"x\"", "\"id\":\"y\"")),
        other => other,
    };
    steps.into_iter().map(rename).collect()
}

async fn run(answers: Vec<Vec<Step>>, body: &str) -> (Answer, Piped) {
    let health = vec![Liveness::Dead; answers.len()];
    let endpoint = Piped::start(Ports::answering(answers).with_health(health), shipped());
    let answer = endpoint.chat(body).await;
    (answer, endpoint)
}

async fn continuations(endpoint: &Piped) -> u64 {
    endpoint.totals().await["continuations"].as_u64().unwrap()
}

/// What the book of requests says of the tokens of the last one: prompt and answer.
async fn counted_tokens(endpoint: &Piped) -> [u64; 2] {
    let recent = endpoint.status().await["recent"][0].take();
    assert_eq!(recent["outcome"], "success");
    ["prompt_tokens", "completion_tokens"].map(|name| recent[name].as_u64().unwrap())
}

/// Checks that the answer is one stream from beginning to end.
fn check(answer: &Answer, text: &str, finish_reason: &str) {
    assert_eq!((answer.head.status, &answer.end), (200, &Piece::End), "{answer:?}");
    assert_eq!(answer.content(), text, "{}", answer.body);
    let (last, chunks) = answer.data().split_last().map(|(last, rest)| (*last, rest.to_vec())).unwrap();
    assert_eq!(last, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|data| serde_json::from_str(data).unwrap()).collect();
    assert!(chunks.iter().all(|chunk| chunk["id"] == "x"), "{}", answer.body);
    let roles = chunks.iter().filter(|chunk| !chunk["choices"][0]["delta"]["role"].is_null());
    assert_eq!(roles.count(), 1, "{}", answer.body);
    let reasons: Vec<_> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(reasons, [finish_reason], "{}", answer.body);
    let told = answer.comments().iter().filter(|comment| comment.starts_with(": gglib-recovery")).count();
    assert_eq!(told, 1, "{}", answer.body);
    assert!(answer.body.contains(": gglib-recovery continuation\n\n"), "{}", answer.body);
}

/// Checks that the client has got `text` and then this error.
fn check_error(answer: &Answer, text: &str, code: &str) {
    assert_eq!((answer.head.status, &answer.end), (200, &Piece::Cut), "{answer:?}");
    assert_eq!(
        (answer.content().as_str(), answer.error()["code"].as_str()),
        (text, Some(code)),
        "{answer:?}"
    );
    assert!(!answer.body.contains("[DONE]") && answer.body.matches("\"error\":").count() == 1, "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn it_goes_on_after_any_number_of_tokens_however_the_engine_repeats_the_prefix() {
    for count in [1, 3, 40] {
        for repeats in [Repeats::WithProgress, Repeats::Alone, Repeats::Not] {
            let pieces: Vec<_> = (0..count).map(|number| format!("{number} ")).collect();
            let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
            let prefix = pieces.concat();
            let answers = vec![dies_after(&pieces), counts(count), goes_on(&prefix, repeats, &["a", "é"])];
            let (answer, endpoint) = run(answers, &request(&json!({ "max_tokens": 100 }))).await;
            check(&answer, &(prefix.clone() + "aé"), "stop");
            let stage = &endpoint.ports.stage;
            assert_eq!((stage.sent(), stage.going_on()), (3, [0; 3]), "{count} {repeats:?}");
            let body = stage.last_body();
            assert_eq!(body["messages"][1], json!({ "role": "assistant", "content": prefix }));
            assert_eq!(body["max_tokens"], 100 - count, "{repeats:?}");
            let totals = endpoint.totals().await;
            let counted =
                ["continuations", "relaunches", "failed"].map(|name| totals[name].as_u64().unwrap());
            assert_eq!(counted, [1, 0, 0], "{count} {repeats:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_death_is_the_end() {
    let answers = vec![dies_after(&["a", "b"]), dies_after(&["c"]), goes_on("abc", Repeats::Not, &["d"])];
    let (answer, endpoint) = run(answers, &request(&json!({}))).await;
    check_error(&answer, "abc", "upstream_died");
    assert_eq!((endpoint.ports.stage.sent(), continuations(&endpoint).await), (2, 1));
    assert_eq!(endpoint.ports.stage.going_on(), [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn after_a_relaunch_or_a_second_connection_it_can_go_on_too() {
    let broken = vec![Step::Break(Phase::BeforeHeaders)];
    for health in [Liveness::Alive, Liveness::Dead] {
        let answers = vec![broken.clone(), dies_after(&["a"]), goes_on("a", Repeats::WithProgress, &["b"])];
        let ports = Ports::answering(answers).with_health([health, Liveness::Dead]);
        let endpoint = Piped::start(ports, shipped());
        let answer = endpoint.chat(&request(&json!({}))).await;
        check(&answer, "ab", "stop");
        assert_eq!((endpoint.ports.stage.sent(), continuations(&endpoint).await), (3, 1), "{health:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_more_than_plain_text_is_an_error_as_before() {
    for more in [
        json!({ "n": 2 }),
        json!({ "n_cmpl": 2 }),
        json!({ "logprobs": true }),
        json!({ "response_format": { "type": "json_object" } }),
        json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": {} } } }),
        json!({ "tools": [{}], "tool_choice": "required" }),
        json!({ "grammar": "root ::= [0-9]+" }),
        json!({ "messages": [{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }] }),
    ] {
        let (answer, endpoint) = run(vec![dies_after(&["1", "2"])], &request(&more)).await;
        check_error(&answer, "12", "upstream_died");
        assert_eq!((endpoint.ports.stage.sent(), continuations(&endpoint).await), (1, 0), "{more}");
    }
    let deltas = [
        r#"{"reasoning_content":"hm"}"#,
        r#"{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":""}}]}"#,
    ];
    for delta in deltas {
        let steps = opening().into_iter().chain([Step::Send(event(delta, "null")), content("a")]);
        let steps = steps.chain([Step::Break(Phase::MidBody)]).collect();
        // With repair, the client would not have been handed the call yet.
        let settings = Settings { repair: false, ..shipped() };
        let endpoint = Piped::start(Ports::answering(vec![steps]).with_health([Liveness::Dead]), settings);
        let answer = endpoint.chat(&request(&json!({ "tools": [{}] }))).await;
        check_error(&answer, "a", "upstream_died");
        assert_eq!((endpoint.ports.stage.sent(), continuations(&endpoint).await), (1, 0), "{delta}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_still_held_back_dies_with_its_engine() {
    let call =
        r#"{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":"{"}}]}"#;
    let steps = opening().into_iter().chain([content("a"), Step::Send(event(call, "null"))]);
    let steps = steps.chain([Step::Break(Phase::MidBody)]).collect();
    let answers = vec![steps, goes_on("a", Repeats::WithProgress, &["b"])];
    let (answer, _) = run(answers, &request(&json!({ "tools": [{}] }))).await;
    check(&answer, "ab", "stop");
    assert!(!answer.body.contains("tool_calls"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn tools_that_are_only_offered_do_no_harm() {
    let answers = vec![dies_after(&["a"]), goes_on("a", Repeats::WithProgress, &["b"])];
    let (answer, _) = run(answers, &request(&json!({ "tools": [{}], "tool_choice": "auto" }))).await;
    check(&answer, "ab", "stop");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_lives_or_a_switch_that_is_off_is_an_error() {
    let endpoint =
        Piped::start(Ports::answering([dies_after(&["a"])]).with_health([Liveness::Alive]), shipped());
    check_error(&endpoint.chat(&request(&json!({}))).await, "a", "upstream_died");
    let settings = Settings { continue_streams: false, ..shipped() };
    let endpoint =
        Piped::start(Ports::answering([dies_after(&["a"])]).with_health([Liveness::Dead]), settings);
    check_error(&endpoint.chat(&request(&json!({}))).await, "a", "upstream_died");
    assert_eq!((endpoint.ports.stage.sent(), continuations(&endpoint).await), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_switch_is_that_of_the_moment() {
    let dies_late = || {
        let pause = Step::Wait(Duration::from_secs(5));
        opening().into_iter().chain([content("a"), pause, Step::Break(Phase::MidBody)]).collect::<Vec<_>>()
    };
    let goes_on = || goes_on("a", Repeats::WithProgress, &["b"]);
    let dies_at_once = vec![Step::Break(Phase::BeforeHeaders)];
    for answers in [vec![dies_late(), goes_on()], vec![dies_at_once, dies_late(), goes_on()]] {
        for is_on in [false, true] {
            let ports = Ports::answering(answers.clone()).with_health([Liveness::Dead; 2]);
            let switched = |is_on| Settings { continue_streams: is_on, ..shipped() };
            let endpoint = Piped::start(ports, switched(!is_on));
            let body = request(&json!({}));
            let (answer, ()) = tokio::join!(endpoint.chat(&body), async {
                sleep(Duration::from_secs(1)).await;
                let models = Catalog::new([(ModelName::new(MODEL), ModelSpec::new("m.gguf"))].into());
                endpoint.app.configure(models, switched(is_on), Vec::new());
            });
            if is_on {
                assert_eq!((answer.content().as_str(), &answer.end), ("ab", &Piece::End), "{answer:?}");
            } else {
                check_error(&answer, "a", "upstream_died");
            }
            assert_eq!(continuations(&endpoint).await, u64::from(is_on));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_torn_by_the_end_is_a_death_too() {
    let torn = Step::Send("data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"con".to_owned());
    let dies = opening().into_iter().chain([content("a"), torn]).collect();
    let (answer, _) =
        run(vec![dies, goes_on("a", Repeats::WithProgress, &["b"])], &request(&json!({}))).await;
    check(&answer, "ab", "stop");
}

#[tokio::test(start_paused = true)]
async fn a_hang_that_is_a_death_goes_on_too() {
    let hangs = opening().into_iter().chain([content("a"), Step::Hang]).collect();
    let (answer, _) = run(vec![hangs, goes_on("a", Repeats::Not, &["b"])], &request(&json!({}))).await;
    check(&answer, "ab", "stop");
}

#[tokio::test(start_paused = true)]
async fn a_stop_string_across_the_seam_stops_and_the_engine_is_let_go() {
    let more = json!({ "stop": ["\nUser:"], "stream_options": { "include_usage": true } });
    let mut second = goes_on("one\\nUs", Repeats::WithProgress, &["er", ": hi"]);
    second.truncate(second.len() - 2);
    second.push(Step::Hang);
    let started = Instant::now();
    let (answer, endpoint) = run(vec![dies_after(&["one", "\\nUs"]), second], &request(&more)).await;
    check(&answer, "one\nUs", "stop");
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!(endpoint.ports.stage.going_on(), [0; 3]);
    let data = answer.data();
    let usage: Value = serde_json::from_str(data[data.len() - 2]).unwrap();
    let expected = json!({ "prompt_tokens": 1000, "completion_tokens": 4, "total_tokens": 1004 });
    assert_eq!(usage["usage"], expected);
    assert_eq!((counted_tokens(&endpoint).await, endpoint.ports.stage.worked()), ([1000, 4], 1));

    // What looked like one and was none is text.
    let second = goes_on("one\\nUs", Repeats::Not, &["er", " data"]);
    let (answer, _) = run(vec![dies_after(&["one", "\\nUs"]), second], &request(&more)).await;
    check(&answer, "one\nUser data", "stop");
}

#[tokio::test(start_paused = true)]
async fn when_only_the_end_was_missing_no_engine_is_asked() {
    let more = json!({ "max_tokens": 2, "stream_options": { "include_usage": true } });
    let (answer, endpoint) = run(vec![dies_after(&["a", "b"])], &request(&more)).await;
    check(&answer, "ab", "length");
    assert_eq!((endpoint.ports.stage.sent(), continuations(&endpoint).await), (1, 1));
    let data = answer.data();
    let usage: Value = serde_json::from_str(data[data.len() - 2]).unwrap();
    assert_eq!(
        usage["usage"],
        json!({ "prompt_tokens": 1000, "completion_tokens": 2, "total_tokens": 1002 })
    );
    assert_eq!((counted_tokens(&endpoint).await, endpoint.ports.stage.worked()), ([1000, 2], 0));
}

#[tokio::test(start_paused = true)]
async fn tokens_are_counted_by_the_engine_that_goes_on() {
    let broken = vec![Step::Break(Phase::Connect)];
    let silent = vec![Step::Head(StatusCode::OK), Step::Hang];
    for (told, left) in [(counts(5), 4), (broken, 7), (silent, 7)] {
        let answers = vec![dies_after(&["🌱", "🌱"]), told, goes_on("🌱🌱", Repeats::WithProgress, &["b"])];
        let (answer, endpoint) = run(answers, &request(&json!({ "max_tokens": 9 }))).await;
        check(&answer, "🌱🌱b", "stop");
        assert_eq!(endpoint.ports.stage.last_body()["max_tokens"], left);
    }
    let (answer, endpoint) =
        run(vec![dies_after(&["🌱", "🌱"]), counts(5)], &request(&json!({ "max_tokens": 5 }))).await;
    check(&answer, "🌱🌱", "length");
    assert_eq!((endpoint.ports.stage.sent(), counted_tokens(&endpoint).await), (2, [1000, 5]));
    // Text that was held back, since it might have become a stop string or a call, comes as one chunk.
    for more in [json!({ "max_tokens": 9, "stop": "\nUser" }), json!({ "max_tokens": 9, "tools": [{}] })] {
        let answers =
            vec![dies_after(&["one\\nUs two"]), counts(4), goes_on("one\\nUs two", Repeats::Not, &["b"])];
        let (answer, endpoint) = run(answers, &request(&more)).await;
        check(&answer, "one\nUs twob", "stop");
        assert_eq!(endpoint.ports.stage.last_body()["max_tokens"], 5, "{more}");
    }
}

#[tokio::test(start_paused = true)]
async fn usage_adds_up_and_comes_once_to_those_who_asked() {
    let usage = "data: {\"id\":\"y\",\"choices\":[],\"usage\":{\"prompt_tokens\":1003,\"completion_tokens\":2,\"total_tokens\":1005}}\n\n";
    for include_usage in [true, false] {
        let mut second = goes_on("ab", Repeats::WithProgress, &["c"]);
        second.insert(second.len() - 1, Step::Send(usage.to_owned()));
        let more = json!({ "stream_options": { "include_usage": include_usage } });
        let (answer, _) = run(vec![dies_after(&["a", "b"]), second], &request(&more)).await;
        check(&answer, "abc", "stop");
        let told: Vec<_> = answer.data().into_iter().filter(|data| data.contains("\"usage\"")).collect();
        assert_eq!(told.len(), usize::from(include_usage), "{}", answer.body);
        for told in told {
            let chunk: Value = serde_json::from_str(told).unwrap();
            let expected = json!({ "prompt_tokens": 1000, "completion_tokens": 5, "total_tokens": 1005 });
            assert_eq!(chunk["usage"], expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn if_it_cannot_go_on_the_client_hears_of_the_death() {
    let refused = Refusal::LoadFailed { reason: "out of memory".into() };
    let ports = Ports::answering([dies_after(&["a"])])
        .with_turns([Turn::After(Duration::ZERO), Turn::Refused(Duration::from_secs(3), refused)])
        .with_health([Liveness::Dead]);
    let endpoint = Piped::start(ports, shipped());
    check_error(&endpoint.chat(&request(&json!({}))).await, "a", "upstream_died");
    assert_eq!(continuations(&endpoint).await, 0, "it never had an engine");

    let error = r#"{"error":{"message":"prefill is incompatible with thinking","type":"invalid_request_error","code":400}}"#;
    let bad_request = vec![Step::Head(StatusCode::BAD_REQUEST), Step::Send(error.to_owned())];
    let (answer, endpoint) = run(vec![dies_after(&["a"]), bad_request], &request(&json!({}))).await;
    check_error(&answer, "a", "upstream_died");
    assert_eq!((endpoint.ports.stage.sent(), endpoint.totals().await["failed"].as_u64()), (2, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_come_meanwhile_and_the_deadline_holds() {
    for (wait, code) in [(600, None), (60 * 60, Some("timeout_request"))] {
        let ports = Ports::answering([dies_after(&["a"]), goes_on("a", Repeats::WithProgress, &["b"])])
            .with_turns([Turn::After(Duration::ZERO), Turn::After(Duration::from_secs(wait))])
            .with_health([Liveness::Dead]);
        let endpoint = Piped::start(ports, shipped());
        let started = Instant::now();
        let mut client = endpoint.connect();
        client.send(post("/v1/chat/completions", &request(&json!({})))).await;
        client.head().await.unwrap();
        let (mut latest, mut body) = (Instant::now(), String::new());
        let end = loop {
            match client.piece().await {
                Piece::Data(data) => body += &data,
                end => break end,
            }
            assert!(latest.elapsed() <= Duration::from_secs(15), "silent for {:?}", latest.elapsed());
            latest = Instant::now();
        };
        match code {
            None => assert!(end == Piece::End && body.ends_with("data: [DONE]\n\n"), "{body}"),
            Some(code) => {
                assert!(end == Piece::Cut && body.contains(code), "{body}");
                assert_eq!(started.elapsed(), Duration::from_secs(45 * 60));
            }
        }
        assert_eq!(endpoint.ports.stage.going_on(), [0; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefix_that_is_repeated_does_not_shorten_the_time_for_the_prompt() {
    let mut second = goes_on("a", Repeats::WithProgress, &["b"]);
    // Behind the head, the role and the repeated prefix: the prompt, which takes longer than a pause may.
    second.insert(3, Step::Wait(Duration::from_secs(200)));
    let (answer, _) = run(vec![dies_after(&["a"]), second], &request(&json!({}))).await;
    check(&answer, "ab", "stop");
}
