//! Tool calls of real models, and the repair of what a real `llama-server` makes of them.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "endpoint/served.rs"]
mod served;

use std::path::PathBuf;

use gglib_proxy::Settings;
use gglib_testkit::wire::Answer;
use gglib_testkit::{Engines, TO_FLAG, UNTAUGHT_FLAG, real, relay_engine};
use serde_json::{Value, json};

use self::served::{Served, in_flight, shipped};

/// Two functions and two worked examples, then a question about the weather; with these further members.
fn ask(more: &Value) -> String {
    let weather = json!({
        "type": "object",
        "properties": { "city": { "type": "string", "maxLength": 12 }, "unit": { "type": "string", "enum": ["c", "f"] } },
        "required": ["city", "unit"],
        "additionalProperties": false,
    });
    let event = json!({
        "type": "object",
        "properties": {
            "title": { "type": "string", "maxLength": 12 },
            "attendees": { "type": "array", "items": { "type": "string", "maxLength": 8 }, "maxItems": 2 },
            "priority": { "type": "integer", "minimum": 1, "maximum": 5 },
        },
        "required": ["title", "attendees", "priority"],
        "additionalProperties": false,
    });
    let call = |name: &str, arguments: Value| {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "1", "type": "function", "function": function }] })
    };
    let done = |content: &str| json!({ "role": "tool", "tool_call_id": "1", "content": content });
    let user = |content: &str| json!({ "role": "user", "content": content });
    let mut body = json!({
        "messages": [
            { "role": "system", "content": "You call functions." },
            user("What is the weather in Paris, in celsius?"),
            call("get_weather", json!({ "city": "Paris", "unit": "c" })),
            done("{\"temperature\": 18}"),
            user("Meeting with Ann and Bob, priority 2."),
            call("create_event", json!({ "title": "Meeting", "attendees": ["Ann", "Bob"], "priority": 2 })),
            done("{\"created\": true}"),
            user("What is the weather in Berlin, in celsius?"),
        ],
        "tools": [
            { "type": "function", "function": { "name": "get_weather", "parameters": weather } },
            { "type": "function", "function": { "name": "create_event", "parameters": event } },
        ],
        "temperature": 0,
        "max_tokens": 120,
    });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    body.to_string()
}

/// The one call of a plain answer: the function and its arguments, which are valid.
fn the_call(answer: &Answer) -> (String, Value) {
    let choice = answer.json()["choices"][0].take();
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer:?}");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{answer:?}");
    let function = &calls[0]["function"];
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
    let name = function["name"].as_str().unwrap().to_owned();
    match name.as_str() {
        "get_weather" => {
            assert_eq!(arguments.as_object().unwrap().len(), 2, "{arguments}");
            assert!(arguments["city"].as_str().is_some_and(|city| city.chars().count() <= 12), "{arguments}");
            assert!(arguments["unit"] == "c" || arguments["unit"] == "f", "{arguments}");
        }
        "create_event" => {
            assert_eq!(arguments.as_object().unwrap().len(), 3, "{arguments}");
            assert!(arguments["title"].is_string(), "{arguments}");
            assert!(arguments["attendees"].as_array().is_some_and(|list| list.len() <= 2), "{arguments}");
            assert!(matches!(arguments["priority"].as_u64(), Some(1..=5)), "{arguments}");
        }
        other => panic!("`{other}` was not offered"),
    }
    (name, arguments)
}

