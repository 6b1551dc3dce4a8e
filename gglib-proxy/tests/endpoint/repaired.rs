//! Tool-call repair with the fake engine: what travels is what the real one sends, and the engine is told when the
//! client leaves.

use std::time::Duration;

use gglib_testkit::wire::post;
use gglib_testkit::{Engines, Fault, Launch, Reply, Script, Scripted, Template};
use serde_json::{Value, json};

use crate::served::{BOUND, Served, in_flight, shipped};

fn request(stream: bool) -> String {
    let parameters =
        json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": parameters } }]);
    json!({ "model": "a", "messages": [], "tools": tools, "stream": stream }).to_string()
}

fn broken() -> Reply {
    Reply::tool_calls([("f", r#"{"n":"x"}"#), ("f", r#"{"n":1}"#)])
}

async fn served(template: Template, second: Reply) -> (Scripted, Served) {
    let launch = Launch { replies: vec![broken(), second], template, ..Launch::default() };
    let scripted = Script::always(launch).place();
    let served = Served::start(Engines::fake().scripted("a", &scripted), shipped()).await;
    (scripted, served)
}

#[tokio::test]
async fn both_forms_repair_what_the_engine_sends() {
    let written = r#"<tool_call>{"name":"f","arguments":{"n":2}}</tool_call>"#;
    let forms = [
        (Template::WithTools, Reply::tool_call("f", ["{\"n\"", ":2}"])),
        (Template::WithoutTools, Reply::text(written.split_inclusive(':'))),
    ];
    for (template, second) in forms {
        for stream in [false, true] {
            let (scripted, served) = served(template, second.clone()).await;
            let answer = served.chat(&request(stream)).await;
            assert_eq!(answer.head.header("x-gglib-recovery"), Some("repair"), "{answer:?}");
            assert!(
                answer.body.contains(r#"{\"n\":2}"#) && answer.body.contains(r#"{\"n\":1}"#),
                "{answer:?}"
            );
            assert!(!answer.body.contains("<tool_call>") && !answer.body.contains(r#"\"x\""#), "{answer:?}");
            let log = scripted.log();
            let second: Value = serde_json::from_str(log.bodies().nth(1).unwrap()).unwrap();
            assert_eq!(second.get("grammar").is_some(), template == Template::WithoutTools);
            assert_eq!(second["tool_choice"] == "required", template == Template::WithTools);
            assert_eq!(log.requests(), 2);
            let totals = served.status().await["totals"].take();
            assert_eq!([&totals["broken_turns"], &totals["repairs"]], [1, 1]);
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_during_a_repair_cancels_the_engines_work() {
    for stream in [false, true] {
        let (scripted, served) = served(Template::WithTools, Reply { prefill: BOUND, ..broken() }).await;
        let mut client = served.connect().await;
        client.send(post("/v1/chat/completions", &request(stream))).await;
        scripted.until("the second request", BOUND, |log| log.requests() == 2).await;
        drop(client);
        let took = served.until("the lease to be back", |status| in_flight(status) == 0).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
        scripted.until("the engine to hear", Duration::from_secs(1), |log| log.cancelled() == 1).await;
    }
}

#[tokio::test]
async fn an_engine_that_dies_during_a_repair_costs_the_client_nothing() {
    for stream in [false, true] {
        let dying = Reply { fault: Some(Fault::DieBeforeHeaders), ..broken() };
        let (scripted, served) = served(Template::WithTools, dying).await;
        let answer = served.chat(&request(stream)).await;
        assert_eq!(answer.head.status, 200, "{answer:?}");
        assert!(answer.body.contains(r#"{\"n\":\"x\"}"#), "{answer:?}");
        assert_eq!(answer.head.header("x-gglib-recovery"), None);
        // It has been found dead, so the next request does not meet it.
        assert_eq!(served.chat(r#"{"model":"a","messages":[],"n":1}"#).await.head.status, 200);
        assert_eq!((scripted.log().launches(), scripted.log().requests()), (2, 3));
    }
}
