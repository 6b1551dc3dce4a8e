//! Tool-call repair, step by step on the paused clock: when it is taken, what it asks for, what comes of it, and
//! that whatever goes wrong leaves the first answer as it was.

use std::time::Duration;

use gglib_core::ports::{Liveness, Phase};
use gglib_proxy::Settings;
use gglib_testkit::wire::{Answer, Piece, post};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::pipes::Piped;
use crate::ports::{Ports, Step, content, done, event, opening};
use crate::served::shipped;

const GRAMMAR: &str = r#"{"chat_template_caps":{"supports_tools":false,"supports_tool_calls":false}}"#;

/// A request with two functions and these further members.
fn request(more: &Value) -> String {
    let parameters = json!({
        "type": "object",
        "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
        "required": ["city"],
        "additionalProperties": false,
    });
    let mut body = json!({ "messages": [], "tools": [
        { "type": "function", "function": { "name": "weather", "parameters": parameters } },
        { "type": "function", "function": { "name": "ping" } },
    ] });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    body.to_string()
}

fn both(more: &Value) -> [String; 2] {
    let mut stream = more.clone();
    stream["stream"] = true.into();
    [request(&stream), request(more)]
}

/// The fragments of a call.
fn call(index: usize, name: &str, arguments: &str) -> Vec<Step> {
    let (first, second) = arguments.split_at(arguments.len() / 2);
    let first = json!({ "tool_calls": [{ "index": index, "id": format!("id{index}"), "type": "function",
        "function": { "name": name, "arguments": first } }] });
    let second = json!({ "tool_calls": [{ "index": index, "function": { "arguments": second } }] });
    [first, second].map(|delta| Step::Send(event(&delta.to_string(), "null"))).into()
}

fn finish(reason: &str) -> Step {
    Step::Send(event("{}", &format!("\"{reason}\"")))
}

fn usage(tokens: u64) -> Step {
    Step::Send(format!(
        "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{{\"completion_tokens\":{tokens},\"prompt_tokens\":10,\"total_tokens\":{}}}}}\n\n",
        tokens + 10
    ))
}

/// A whole answer of these calls.
fn calls(calls: &[(&str, &str)], reason: &str) -> Vec<Step> {
    let fragments =
        calls.iter().enumerate().flat_map(|(index, (name, arguments))| call(index, name, arguments));
    opening().into_iter().chain(fragments).chain([finish(reason), usage(7), done()]).collect()
}

fn text(text: &str) -> Vec<Step> {
    opening().into_iter().chain([content(text), finish("stop"), usage(7), done()]).collect()
}