#[tokio::test]
async fn gemma_calls_when_its_template_knows_tools_and_a_broken_call_in_the_history_does_not_stop_it() {
    let template = real::tool_template().into_os_string().into_string().unwrap();
    let mut args = real::one_thread();
    args.extend(["--chat-template-file".to_owned(), template]);
    let served = Served::start(Engines::real().model("gemma3", &real::gemma3(), 1, args), shipped()).await;
    // It does not stop calling by itself.
    let body = ask(&json!({ "stop": ["</tool_call>"] }));
    let answer = served.chat(&body).await;
    let expected = ("get_weather".to_owned(), json!({ "city": "Berlin", "unit": "c" }));
    assert_eq!(the_call(&answer), expected);
    assert_eq!(answer.head.header("x-gglib-recovery"), None);

    // As they are, the engine would answer 500 to these arguments, for ever.
    let torn = body.replacen(r#"\"unit\":\"c\"}"#, r#"\"unit\":\"c\",}"#, 1);
    assert_ne!(torn, body);
    assert_eq!(the_call(&served.chat(&torn).await), expected);
    let torn = body.replacen(r#"\"unit\":\"c\"}"#, r#"\"unit"#, 1);
    let answer = served.chat(&torn).await;
    assert_eq!(
        (answer.head.status, &answer.error()["param"]),
        (400, &json!("messages[2].tool_calls[0].function.arguments"))
    );

    // What its own grammar did not hold: a call that was cut off is asked for again, is cut off again, and stays.
    let answer = served.chat(&ask(&json!({ "max_tokens": 38 }))).await;
    let totals = served.status().await["totals"].take();
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "length", "{answer:?}");
    assert_eq!([&totals["broken_turns"], &totals["repairs"], &totals["failed"]], [1, 0, 1], "{answer:?}");
}

#[tokio::test]
async fn a_model_that_was_never_taught_to_call_is_made_to_by_our_grammar() {
    let engines = Engines::real().model("smollm2", &real::smollm2(), 1, real::one_thread());
    let served = Served::start(engines, shipped()).await;
    let named = json!({ "type": "function", "function": { "name": "create_event" } });
    for (number, choice) in [json!("required"), named].into_iter().enumerate() {
        let answer = served.chat(&ask(&json!({ "tool_choice": choice }))).await;
        let (name, _) = the_call(&answer);
        assert!(number == 0 || name == "create_event", "{answer:?}");
        assert_eq!(answer.head.header("x-gglib-recovery"), Some("repair"), "{answer:?}");
        assert!(!answer.body.contains("<tool_call>"), "{answer:?}");
    }
    // The text has been seen by then, so the stream says it in a comment.
    let answer = served.chat(&ask(&json!({ "tool_choice": "required", "stream": true }))).await;
    assert!(
        answer.body.contains(": gglib-recovery repair\n\n") && answer.body.ends_with("data: [DONE]\n\n"),
        "{answer:?}"
    );
    assert_eq!(answer.body.matches(r#""finish_reason":"tool_calls""#).count(), 1, "{answer:?}");
    served.until("the lease to be back", |status| in_flight(status) == 0).await;
    assert_eq!(served.status().await["totals"]["repairs"], 3);
}

/// The real model's own calls, with nothing that holds it: with a template that knows tools, or one that seems not to.
async fn relayed(is_taught: bool, repair: bool) -> Served {
    let path = |path: PathBuf| path.into_os_string().into_string().unwrap();
    let mut args = real::one_thread();
    args.extend(["--chat-template-file".to_owned(), path(real::tool_template())]);
    args.extend([TO_FLAG.to_owned(), path(real::engine())]);
    args.extend((!is_taught).then(|| UNTAUGHT_FLAG.to_owned()));
    let engines = Engines::of(relay_engine()).model("gemma3", &real::gemma3(), 1, args);
    Served::start(engines, Settings { repair, ..shipped() }).await
}

#[tokio::test]
async fn a_call_that_the_real_model_broke_is_repaired_in_both_forms() {
    let body = ask(&json!({})).replace("Berlin, in celsius", "Berlin, in fahrenheit");
    let expected = ("get_weather".to_owned(), json!({ "city": "Berlin", "unit": "f" }));

    let answer = relayed(true, false).await.chat(&body).await;
    let function = answer.json()["choices"][0]["message"]["tool_calls"][0]["function"].take();
    // What it takes for a call is the temperature there.
    assert_eq!(function, json!({ "name": "", "arguments": "" }), "{answer:?}");

    for is_taught in [true, false] {
        let served = relayed(is_taught, true).await;
        let answer = served.chat(&body).await;
        assert_eq!(the_call(&answer), expected, "{is_taught}");
        assert_eq!(answer.head.header("x-gglib-recovery"), Some("repair"));
        let totals = served.status().await["totals"].take();
        assert_eq!([&totals["broken_turns"], &totals["repairs"], &totals["mends"]], [1, 1, 0]);
    }
}
