//! Faults of a gateway's own making, as one of this kind had them (numbers and letters, see [`faults`](crate::faults)):
//! what must not be made of an answer or of a request.

use std::time::Duration;

use gglib_testkit::wire::{Piece, post};
use gglib_testkit::{Engines, Entry, Launch, Reply, Script, Scripted, Template};
use serde_json::{Value, json};

use crate::served::{BOUND, Served, in_flight, shipped};

async fn served(replies: Vec<Reply>) -> (Scripted, Served) {
    let launch = Launch { replies, template: Template::WithTools, ..Launch::default() };
    let scripted = Script::always(launch).place();
    let served = Served::start(Engines::fake().scripted("a", &scripted), shipped()).await;
    (scripted, served)
}

fn tools() -> Value {
    let parameters =
        json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    json!([{ "type": "function", "function": { "name": "f", "parameters": parameters } }])
}

/// 18: a model that has only thought has answered. Its thoughts are no content, and it is not asked again.
#[tokio::test]
async fn an_answer_of_reasoning_alone_is_whole_and_asked_for_once() {
    let (scripted, served) = served(vec![Reply::reasoning(["a", "b"], [])]).await;
    let plain = served.chat(r#"{"messages":[]}"#).await;
    let choice = plain.json()["choices"][0].take();
    assert_eq!((plain.head.status, &choice["finish_reason"]), (200, &"stop".into()));
    assert_eq!([&choice["message"]["reasoning_content"], &choice["message"]["content"]], ["ab", ""]);
    let stream = served.chat(r#"{"messages":[],"stream":true}"#).await;
    assert_eq!((&stream.end, stream.data().last().copied()), (&Piece::End, Some("[DONE]")));
    assert_eq!(stream.body.matches("reasoning_content").count(), 2, "{}", stream.body);
    assert_eq!(stream.content(), "");
    assert_eq!(scripted.log().requests(), 2);
    let totals = served.status().await["totals"].take();
    assert_eq!([&totals["failed"], &totals["broken_turns"], &totals["relaunches"]], [0, 0, 0]);
}

/// 19, 20: calls are read out of a model's markup by the engine alone. What it leaves in the text stays there, to the
/// letter and in both forms: no value is cut at its own closing tag, and no function of several is lost.
#[tokio::test]
async fn markup_that_the_engine_leaves_in_the_text_stays_as_it_is() {
    let markup = "<tool_call><function=f><parameter=code>a </parameter> b</parameter></function>\
                  <function=g></function></tool_call>";
    let (scripted, served) = served(vec![Reply::text(markup.split_inclusive('>'))]).await;
    for more in [json!({}), json!({ "tools": tools() })] {
        let mut body = json!({ "messages": [] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let plain = served.chat(&body.to_string()).await.json();
        assert_eq!(plain["choices"][0]["message"]["content"], markup);
        body["stream"] = true.into();
        assert_eq!(served.chat(&body.to_string()).await.content(), markup);
    }
    assert_eq!(scripted.log().requests(), 4);
}

/// 23, 24: the context that is advertised is what the engine was started with, for each request; content in parts, and
/// members that nobody knows, are the engine's business.
#[tokio::test]
async fn the_context_that_is_told_is_the_one_that_is_there_and_content_may_come_in_parts() {
    let scripted = Script::default().place();
    let engines = Engines::fake().scripted("a", &scripted).with("a", |spec| {
        (spec.context, spec.parallel) = (Some(512), 3);
    });
    let served = Served::start(engines, shipped()).await;
    let models = served.connect().await.ask("GET /v1/models HTTP/1.1\r\nhost: gglib\r\n\r\n").await.json();
    assert_eq!(models["data"][0]["context_length"], 512);
    let parts = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"new","x":1}]}],"effort":{}}"#;
    let answer = served.chat(parts).await;
    assert_eq!(answer.head.status, 200, "{answer:?}");
    let log = scripted.log();
    let messages = &parts[1..parts.len() - 1];
    assert!(log.bodies().next().unwrap().contains(messages), "{log:?}");
    let launched = log.entries.iter().find_map(|entry| match entry {
        Entry::Launched { args, .. } => Some(args.join(" ")),
        _ => None,
    });
    let args = launched.unwrap();
    assert!(args.contains("--ctx-size 1536") && args.contains("--parallel 3"), "{args}");
}

/// J: work that gglib itself gives an engine is counted like a client's, so that no rival ends it.
#[tokio::test]
async fn a_repair_holds_its_engine_while_another_model_is_wanted() {
    let second = Reply { prefill: Duration::from_secs(3), ..Reply::tool_call("f", ["{\"n\":1}"]) };
    let launch = Launch {
        replies: vec![Reply::tool_call("f", ["{\"n\":\"x\"}"]), second],
        template: Template::WithTools,
        ..Launch::default()
    };
    let [a, b] = [Script::always(launch), Script::default()].map(|script| script.place());
    let engines = Engines::fake().scripted("a", &a).scripted("b", &b);
    let served = Served::start(engines, shipped()).await;
    let mut repaired = served.connect().await;
    let body = json!({ "model": "a", "messages": [], "tools": tools() });
    repaired.send(post("/v1/chat/completions", &body.to_string())).await;
    a.until("the repair", BOUND, |log| log.requests() == 2).await;
    let mut rival = served.connect().await;
    rival.send(post("/v1/chat/completions", r#"{"model":"b","messages":[]}"#)).await;
    let waits = |status: &Value| status["queue"][0]["waiting"] == 1 && in_flight(status) == 1;
    served.until("the rival to wait during the repair", waits).await;
    let answer = repaired.answer().await;
    assert_eq!(answer.head.header("x-gglib-recovery"), Some("repair"), "{answer:?}");
    assert_eq!(rival.answer().await.head.status, 200);
    assert_eq!((a.log().launches(), b.log().launches()), (1, 1), "{:?}", a.log());
}

/// K: the same call a fourth time is what was asked for, such as the tests of a project that are run again.
#[tokio::test]
async fn a_call_that_was_made_before_is_made_again() {
    let (scripted, served) = served(vec![Reply::tool_call("f", ["{\"n\":1}"])]).await;
    let call = |id: usize| {
        let call = json!({ "id": id.to_string(), "type": "function", "function": { "name": "f", "arguments": "{\"n\":1}" } });
        let result = json!({ "role": "tool", "tool_call_id": id.to_string(), "content": "failed" });
        [json!({ "role": "assistant", "content": null, "tool_calls": [call] }), result]
    };
    let messages: Vec<Value> = (0..3).flat_map(call).collect();
    let answer = served.chat(&json!({ "messages": messages, "tools": tools() }).to_string()).await;
    let choice = answer.json()["choices"][0].take();
    assert_eq!((answer.head.status, &choice["finish_reason"]), (200, &"tool_calls".into()));
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"n\":1}");
    assert_eq!(scripted.log().requests(), 1);
}
