//! What `/status` and the headers say of requests that share a run: the same as of the run.

use gglib_core::ports::{Liveness, Phase};
use serde_json::{Value, json};

use super::*;

fn named(id: &str, body: &str) -> String {
    request(&[("idempotency-key", "k"), ("x-request-id", id)], body)
}

fn breaks_after(seconds: u64) -> Vec<Step> {
    vec![Step::Wait(secs(seconds)), Step::Break(Phase::BeforeHeaders)]
}

/// An answer that has used 30 and 7 tokens.
fn answers_after(seconds: u64) -> Vec<Step> {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7}}"#;
    let wait = [Step::Wait(secs(seconds))];
    let rest = [content("abc"), finish(), Step::Send(format!("data: {usage}\n\n")), done()];
    wait.into_iter().chain(opening()).chain(rest).collect()
}

/// The row of the request with this `id`, which has ended: how, its recovery, tokens, and wait in seconds.
async fn row(endpoint: &Piped, id: &str) -> Value {
    let status = endpoint.status().await;
    let row = status["recent"].as_array().unwrap().iter().find(|row| row["request_id"] == id).unwrap();
    let waited = row["waited_ms"].as_f64().unwrap() / 1000.0;
    json!([row["outcome"], row["recovery"], row["prompt_tokens"], row["completion_tokens"], waited])
}

async fn relaunches(endpoint: &Piped) -> Value {
    endpoint.totals().await["relaunches"].take()
}

#[tokio::test(start_paused = true)]
async fn each_has_the_recovery_and_the_tokens_of_the_run_and_its_own_part_of_the_wait() {
    for body in [PLAIN, STREAM] {
        let ports = Ports::answering([breaks_after(10), answers_after(10)])
            .with_turns([Turn::After(secs(20))])
            .with_health([Liveness::Dead]);
        let endpoint = Piped::start(ports, shipped());
        let mut first = sent(&endpoint, &named("first", body)).await;
        let mut second = later(&endpoint, &named("second", body)).await;
        let (first, second) = tokio::join!(first.answer(), second.answer());
        let mut third = later(&endpoint, &named("third", body)).await;
        let third = third.answer().await;
        for answer in [&first, &second, &third] {
            assert_whole(answer);
            let header = answer.head.header("x-gglib-recovery") == Some("relaunch");
            assert_ne!(header, answer.comments().contains(&": gglib-recovery relaunch"), "{answer:?}");
        }
        // The second one came 15 s later, and the third one when the answer was there.
        assert_eq!(row(&endpoint, "first").await, json!(["success", "relaunch", 30, 7, 20.0]), "{body}");
        assert_eq!(row(&endpoint, "second").await, json!(["success", "relaunch", 30, 7, 5.0]), "{body}");
        assert_eq!(row(&endpoint, "third").await, json!(["success", "relaunch", 30, 7, 0.0]), "{body}");
        // And all of it has happened once.
        assert_eq!(relaunches(&endpoint).await, 1);
        let metrics = endpoint.connect().ask("GET /metrics HTTP/1.1\r\nhost: gglib\r\n\r\n").await.body;
        for sample in [
            "gglib_prompt_tokens_total{model=\"m\"} 30\n",
            "gglib_completion_tokens_total{model=\"m\"} 7\n",
            "gglib_queue_wait_seconds_sum{model=\"m\"} 20.0\n",
            "gglib_relaunches_total{model=\"m\"} 1\n",
        ] {
            assert!(metrics.contains(sample), "{sample}{metrics}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_after_a_recovery_names_it_to_whoever_is_attached() {
    for body in [PLAIN, STREAM] {
        let ports = Ports::answering([breaks_after(14), breaks_after(2)])
            .with_health([Liveness::Dead, Liveness::Alive]);
        let endpoint = Piped::start(ports, shipped());
        let first = sent(&endpoint, &named("first", body)).await;
        let second = later(&endpoint, &named("second", body)).await.answer().await;
        assert_eq!((second.head.status, &second.error()["code"]), (502, &json!("upstream_died")));
        assert_eq!(second.head.header("x-gglib-recovery"), Some("relaunch"), "{body}");
        drop(first);
        assert_eq!(row(&endpoint, "second").await, json!(["failed", "relaunch", 0, 0, 0.0]), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recovery_stands_in_the_row_of_whoever_has_stayed_for_it() {
    for body in [PLAIN, STREAM] {
        let ports = Ports::answering([breaks_after(20), answers_after(10)]).with_health([Liveness::Dead]);
        let endpoint = Piped::start(ports, shipped());
        let first = sent(&endpoint, &named("first", body)).await;
        let mut second = later(&endpoint, &named("second", body)).await;
        sleep(secs(1)).await;
        drop(first);
        assert_whole(&second.answer().await);
        assert_eq!(row(&endpoint, "first").await, json!(["abandoned", null, 0, 0, 0.0]), "{body}");
        assert_eq!(row(&endpoint, "second").await, json!(["success", "relaunch", 30, 7, 0.0]), "{body}");
        assert_eq!(relaunches(&endpoint).await, 1);
    }
}
