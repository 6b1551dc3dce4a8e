//! What passes unchanged, in both directions.

use gglib_core::ports::Phase;
use gglib_testkit::wire::Piece;
use gglib_testkit::{Engines, Launch, Reply, Script};
use http::StatusCode;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::pipes::Piped;
use crate::ports::{Ports, Step, content, done, event, finish, opening, progress};
use crate::served::{Served, shipped};

/// One event as the engine sends it and the payload in it.
fn sent(payloads: &[&str]) -> Vec<Step> {
    let events = payloads.iter().map(|payload| Step::Send(format!("data: {payload}\n\n")));
    std::iter::once(Step::Head(StatusCode::OK)).chain(events).chain([done()]).collect()
}

async fn stream(steps: Vec<Step>, options: &str) -> (Vec<String>, Piece) {
    let body = format!(r#"{{"messages":[],"stream":true{options}}}"#);
    let answer = Piped::start(Ports::answering([steps]), shipped()).chat(&body).await;
    (answer.data().into_iter().map(str::to_owned).collect(), answer.end)
}

#[tokio::test(start_paused = true)]
async fn every_payload_arrives_as_the_engine_wrote_it() {
    let payloads = [
        r#"{ "id":"x", "choices":[{"delta":{"role":"assistant","content":null},"index":0,"finish_reason":null}],"n":1e400 }"#,
        r#"{"choices":[{"index":0,"delta":{"reasoning_content":"h\u006d \ud83c\udf31"}}],"dup":1,"dup":2}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\": \"Zür"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"🌱"},"logprobs":{"content":[]}}],"big":18446744073709551616}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"timings":{"predicted_ms":1.50}}"#,
    ];
    let (data, end) = stream(sent(&payloads), "").await;
    assert_eq!(data[..data.len() - 1], payloads);
    assert_eq!((data.last().map(String::as_str), end), (Some("[DONE]"), Piece::End));
}

#[tokio::test(start_paused = true)]
async fn usage_and_progress_are_for_those_who_ask() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":1}}"#;
    let steps = || -> Vec<Step> {
        let usage = Step::Send(format!("data: {usage}\n\n"));
        opening().into_iter().chain([progress(10), content("a"), finish(), usage, done()]).collect()
    };
    for (options, asked) in [
        ("", [false, false]),
        (r#","stream_options":{"include_usage":false}"#, [false, false]),
        (r#","stream_options":{"include_usage":true}"#, [true, false]),
        (r#","stream_options":null,"return_progress":true"#, [false, true]),
    ] {
        let (data, _) = stream(steps(), options).await;
        let has = |part: &str| data.iter().any(|data| data.contains(part));
        assert_eq!([has("\"usage\""), has("prompt_progress")], asked, "{options}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_shown_before_there_is_content() {
    // With the role alone the window is open: had it been sent, a second attempt's would repeat it.
    let roles = opening().into_iter().chain([Step::Send(event("{}", "null")), Step::Break(Phase::MidBody)]);
    let whole = opening().into_iter().chain([content("a"), finish(), done()]);
    let ports = Ports::answering([roles.collect(), whole.collect()]);
    let answer = Piped::start(ports, shipped()).chat(r#"{"messages":[],"stream":true}"#).await;
    assert_eq!(answer.body.matches("\"role\"").count(), 1, "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_content_is_whole_if_it_finishes() {
    let empty: Vec<Step> = opening().into_iter().chain([finish(), done()]).collect();
    let (data, end) = stream(empty.clone(), "").await;
    assert_eq!((data.len(), end), (3, Piece::End), "{data:?}");
    let plain = Piped::start(Ports::answering([empty]), shipped()).chat(r#"{"messages":[]}"#).await;
    assert_eq!(plain.json()["choices"][0]["message"]["content"], "");
    assert_eq!(plain.json()["choices"][0]["finish_reason"], "stop");
    assert!(plain.json()["usage"]["total_tokens"].is_number());
}

#[tokio::test(start_paused = true)]
async fn of_several_choices_each_must_finish() {
    let of = |index: u32, delta: &str, finish: &str| {
        event(delta, finish).replace("\"index\":0", &format!("\"index\":{index}"))
    };
    let both = [of(0, r#"{"role":"assistant","content":"a"}"#, "null"), of(1, r#"{"content":"b"}"#, "null")];
    let end = |index| of(index, "{}", "\"stop\"");
    let script = |ends: &[u32]| -> Vec<Step> {
        let events = both.iter().cloned().chain(ends.iter().map(|index| end(*index))).map(Step::Send);
        std::iter::once(Step::Head(StatusCode::OK)).chain(events).chain([done()]).collect()
    };
    let (data, finish) = stream(script(&[1, 0]), r#","n":2"#).await;
    assert_eq!((data.len(), finish), (5, Piece::End));
    let (data, finish) = stream(script(&[1]), r#","n":2"#).await;
    assert_eq!(finish, Piece::Cut);
    assert!(data.last().is_some_and(|error| error.contains("upstream_incomplete")), "{data:?}");
    let plain = Piped::start(Ports::answering([script(&[1, 0])]), shipped());
    let answer = plain.chat(r#"{"messages":[],"n":2}"#).await.json();
    let texts = [0, 1].map(|choice| answer["choices"][choice]["message"]["content"].clone());
    assert_eq!(texts, ["a", "b"]);
}

#[tokio::test]
async fn reasoning_and_tool_calls_are_folded_for_a_plain_client() {
    let replies = vec![
        Reply::reasoning(["a", "b"], ["c", "d"]),
        Reply::tool_call("get_weather", ["{\"city\":", " \"Rome\"}"]),
    ];
    let scripted = Script::always(Launch { replies, ..Launch::default() }).place();
    let served = Served::start(Engines::fake().scripted("a", &scripted), shipped()).await;
    let thought = served.chat(r#"{"messages":[]}"#).await.json()["choices"][0].take();
    assert_eq!(thought["message"]["reasoning_content"], "ab");
    assert_eq!(thought["message"]["content"], "cd");
    let called = served.chat(r#"{"messages":[]}"#).await.json()["choices"][0].take();
    assert_eq!(called["message"]["tool_calls"][0]["function"]["arguments"], "{\"city\": \"Rome\"}");
    assert_eq!(
        (&called["message"]["content"], &called["finish_reason"]),
        (&serde_json::Value::Null, &"tool_calls".into())
    );
}

/// A member of a request body: its name, its value as the client writes it, and as the engine must get it.
type Member = (String, String, String);

fn odd_member() -> impl Strategy<Value = Member> {
    let names = select(vec!["seed", "a", "a", "x y", "\u{e9}", "model2", "Model", "stop", "\\u0061"]);
    let values = select(vec![
        "1e400",
        "18446744073709551616",
        "-0.0",
        "1E+2",
        "null",
        "\"\\ud83c\\udf31\"",
        "\"a\\/b\"",
        "[ 1 ,\t2 ]",
        "{\"a\":1,\"a\":2}",
        "{}",
        "0.10",
    ]);
    (names, values).prop_map(|(name, value)| (name.to_owned(), value.to_owned(), value.to_owned()))
}

/// A body and what must arrive of it, `model` and `messages` included.
fn body() -> impl Strategy<Value = (String, String, bool)> {
    let spaces = select(vec!["", " ", "\n", "\r\n\t"]);
    (vec(odd_member(), 0..6), any::<bool>(), any::<prop::sample::Index>(), spaces).prop_map(
        |(mut members, streams, place, space)| {
            let fixed = |name: &str, value: &str| (name.to_owned(), value.to_owned(), value.to_owned());
            let place = place.index(members.len() + 1);
            members.insert(place, ("model".to_owned(), "\"alias\"".to_owned(), "\"a\"".to_owned()));
            members.insert(place, fixed("messages", "[ ]"));
            if streams {
                members.push(fixed("stream", "true"));
            }
            let write = |which: fn(&Member) -> &String, more: &str| {
                let written: Vec<_> = members
                    .iter()
                    .map(|member| format!("{space}\"{}\"{space}:{space}{}", member.0, which(member)))
                    .collect();
                format!("{{{}{more}{space}}}", written.join(","))
            };
            let more = if streams {
                r#","return_progress":true"#
            } else {
                r#","return_progress":true,"stream":true,"stream_options":{"include_usage":true}"#
            };
            (write(|member| &member.1, ""), write(|member| &member.2, more), streams)
        },
    )
}

#[tokio::test]
async fn a_body_reaches_the_engine_byte_for_byte_but_for_the_named_members() {
    let scripted = Script::default().place();
    let engines =
        Engines::fake().scripted("a", &scripted).with("a", |spec| spec.aliases.push("alias".to_owned()));
    let served = Served::start(engines, shipped()).await;
    let mut random = TestRunner::deterministic();
    for case in 0..128 {
        let (written, expected, streams) = body().new_tree(&mut random).unwrap().current();
        let answer = served.chat(&written).await;
        assert_eq!(answer.head.status, 200, "{written}: {answer:?}");
        assert_eq!(answer.head.header("content-type") == Some("text/event-stream"), streams, "{written}");
        assert_eq!(scripted.log().bodies().nth(case), Some(expected.as_str()), "{written}");
    }
}
