//! Engines and their pool with the real `llama-server`.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::admission::Refusal;
use gglib_core::config::Transport;
use gglib_core::model::ModelName;
use gglib_core::ports::{Lease, Liveness, Residency};
use gglib_testkit::engines::{is_running, only_engine, signal, snapshot};
use gglib_testkit::{Engines, real};
use http::Request;
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(10);

fn smollm2() -> Engines {
    Engines::real().model("smollm2", &real::smollm2(), 1, Vec::new())
}

async fn say_hi(lease: &dyn Lease) -> String {
    let body = r#"{"messages":[{"role":"user","content":"Say hi"}],"max_tokens":4,"stream":true}"#;
    let request = Request::post("/v1/chat/completions")
        .header("content-type", "application/json")
        .body(Bytes::from_static(body.as_bytes()))
        .unwrap();
    let response = lease.upstream().send(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut text = String::new();
    while let Some(chunk) = body.next().await {
        text.push_str(&String::from_utf8_lossy(&chunk.unwrap()));
    }
    text
}

#[tokio::test]
async fn fifty_at_once_cost_one_launch_and_all_are_served() {
    let pool = smollm2().start();
    let requests = (0..50).map(|_| async {
        let lease = pool.lease(ModelName::new("smollm2")).await.unwrap();
        say_hi(&*lease).await
    });
    for answer in futures_util::future::join_all(requests).await {
        assert!(answer.contains("finish_reason\":\"length"), "{answer}");
        assert!(answer.trim_end().ends_with("[DONE]"), "{answer}");
    }
    assert_eq!(snapshot(&*pool).await.totals.loads, 1);
    pool.shut_down(SOON).await;
}

#[tokio::test]
async fn an_engine_is_told_dead_when_it_is_and_the_next_lease_has_a_new_one() {
    let pool = smollm2().start();
    let lease = pool.lease(ModelName::new("smollm2")).await.unwrap();
    assert_eq!(lease.confirm().await, Liveness::Alive);
    let engine = only_engine(&*pool).await;
    signal(engine.pid.unwrap(), Signal::KILL);
    assert_eq!(lease.confirm().await, Liveness::Dead);
    let second = pool.lease(ModelName::new("smollm2")).await.unwrap();
    assert!(second.generation() > lease.generation());
    say_hi(&*second).await;
    // A suspicion of the old generation must not touch the new engine.
    assert_eq!(lease.confirm().await, Liveness::Dead);
    drop(lease);
    assert_eq!(only_engine(&*pool).await.in_flight, 1);
    assert_eq!(second.confirm().await, Liveness::Alive);
}

#[tokio::test]
async fn a_stopped_process_is_found_dead_and_killed() {
    let pool = smollm2().start();
    let lease = pool.lease(ModelName::new("smollm2")).await.unwrap();
    let pid = only_engine(&*pool).await.pid.unwrap();
    signal(pid, Signal::STOP);
    assert_eq!(lease.confirm().await, Liveness::Dead);
    assert!(!is_running(pid));
}

#[tokio::test]
async fn a_connection_idle_for_six_seconds_is_not_used_again() {
    let pool = smollm2().start();
    let lease = pool.lease(ModelName::new("smollm2")).await.unwrap();
    say_hi(&*lease).await;
    // The engine closes the connection after 5 s; only real time can show it.
    tokio::time::sleep(Duration::from_secs(6)).await;
    say_hi(&*lease).await;
}

#[tokio::test]
async fn over_tcp_the_engine_has_a_key_of_its_own() {
    let mut engines = smollm2();
    engines.launch.transport = Transport::Tcp;
    let pool = engines.start();
    let lease = pool.lease(ModelName::new("smollm2")).await.unwrap();
    say_hi(&*lease).await;
    let address = only_engine(&*pool).await.address.unwrap();
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
}

#[tokio::test]
async fn what_is_no_model_and_a_model_that_is_damaged_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.gguf");
    std::fs::write(&text, "just text").unwrap();
    let damaged = dir.path().join("damaged.gguf");
    std::fs::write(&damaged, b"GGUF\x03\0\0\0 and then nothing of use").unwrap();
    let missing = dir.path().join("missing.gguf");
    let pool = Engines::real()
        .model("text", &text, 1, Vec::new())
        .model("damaged", &damaged, 1, Vec::new())
        .model("missing", &missing, 1, Vec::new())
        .start();
    let reason = |name: &'static str| {
        let pool = &pool;
        async move {
            match pool.lease(ModelName::new(name)).await.err() {
                Some(Refusal::LoadFailed { reason }) => reason,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(
        reason("text").await,
        format!("{} is not a GGUF model file (it does not begin with \"GGUF\")", text.display())
    );
    assert!(reason("missing").await.contains("No such file"));
    let damaged = reason("damaged").await;
    assert!(damaged.contains("ended with exit status 1 while loading; its last lines:\n"), "{damaged}");
    assert!(damaged.contains("failed to load model"), "{damaged}");
}

#[tokio::test]
async fn shutting_down_leaves_no_engine_and_no_socket() {
    let pool = smollm2().start();
    let lease = pool.lease(ModelName::new("smollm2")).await.unwrap();
    let engine = only_engine(&*pool).await;
    let socket = engine.address.unwrap().strip_prefix("unix:").unwrap().to_owned();
    assert!(std::path::Path::new(&socket).exists());
    drop(lease);
    pool.shut_down(SOON).await;
    assert!(!is_running(engine.pid.unwrap()));
    assert!(!std::path::Path::new(&socket).exists());
    assert_eq!(pool.lease(ModelName::new("smollm2")).await.err(), Some(Refusal::Draining));
}