const GOOD: (&str, &str) = ("weather", r#"{"city":"Berlin"}"#);

/// The calls that a client gets: `name(arguments)` each, with their ids checked for being there.
fn got(answer: &Answer) -> String {
    let calls = if answer.head.header("content-type") == Some("text/event-stream") {
        let mut calls: Vec<Value> = Vec::new();
        for data in answer.data() {
            let Ok(mut chunk) = serde_json::from_str::<Value>(data) else { continue };
            let fragments = chunk.pointer_mut("/choices/0/delta/tool_calls").and_then(Value::as_array_mut);
            for fragment in fragments.into_iter().flatten() {
                let index = usize::try_from(fragment["index"].as_u64().unwrap()).unwrap();
                if index == calls.len() {
                    calls.push(fragment.take());
                    continue;
                }
                let more = fragment["function"]["arguments"].as_str().unwrap();
                let arguments = calls[index]["function"]["arguments"].as_str().unwrap().to_owned() + more;
                calls[index]["function"]["arguments"] = arguments.into();
            }
        }
        calls
    } else {
        answer.json()["choices"][0]["message"]["tool_calls"].as_array().cloned().unwrap_or_default()
    };
    let call = |call: &Value| {
        assert!(call["id"].is_string() && call["type"] == "function", "{call}");
        let function = &call["function"];
        format!("{}({})", function["name"].as_str().unwrap(), function["arguments"].as_str().unwrap())
    };
    calls.iter().map(call).collect::<Vec<_>>().join(" ")
}

fn finish_reason(answer: &Answer) -> String {
    let reason = |choice: &Value| choice["finish_reason"].as_str().map(str::to_owned);
    if answer.head.header("content-type") != Some("text/event-stream") {
        return reason(&answer.json()["choices"][0]).unwrap();
    }
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
    let chunks = answer.data().into_iter().filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let reasons: Vec<String> = chunks.filter_map(|chunk| reason(&chunk["choices"][0])).collect();
    assert_eq!(reasons.len(), 1, "{}", answer.body);
    reasons[0].clone()
}

/// Broken turns, mends and repairs.
async fn counted(endpoint: &Piped) -> [u64; 3] {
    let totals = endpoint.totals().await;
    ["broken_turns", "mends", "repairs"].map(|name| totals[name].as_u64().unwrap())
}

fn start(answers: impl IntoIterator<Item = Vec<Step>>, props: &str) -> Piped {
    Piped::start(Ports::answering(answers).with_props(props), shipped())
}

#[tokio::test(start_paused = true)]
async fn good_calls_and_text_pass_byte_for_byte_and_cost_nothing() {
    for script in [calls(&[GOOD, ("ping", "{}")], "tool_calls"), calls(&[], "stop"), text("a")] {
        let sent: String = script
            .iter()
            .filter_map(|step| if let Step::Send(text) = step { Some(text.as_str()) } else { None })
            .filter(|text| !text.contains("\"usage\""))
            .collect();
        let endpoint = start([script], "");
        let answer = endpoint.chat(&request(&json!({ "stream": true }))).await;
        assert_eq!(answer.body, sent);
        assert_eq!(answer.head.header("x-gglib-recovery"), None);
        assert_eq!((counted(&endpoint).await, endpoint.ports.stage.sent()), ([0, 0, 0], 1));
    }
    for body in both(&json!({})) {
        let endpoint = start([calls(&[GOOD, ("ping", "{}")], "tool_calls")], "");
        let answer = endpoint.chat(&body).await;
        assert_eq!(got(&answer), r#"weather({"city":"Berlin"}) ping({})"#);
        assert_eq!((counted(&endpoint).await, endpoint.ports.stage.sent()), ([0, 0, 0], 1));
    }
}

#[tokio::test(start_paused = true)]
async fn packaging_is_mended_without_a_second_request() {
    let table = [
        "```json\n{\"city\":\"Berlin\"}\n```",
        r#"{"city":"Berlin",}"#,
        r#"{"city":"Berlin""#,
        r#""{\"city\":\"Berlin\"}""#,
    ];
    for arguments in table {
        for body in both(&json!({})) {
            let endpoint = start([calls(&[("weather", arguments), ("ping", "{}")], "stop")], "");
            let answer = endpoint.chat(&body).await;
            assert_eq!(got(&answer), r#"weather({"city":"Berlin"}) ping({})"#, "{arguments}");
            assert_eq!(finish_reason(&answer), "tool_calls");
            assert_eq!(answer.head.header("x-gglib-recovery"), Some("mend"));
            assert_eq!((counted(&endpoint).await, endpoint.ports.stage.sent()), ([1, 1, 0], 1));
        }
    }
}

/// There may have been more calls to come, whatever was mended of those that came.
#[tokio::test(start_paused = true)]
async fn what_was_cut_off_stays_so_when_only_packaging_was_mended() {
    for arguments in [r#"{"city":"Berlin",}"#, r#""{\"city\":\"Berlin\"}""#] {
        for body in both(&json!({ "max_tokens": 9 })) {
            let endpoint = start([calls(&[("ping", "{}"), ("weather", arguments)], "length")], "");
            let answer = endpoint.chat(&body).await;
            assert_eq!(got(&answer), r#"ping({}) weather({"city":"Berlin"})"#, "{arguments}");
            assert_eq!(finish_reason(&answer), "length");
            assert_eq!((counted(&endpoint).await, endpoint.ports.stage.sent()), ([1, 1, 0], 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_broken_call_is_asked_for_again_in_both_forms() {
    let table = [
        ("weather", r#"{"city":"Ber"#),
        ("weather", "Berlin"),
        ("weather", "{}"),
        ("weather", r#"{"city":"Berlin","land":"de"}"#),
        ("weather", r#"{"city":7}"#),
        ("wether", r#"{"city":"Berlin"}"#),
    ];
    for bad in table {
        for body in both(&json!({ "seed": 3 })) {
            let again = calls(&[GOOD], "tool_calls");
            let endpoint = start([calls(&[bad], "tool_calls"), again], "{}");
            let answer = endpoint.chat(&body).await;
            assert_eq!(got(&answer), r#"weather({"city":"Berlin"})"#, "{bad:?}");
            assert_eq!(finish_reason(&answer), "tool_calls", "{bad:?}");
            assert_eq!(answer.head.header("x-gglib-recovery"), Some("repair"), "{answer:?}");
            assert_eq!(counted(&endpoint).await, [1, 0, 1]);
            let second: Value = serde_json::from_str(&endpoint.ports.stage.bodies()[1]).unwrap();
            assert_eq!((&second["tool_choice"], &second["seed"]), (&json!("required"), &json!(3)));
            assert_eq!(second["parallel_tool_calls"], false);
            assert_eq!(second["tools"][0]["function"]["name"], "weather");

            let written =
                r#"<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Berlin\"}}</tool_call>"#;
            let endpoint = start([calls(&[bad], "tool_calls"), text(written)], GRAMMAR);
            let answer = endpoint.chat(&body).await;
            assert_eq!(got(&answer), r#"weather({"city":"Berlin"})"#, "{bad:?}");
            assert!(!answer.body.contains("<tool_call>"), "{}", answer.body);
            let second: Value = serde_json::from_str(&endpoint.ports.stage.bodies()[1]).unwrap();
            assert_eq!((&second["tools"], &second["seed"]), (&Value::Null, &json!(3)));
            assert!(second["grammar"].as_str().unwrap().starts_with("root ::= "));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_client_insists_on_follows_the_text() {
    let named = json!({ "type": "function", "function": { "name": "weather" } });
    for choice in [json!("required"), named] {
        for body in both(&json!({ "tool_choice": choice })) {
            let written =
                r#"<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Berlin\"}}</tool_call>"#;
            let endpoint = start([text("Sure."), text(written)], GRAMMAR);
            let answer = endpoint.chat(&body).await;
            assert_eq!(
                (got(&answer).as_str(), answer.content().as_str()),
                (r#"weather({"city":"Berlin"})"#, "Sure.")
            );
            assert_eq!(finish_reason(&answer), "tool_calls");
            assert_eq!(counted(&endpoint).await, [1, 0, 1]);
        }
    }
    for choice in ["auto", "none"] {
        let endpoint = start([text("Sure.")], GRAMMAR);
        let answer = endpoint.chat(&request(&json!({ "tool_choice": choice }))).await;
        assert_eq!((answer.content().as_str(), endpoint.ports.stage.sent()), ("Sure.", 1));
    }
}

#[tokio::test(start_paused = true)]
async fn good_calls_of_a_batch_stay_and_usage_adds_up() {
    for body in both(&json!({ "stream_options": { "include_usage": true } })) {
        let first = calls(&[GOOD, ("weather", r#"{"city":"#), ("ping", "{}")], "length");
        let again = calls(&[GOOD, ("weather", r#"{"city":"Paris"}"#)], "tool_calls");
        let endpoint = start([first, again], "{}");
        let answer = endpoint.chat(&body).await;
        assert_eq!(got(&answer), r#"weather({"city":"Berlin"}) weather({"city":"Paris"}) ping({})"#);
        let usage = r#""completion_tokens":14,"prompt_tokens":10,"total_tokens":24"#;
        assert_eq!(answer.body.matches(usage).count(), 1, "{}", answer.body);
        let second: Value = serde_json::from_str(&endpoint.ports.stage.bodies()[1]).unwrap();
        assert_eq!(second.get("parallel_tool_calls"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_leaves_the_first_answer_as_it_was() {
    let bad = ("weather", r#"{"city":"Ber"#);
    let seconds: [(&str, Vec<Step>); 7] = [
        ("still broken", calls(&[bad], "length")),
        ("another call", calls(&[("ping", "{}")], "tool_calls")),
        ("text", text("I cannot.")),
        ("refused", vec![Step::Head(http::StatusCode::BAD_REQUEST), Step::Send("{}".to_owned())]),
        ("broken off", vec![Step::Break(Phase::BeforeHeaders)]),
        ("incomplete", opening()),
        ("too slow", vec![Step::Hang]),
    ];
    for (name, second) in seconds {
        for body in both(&json!({})) {
            let endpoint = start([calls(&[bad], "length"), second.clone()], "{}");
            let started = Instant::now();
            let answer = endpoint.chat(&body).await;
            assert_eq!((answer.head.status, &answer.end), (200, &Piece::End), "{name}: {answer:?}");
            assert_eq!(got(&answer), r#"weather({"city":"Ber)"#, "{name}");
            assert_eq!(finish_reason(&answer), "length", "{name}");
            assert_eq!(answer.head.header("x-gglib-recovery"), None, "{name}");
            assert!(!answer.body.contains("gglib-recovery"), "{name}: {}", answer.body);
            assert_eq!((counted(&endpoint).await, endpoint.ports.stage.sent()), ([1, 0, 0], 2), "{name}");
            assert_eq!(endpoint.ports.stage.going_on(), [0; 3], "{name}");
            let took = started.elapsed();
            if name == "too slow" {
                assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(62), "{took:?}");
            } else {
                assert!(took < Duration::from_secs(1), "{name}: {took:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_repair_the_engine_is_checked_and_nobody_waits_for_that() {
    let first = || calls(&[("weather", r#"{"city":1}"#)], "tool_calls");
    for (second, after) in [(vec![Step::Break(Phase::BeforeHeaders)], 0), (vec![Step::Hang], 60)] {
        for body in both(&json!({})) {
            let ports = Ports::answering([first(), second.clone()])
                .with_health([Liveness::Alive, Liveness::Dead])
                .with_slow_health(Duration::from_secs(10));
            let endpoint = Piped::start(ports, shipped());
            let started = Instant::now();
            let answer = endpoint.chat(&body).await;
            assert_eq!(got(&answer), r#"weather({"city":1})"#);
            // A head that is late is a suspicion of its own, within the time for the repair.
            assert_eq!(started.elapsed().as_secs(), after, "{second:?}");
            let stage = &endpoint.ports.stage;
            assert_eq!(stage.going_on(), [0, 1, 0], "the lease is not back yet");
            sleep(Duration::from_secs(11)).await;
            assert_eq!(stage.going_on(), [0; 3]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_the_request_is_kept_and_what_is_off_is_off() {
    let bad = calls(&[("weather", "{")], "tool_calls");
    for body in both(&json!({})) {
        let mut settings = shipped();
        settings.timeouts.request = Duration::from_secs(20);
        let endpoint =
            Piped::start(Ports::answering([bad.clone(), vec![Step::Hang]]).with_props("{}"), settings);
        let started = Instant::now();
        let answer = endpoint.chat(&body).await;
        assert_eq!(got(&answer), "weather({)", "{answer:?}");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());

        let mut settings = shipped();
        settings.repair = false;
        let endpoint = Piped::start(Ports::answering([bad.clone()]).with_props("{}"), settings);
        assert_eq!(got(&endpoint.chat(&body).await), "weather({)");
        assert_eq!((counted(&endpoint).await, endpoint.ports.stage.sent()), ([0, 0, 0], 1));
    }
}

#[tokio::test(start_paused = true)]
async fn text_passes_live_and_calls_wait_with_signs_of_life() {
    let first = opening()
        .into_iter()
        .chain([content("Let me see.")])
        .chain([Step::Wait(Duration::from_secs(20))])
        .chain(call(0, "weather", "{\"city\""))
        .chain([Step::Wait(Duration::from_secs(20)), finish("tool_calls"), done()])
        .collect();
    let again =
        [Step::Wait(Duration::from_secs(25))].into_iter().chain(calls(&[GOOD], "tool_calls")).collect();
    let endpoint = start([first, again], "{}");
    let mut client = endpoint.connect();
    let started = Instant::now();
    client.send(post("/v1/chat/completions", &request(&json!({ "stream": true })))).await;
    assert_eq!(client.head().await.unwrap().header("x-gglib-recovery"), None);
    client.until("Let me see.").await;
    assert!(started.elapsed() < Duration::from_secs(1));
    let held = client.until("gglib-recovery repair").await;
    assert!(!held.contains("tool_calls"), "{held}");
    // A comment every 10 s, and an empty delta once no chunk has come for 50 s.
    assert_eq!(held.matches(": keep-alive\n\n").count(), 5, "{held}");
    assert_eq!(held.matches(r#""delta":{}"#).count(), 1, "{held}");
    let (rest, end) = client.rest().await;
    assert_eq!(end, Piece::End);
    assert!(
        rest.contains(r#""arguments":"{\"city\":\"Berlin\"}""#) && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    assert!(started.elapsed() < Duration::from_secs(66), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_during_a_repair_ends_it() {
    for body in both(&json!({})) {
        let endpoint = start([calls(&[("weather", "{")], "tool_calls"), vec![Step::Hang]], "{}");
        let mut client = endpoint.connect();
        client.send(post("/v1/chat/completions", &body)).await;
        sleep(Duration::from_secs(15)).await;
        assert_eq!(endpoint.ports.stage.going_on(), [0, 1, 1]);
        drop(client);
        sleep(Duration::from_millis(500)).await;
        assert_eq!(endpoint.ports.stage.going_on(), [0; 3], "{body}");
        assert_eq!(endpoint.totals().await["abandoned"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hopeless_model_is_paused_and_then_probed() {
    let bad = || calls(&[("weather", "{")], "tool_calls");
    let good = || calls(&[GOOD], "tool_calls");
    let answers = (0..6).map(|_| bad()).chain([bad(), bad(), bad(), good(), bad(), good()]);
    let endpoint = start(answers, "{}");
    let body = request(&json!({}));
    for sent in [2, 4, 6, 7, 8] {
        assert_eq!(got(&endpoint.chat(&body).await), "weather({)");
        assert_eq!(endpoint.ports.stage.sent(), sent);
    }
    sleep(Duration::from_secs(61)).await;
    for sent in [10, 12] {
        assert_eq!(got(&endpoint.chat(&body).await), r#"weather({"city":"Berlin"})"#);
        assert_eq!(endpoint.ports.stage.sent(), sent);
    }
    assert_eq!(counted(&endpoint).await, [7, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_dies_over_a_call_is_replaced_since_nobody_has_seen_it() {
    for body in both(&json!({})) {
        let torn =
            opening().into_iter().chain(call(0, "weather", "{\"city\"")).chain([Step::Break(Phase::MidBody)]);
        let ports = Ports::answering([torn.collect(), calls(&[GOOD], "tool_calls")]);
        let endpoint = Piped::start(ports.with_health([Liveness::Dead]), shipped());
        let answer = endpoint.chat(&body).await;
        assert_eq!(got(&answer), r#"weather({"city":"Berlin"})"#, "{answer:?}");
        assert_eq!(answer.head.header("x-gglib-recovery"), Some("relaunch"));
    }
    // After text it is not.
    let torn = opening()
        .into_iter()
        .chain([content("a")])
        .chain(call(0, "weather", "{\"city\""))
        .chain([Step::Break(Phase::MidBody)]);
    let endpoint = Piped::start(Ports::answering([torn.collect()]).with_health([Liveness::Dead]), shipped());
    let answer = endpoint.chat(&request(&json!({ "stream": true }))).await;
    assert_eq!((answer.error()["code"].as_str(), &answer.end), (Some("upstream_died"), &Piece::Cut));
    assert!(!answer.body.contains("tool_calls"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_bad_call_in_the_history_is_mended_or_the_client_is_told_where() {
    let with = |arguments: &str| {
        let call =
            json!({ "id": "1", "type": "function", "function": { "name": "ping", "arguments": arguments } });
        request(
            &json!({ "messages": [{ "role": "user", "content": "x" }, { "role": "assistant", "tool_calls": [call] }] }),
        )
    };
    let endpoint = start([text("a")], "");
    assert_eq!(endpoint.chat(&with("{\"a\":1,}")).await.content(), "a");
    assert!(endpoint.ports.stage.bodies()[0].contains(r#""arguments":"{\"a\":1}""#));

    let answer = endpoint.chat(&with("{")).await;
    let error = answer.error();
    assert_eq!((answer.head.status, error["code"].as_str()), (400, Some("invalid_request")));
    assert_eq!(error["param"], "messages[1].tool_calls[0].function.arguments");
    assert!(
        error["message"].as_str().unwrap().contains("correct these arguments, or remove the call"),
        "{error}"
    );
    assert_eq!(endpoint.ports.stage.sent(), 1);
}

/// The engine fails on such a history whatever is asked of it.
#[tokio::test(start_paused = true)]
async fn a_bad_call_in_the_history_is_mended_without_tools_and_with_several_choices() {
    let call =
        json!({ "id": "1", "type": "function", "function": { "name": "ping", "arguments": "{\"a\":1,}" } });
    let messages = json!([{ "role": "assistant", "tool_calls": [call] }, { "role": "user", "content": "x" }]);
    for more in [
        json!({}),
        json!({ "tools": null }),
        json!({ "tools": [], "stream": true }),
        json!({ "tools": [{}], "tool_choice": "none" }),
        json!({ "tools": [{}], "n": 1, "n_cmpl": 2 }),
    ] {
        let mut body = more.clone();
        body["messages"] = messages.clone();
        let endpoint = start([text("a")], "");
        endpoint.chat(&body.to_string()).await;
        let sent = &endpoint.ports.stage.bodies()[0];
        assert!(sent.contains(r#""arguments":"{\"a\":1}""#), "{more}: {sent}");
    }
    let body = json!({ "messages": messages }).to_string();
    let settings = Settings { repair: false, ..shipped() };
    let endpoint = Piped::start(Ports::answering([text("a")]), settings);
    endpoint.chat(&body).await;
    assert!(endpoint.ports.stage.bodies()[0].contains(r#""{\"a\":1,}""#));
}

/// Which call a client would want of two choices nobody knows, and the older form has no tools to judge by.
#[tokio::test(start_paused = true)]
async fn calls_of_several_choices_and_of_the_older_form_pass_as_they_are() {
    let of_choice = |index: usize| {
        let call = json!([{ "index": 0, "id": "1", "type": "function", "function": { "name": "weather", "arguments": "{" } }]);
        let choice =
            json!({ "index": index, "delta": { "tool_calls": call }, "finish_reason": "tool_calls" });
        let chunk = json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice] });
        Step::Send(format!("data: {chunk}\n\n"))
    };
    let several: Vec<Step> = opening().into_iter().chain([of_choice(0), of_choice(1), done()]).collect();
    for body in both(&json!({ "n": 2 })) {
        let endpoint = start([several.clone()], "{}");
        let answer = endpoint.chat(&body).await;
        assert_eq!(answer.body.matches(r#""arguments":"{""#).count(), 2, "{answer:?}");
        assert_eq!((counted(&endpoint).await, endpoint.ports.stage.sent()), ([0, 0, 0], 1));
    }

    let older = json!({ "function_call": { "name": "weather", "arguments": "{" } }).to_string();
    let older = [Step::Send(event(&older, "null")), finish("function_call"), done()];
    let functions = json!({ "messages": [], "functions": [{ "name": "weather" }], "function_call": "auto" });
    for stream in [true, false] {
        let mut body = functions.clone();
        body["stream"] = stream.into();
        let endpoint = start([opening().into_iter().chain(older.clone()).collect()], "{}");
        let answer = endpoint.chat(&body.to_string()).await;
        assert!(answer.body.contains(r#""function_call":{"name":"weather","arguments":"{"}"#), "{answer:?}");
        assert_eq!(finish_reason(&answer), "function_call");
        assert_eq!((counted(&endpoint).await, endpoint.ports.stage.sent()), ([0, 0, 0], 1));
        let sent = &endpoint.ports.stage.bodies()[0];
        assert!(sent.contains(r#""functions":[{"name":"weather"}],"function_call":"auto""#), "{sent}");
    }
}
