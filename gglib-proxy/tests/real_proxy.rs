//! The endpoint with the real `llama-server` and real models behind it.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "endpoint/served.rs"]
mod served;

use std::time::Duration;

use futures_util::future::join_all;
use gglib_proxy::Settings;
use gglib_testkit::wire::{Answer, Piece, post};
use gglib_testkit::{Engines, real};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use self::served::{BOUND, Served, in_flight, shipped};

async fn smollm2() -> Served {
    let engines = Engines::real().model("smollm2", &real::smollm2(), 1, real::one_thread());
    Served::start(engines, shipped()).await
}

fn ask(prompt: &str, max_tokens: u32, more: &Value) -> String {
    let mut body = json!({
        "model": "smollm2",
        "messages": [{ "role": "user", "content": prompt }],
        "max_tokens": max_tokens,
        "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    body.to_string()
}

fn short(more: &Value) -> String {
    ask("Say hi", 4, more)
}

/// An answer that takes half a minute, and does not end by itself before.
fn endless(more: &Value) -> String {
    let mut more = more.clone();
    more["ignore_eos"] = true.into();
    ask("Count from one to a thousand.", 1900, &more)
}

/// A prompt that takes a second or more to process. Each has words of its own, so that no cache helps.
fn long(start: u32, more: &Value) -> String {
    let numbers: Vec<String> = (start..start + 120).map(|number| number.to_string()).collect();
    ask(&numbers.join(" "), 8, more)
}

fn check_whole(answer: &Answer) {
    assert_eq!((answer.head.status, &answer.end), (200, &Piece::End), "{answer:?}");
    assert!(!answer.content().is_empty(), "{answer:?}");
    if answer.head.header("content-type") == Some("text/event-stream") {
        assert!(answer.body.ends_with("data: [DONE]\n\n"), "{answer:?}");
        assert_eq!(answer.body.matches("[DONE]").count(), 1, "{answer:?}");
        assert_eq!(answer.body.matches("\"role\":\"assistant\"").count(), 1, "{answer:?}");
        assert!(!answer.body.contains("prompt_progress"), "{answer:?}");
    } else {
        assert!(answer.json()["usage"]["completion_tokens"].as_u64().is_some_and(|tokens| tokens > 0));
        assert!(answer.json()["choices"][0]["finish_reason"].is_string(), "{answer:?}");
    }
}

async fn kill_engine(served: &Served) -> u64 {
    signal_engine(served, Signal::KILL).await
}

async fn signal_engine(served: &Served, signal: Signal) -> u64 {
    let status = served.status().await;
    let pid = status["engines"][0]["pid"].as_u64().expect("there is an engine");
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
    pid
}

fn total(status: &Value, name: &str) -> u64 {
    status["totals"][name].as_u64().unwrap()
}

#[tokio::test]
async fn a_plain_and_a_streamed_answer_say_the_same_and_odd_members_pass() {
    let served = smollm2().await;
    let plain = served.chat(&short(&json!({ "seed": 1, "made_up": { "big": 1e300 } }))).await;
    check_whole(&plain);
    let options = json!({ "seed": 1, "stream": true, "stream_options": { "include_usage": true } });
    let streamed = served.chat(&short(&options)).await;
    check_whole(&streamed);
    assert_eq!(plain.content(), streamed.content());
    let data = streamed.data();
    let usage: Value = serde_json::from_str(data[data.len() - 2]).unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], plain.json()["usage"]["completion_tokens"]);
    assert_eq!(plain.json()["model"], "smollm2");

    let without = served.chat(&short(&json!({ "stream": true }))).await;
    check_whole(&without);
    assert!(!without.body.contains("\"usage\""), "{}", without.body);

    // An integer that no machine type holds, and a member twice: the engine takes the last.
    let odd = short(&json!({})).replacen('{', r#"{"max_tokens":1,"user_data":18446744073709551616,"#, 1);
    let odd = served.chat(&odd).await;
    check_whole(&odd);
    assert_eq!(odd.json()["usage"]["completion_tokens"], plain.json()["usage"]["completion_tokens"]);

    // All four have the same prompt and length, and one of them only the engine's timings to tell it by.
    let metrics = served.connect().await.ask("GET /metrics HTTP/1.1\r\nhost: gglib\r\n\r\n").await;
    for (name, part) in [("prompt", "prompt_tokens"), ("completion", "completion_tokens")] {
        let tokens = 4 * plain.json()["usage"][part].as_u64().unwrap();
        let line = format!("gglib_{name}_tokens_total{{model=\"smollm2\"}} {tokens}\n");
        assert!(metrics.body.contains(&line), "{line}{}", metrics.body);
    }
}

#[tokio::test]
async fn two_choices_both_come_whole() {
    let engines = Engines::real().model("smollm2", &real::smollm2(), 2, real::one_thread());
    let served = Served::start(engines, shipped()).await;
    let two = json!({ "n": 2, "temperature": 1, "ignore_eos": true });
    let plain = served.chat(&short(&two)).await;
    check_whole(&plain);
    let choices = plain.json()["choices"].take();
    assert_eq!(choices.as_array().map(Vec::len), Some(2), "{choices}");
    assert!(choices[1]["message"]["content"].as_str().is_some_and(|text| !text.is_empty()), "{choices}");

    let mut streamed = two.clone();
    streamed["stream"] = true.into();
    let answer = served.chat(&short(&streamed)).await;
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{answer:?}");
    assert_eq!(answer.body.matches("\"finish_reason\":\"length\"").count(), 2, "{answer:?}");
}

#[tokio::test]
async fn a_first_token_that_is_half_a_character_still_comes_after_a_role() {
    let served = smollm2().await;
    let grammar = json!({ "stream": true, "grammar": "root ::= \"🌱\" [a-z]+" });
    let answer = served.chat(&short(&grammar)).await;
    check_whole(&answer);
    assert!(answer.data()[0].contains("\"role\":\"assistant\""), "{}", answer.body);
    assert!(answer.content().starts_with('🌱'), "{}", answer.body);
}

#[tokio::test]
async fn fifty_clients_of_a_cold_model_cost_one_launch_and_all_are_served() {
    let served = smollm2().await;
    let bodies = [short(&json!({})), short(&json!({ "stream": true }))];
    for answer in join_all((0..50).map(|number| served.chat(&bodies[number % 2]))).await {
        check_whole(&answer);
    }
    let status = served.status().await;
    assert_eq!((total(&status, "loads"), total(&status, "requests"), total(&status, "failed")), (1, 50, 0));
}

#[tokio::test]
async fn killed_while_idle_the_next_client_knows_nothing_of_it() {
    let served = smollm2().await;
    check_whole(&served.chat(&short(&json!({}))).await);
    for more in [json!({ "stream": true }), json!({})] {
        let pid = kill_engine(&served).await;
        check_whole(&served.chat(&short(&more)).await);
        let status = served.status().await;
        assert_ne!(status["engines"][0]["pid"], pid);
        assert_eq!(total(&status, "failed"), 0);
    }
}

#[tokio::test]
async fn killed_in_the_middle_of_a_stream_it_is_an_error_and_the_next_request_is_served() {
    let engines = Engines::real().model("smollm2", &real::smollm2(), 1, real::one_thread());
    let served = Served::start(engines, Settings { continue_streams: false, ..shipped() }).await;
    let mut client = served.connect().await;
    client.send(post("/v1/chat/completions", &endless(&json!({ "stream": true })))).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client.until("\"content\":\"").await;
    kill_engine(&served).await;
    let (rest, end) = client.rest().await;
    assert_eq!(end, Piece::Cut, "{rest}");
    let last = rest.trim_end().lines().last().unwrap().strip_prefix("data: ").unwrap();
    let error: Value = serde_json::from_str(last).unwrap();
    assert_eq!(error["error"]["code"], "upstream_died", "{rest}");
    assert!(!rest.contains("[DONE]") && rest.ends_with("\n\n"), "{rest}");
    check_whole(&served.chat(&short(&json!({}))).await);
    let status = served.status().await;
    assert_eq!((total(&status, "failed"), total(&status, "relaunches"), total(&status, "loads")), (1, 0, 2));
}

#[tokio::test]
async fn killed_in_the_middle_of_a_plain_answer_it_is_answered_all_the_same() {
    let served = smollm2().await;
    check_whole(&served.chat(&short(&json!({}))).await);
    let body = ask("Count from one to a hundred.", 300, &json!({ "ignore_eos": true }));
    let (answer, _) = tokio::join!(served.chat(&body), async {
        served.until("the request to be served", |status| in_flight(status) == 1).await;
        sleep(Duration::from_millis(500)).await;
        kill_engine(&served).await
    });
    check_whole(&answer);
    assert_eq!(answer.head.header("x-gglib-recovery"), Some("relaunch"));
    assert_eq!(answer.json()["usage"]["completion_tokens"], 300);
}

#[tokio::test]
async fn an_engine_for_embeddings_that_is_killed_over_one_is_replaced_and_no_engine_for_chats_answers_it() {
    let mut args = real::one_thread();
    args.extend(["--embeddings", "--pooling", "mean"].map(str::to_owned));
    let engines = Engines::real().model("vectors", &real::smollm2(), 1, args).model(
        "smollm2",
        &real::smollm2(),
        1,
        real::one_thread(),
    );
    let served = Served::start(engines, shipped()).await;
    let embed = |model: &str, input: &str| {
        post("/v1/embeddings", &json!({ "model": model, "input": [input] }).to_string())
    };
    let vector = |answer: &Answer| {
        assert_eq!((answer.head.status, &answer.end), (200, &Piece::End), "{answer:?}");
        let vector: Vec<f64> = serde_json::from_value(answer.json()["data"][0]["embedding"].take()).unwrap();
        assert!(vector.len() > 100 && vector.iter().any(|value| *value != 0.0), "{answer:?}");
        vector
    };
    let first = served.connect().await.ask(embed("vectors", "a small boat")).await;
    let mut client = served.connect().await;
    // Stopped, so that the request is certainly with the engine when that is killed.
    signal_engine(&served, Signal::STOP).await;
    let (again, ()) = tokio::join!(client.ask(embed("vectors", "a small boat")), async {
        served.until("the request to be served", |status| in_flight(status) == 1).await;
        signal_engine(&served, Signal::KILL).await;
    });
    assert_eq!(again.head.header("x-gglib-recovery"), Some("relaunch"));
    for (one, other) in vector(&first).iter().zip(vector(&again)) {
        assert!((one - other).abs() < 1e-3, "{one} {other}");
    }
    let refused = served.connect().await.ask(embed("smollm2", "a small boat")).await;
    assert_eq!(
        (refused.head.status, &refused.error()["code"]),
        (501, &json!("not_supported")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn killed_while_it_reads_the_prompt_it_is_relaunched_for_the_same_request() {
    let served = smollm2().await;
    check_whole(&served.chat(&short(&json!({}))).await);
    let mut client = served.connect().await;
    let more = json!({ "stream": true, "return_progress": true });
    client.send(post("/v1/chat/completions", &long(1000, &more))).await;
    client.head().await.unwrap();
    client.until("prompt_progress").await;
    kill_engine(&served).await;
    let (rest, end) = client.rest().await;
    assert_eq!(end, Piece::End, "{rest}");
    assert!(rest.contains(": gglib-recovery relaunch\n\n") && rest.ends_with("data: [DONE]\n\n"), "{rest}");

    let (answer, _) = tokio::join!(async { served.chat(&long(2000, &json!({}))).await }, async {
        served.until("the request to be served", |status| in_flight(status) == 1).await;
        sleep(Duration::from_millis(100)).await;
        kill_engine(&served).await
    });
    check_whole(&answer);
    assert_eq!(answer.head.header("x-gglib-recovery"), Some("relaunch"));
    let status = served.status().await;
    assert_eq!((total(&status, "failed"), total(&status, "relaunches"), total(&status, "loads")), (0, 2, 3));
}

#[tokio::test]
async fn a_client_that_leaves_frees_the_engine() {
    let served = smollm2().await;
    check_whole(&served.chat(&short(&json!({}))).await);
    let plain = json!({});
    let stream = json!({ "stream": true });
    for (phase, body) in [
        ("answer", endless(&plain)),
        ("answer", endless(&stream)),
        ("prompt", long(3000, &plain)),
        ("prompt", long(4000, &stream)),
    ] {
        let mut client = served.connect().await;
        client.send(post("/v1/chat/completions", &body)).await;
        served.until("the request to be served", |status| in_flight(status) == 1).await;
        sleep(Duration::from_millis(if phase == "answer" { 1000 } else { 100 })).await;
        drop(client);
        let took = served.until("the lease to be back", |status| in_flight(status) == 0).await;
        assert!(took < Duration::from_secs(1), "{phase}: {took:?}");
        // Had the engine gone on with its answer, the next one would have to wait for it. (A prompt it leaves
        // only after the batch that it is at.)
        let next = Instant::now();
        check_whole(&served.chat(&short(&plain)).await);
        assert!(phase == "prompt" || next.elapsed() < Duration::from_secs(8), "{:?}", next.elapsed());
    }
    let status = served.status().await;
    assert_eq!((total(&status, "abandoned"), total(&status, "failed"), total(&status, "loads")), (4, 0, 1));
}

#[tokio::test]
async fn two_models_in_turn_from_four_clients_are_twenty_full_answers() {
    let engines = Engines::real().model("smollm2", &real::smollm2(), 1, real::one_thread()).model(
        "gemma3",
        &real::gemma3(),
        1,
        real::one_thread(),
    );
    let served = Served::start(engines, shipped()).await;
    let clients = (0..4).map(|client| {
        let served = &served;
        async move {
            for number in 0..5 {
                let model = ["smollm2", "gemma3"][(client + number) % 2];
                let stream = client % 2 == 0;
                let more = json!({ "model": model, "stream": stream, "ignore_eos": true });
                let answer = served.chat(&short(&more)).await;
                check_whole(&answer);
                assert!(answer.body.contains(&format!("\"model\":\"{model}\"")), "{answer:?}");
            }
        }
    });
    tokio::time::timeout(3 * BOUND, join_all(clients)).await.expect("no client starves");
    let status = served.status().await;
    assert_eq!((total(&status, "requests"), total(&status, "failed")), (20, 0));
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_told_so_and_not_tried_again() {
    let served = smollm2().await;
    for more in [json!({}), json!({ "stream": true })] {
        let answer = served.chat(&ask(&"word ".repeat(5000), 8, &more)).await;
        assert_eq!((answer.head.status, &answer.end), (400, &Piece::End), "{answer:?}");
        let error = answer.error();
        assert_eq!([&error["code"], &error["type"]], ["context_length_exceeded", "invalid_request_error"]);
        assert_eq!(error["metadata"]["n_ctx"], 2048);
        assert_eq!(answer.head.header("retry-after"), None);
    }
    let status = served.status().await;
    assert_eq!((total(&status, "loads"), total(&status, "resends")), (1, 0));
    check_whole(&served.chat(&short(&json!({}))).await);
}
