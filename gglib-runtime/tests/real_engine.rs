//! Engines and their pool with the real `llama-server`.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use gglib_core::admission::{EngineState, Refusal, Settings, Snapshot};
use gglib_core::config::Transport;
use gglib_core::memory::MemoryProbe;
use gglib_core::model::ModelName;
use gglib_core::ports::{Lease, Liveness};
use gglib_runtime::admission::Pool;
use gglib_runtime::memory::{Accounts, FootprintFile, SystemProbe};
use gglib_testkit::engines::{
    Enter, engine_pid, freeze, is_running, only_engine, signal, snapshot, until_snapshot,
};
use gglib_testkit::{Engines, real};
use http::Request;
use rustix::process::Signal;
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(10);

fn smollm2() -> Engines {
    Engines::real().model("smollm2", &real::smollm2(), 1, real::one_thread())
}

/// Two models, of which one fits.
fn both() -> Engines {
    smollm2().model("gemma3", &real::gemma3(), 1, real::one_thread())
}

/// One request from the queue to the end of its answer, which must be whole.
async fn ask(pool: &Pool, model: &'static str) {
    let lease = pool.lease(ModelName::new(model)).await.unwrap();
    let answer = say_hi(&*lease).await;
    assert!(answer.contains("finish_reason\":\"length"), "{answer}");
    assert!(answer.trim_end().ends_with("[DONE]"), "{answer}");
}

/// Why gemma3, whose load takes longer, could not be loaded after `hit` in the middle.
async fn load_hit_by(pool: &Pool, hit: impl AsyncFnOnce(u32)) -> String {
    let hit = async {
        let pid = engine_pid(pool).await;
        hit(pid).await;
        assert_eq!(only_engine(pool).await.state, EngineState::Loading);
        pid
    };
    let (refused, pid) = tokio::join!(pool.lease(ModelName::new("gemma3")), hit);
    assert!(!is_running(pid));
    match refused.err() {
        Some(Refusal::LoadFailed { reason }) => reason.to_string(),
        other => panic!("{other:?}"),
    }
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
    join_all((0..50).map(|_| ask(&pool, "smollm2"))).await;
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
    freeze(pid).await;
    assert_eq!(lease.confirm().await, Liveness::Dead);
    assert!(!is_running(pid));
}

#[tokio::test]
async fn killed_while_loading_it_is_loaded_once_more_and_killed_twice_it_is_told() {
    let pool = both().start();
    let killed = async {
        let pid = engine_pid(&*pool).await;
        signal(pid, Signal::KILL);
        until_snapshot(&*pool, "a second load", SOON, |state| {
            state.engines.iter().any(|engine| engine.pid.is_some_and(|other| other != pid))
        })
        .await;
    };
    // Whoever waits knows nothing of it.
    tokio::join!(ask(&pool, "gemma3"), killed);
    let totals = snapshot(&*pool).await.totals;
    assert_eq!((totals.loads, totals.failed_loads), (1, 1));

    let pool = both().start();
    let killed = async {
        for launch in 1..=2 {
            let is_next = |state: &Snapshot| {
                state.engines.iter().any(|engine| engine.generation.0 == launch && engine.pid.is_some())
            };
            until_snapshot(&*pool, "a load", SOON, is_next).await;
            signal(engine_pid(&*pool).await, Signal::KILL);
        }
    };
    let refused = tokio::join!(pool.lease(ModelName::new("gemma3")), killed).0.err().unwrap().to_string();
    let told = "two loads ran out of memory, the second one after every engine had been stopped that was neither in use nor \
                pinned: llama-server was killed by signal 9, likely out of memory while loading";
    assert!(refused.contains(told), "{refused}");
    ask(&pool, "gemma3").await;
}

#[tokio::test]
async fn stopped_by_a_signal_while_loading_it_has_stalled_and_is_killed() {
    let mut engines = both();
    engines.launch.load_stall = Duration::from_secs(2);
    let pool = engines.start();
    let reason = load_hit_by(&pool, freeze).await;
    assert!(reason.starts_with("llama-server made no progress for 2 s while loading"), "{reason}");
}

#[tokio::test]
async fn forty_alternating_requests_at_once_cost_two_loads() {
    let mut engines = both();
    // As shipped: who waits when a turn begins is served within three quanta.
    engines.admission.quantum = Settings::default().quantum;
    let pool = engines.start();
    join_all((0..40).map(|request| ask(&pool, ["smollm2", "gemma3"][request % 2]))).await;
    let totals = snapshot(&*pool).await.totals;
    assert_eq!((totals.loads, totals.swaps, totals.failed_loads, totals.crashes), (2, 1, 0, 0));
}

#[tokio::test]
async fn two_models_that_fit_are_swapped_no_more_after_warm_up() {
    let mut engines = both();
    engines.admission.max_resident = 2;
    let data = tempfile::tempdir().unwrap();
    let probe = Arc::new(SystemProbe::new().unwrap());
    engines.admission.budget = probe.machine().auto_budget();
    engines.accounts = Some(Accounts::new(probe, FootprintFile::open(&data.path().join("footprints.jsonl"))));
    let pool = engines.start();
    join_all((0..20).map(|request| ask(&pool, ["smollm2", "gemma3"][request % 2]))).await;
    let state = snapshot(&*pool).await;
    assert_eq!((state.totals.loads, state.totals.swaps, state.totals.evictions), (2, 0, 0));
    for engine in state.engines {
        // By the files' headers, and then by what the processes took.
        let (estimated, measured) = (engine.estimated.unwrap().ram >> 20, engine.measured.unwrap().ram >> 20);
        assert!(
            (100..1000).contains(&estimated) && (100..1000).contains(&measured),
            "{estimated} {measured}"
        );
    }
}

#[tokio::test]
async fn each_load_serves_everybody_who_waited_for_its_model_when_it_was_ready() {
    let pool = both().start();
    let clients = (0..4).map(|client| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            let mut served = Vec::new();
            for request in 0..5 {
                let model = ["smollm2", "gemma3"][(client + request) % 2];
                let arrived = Instant::now();
                let lease = pool.lease(ModelName::new(model)).await.unwrap();
                served.push((model, arrived, Instant::now(), lease.generation()));
                say_hi(&*lease).await;
            }
            served
        })
    });
    let served: Vec<_> = join_all(clients).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(served.len(), 20);
    for (model, _, _, generation) in &served {
        let of_it = served.iter().filter(|(.., of)| of == generation);
        let ready = of_it.map(|(_, _, granted, _)| *granted).min().unwrap();
        for (other, arrived, granted, by) in &served {
            if other == model && *arrived + Duration::from_millis(50) < ready && *granted >= ready {
                assert_eq!(by, generation, "waited {:?} before it was ready", ready - *arrived);
            }
        }
    }
}

#[tokio::test]
async fn two_models_in_turn_from_four_clients_give_twenty_whole_answers() {
    let pool = both().start();
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move {
                for request in 0..5 {
                    ask(&pool, ["smollm2", "gemma3"][(client + request) % 2]).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let totals = snapshot(&*pool).await.totals;
    assert_eq!((totals.failed_loads, totals.crashes), (0, 0));
    // Two clients at a time want the same model, so a load serves two requests at least.
    assert!(totals.loads <= 10, "{totals:?}");
}

#[tokio::test]
async fn fifty_who_leave_at_any_moment_leave_nothing_behind() {
    let pool = both().start();
    let leavers = (0..50_u64).map(|leaver| {
        let pool = &pool;
        // Spread over three seconds in no order: in the queue, in a load, in an answer.
        let patience = Duration::from_millis(leaver * 37 % 50 * 60);
        async move {
            let model = if leaver % 3 == 0 { "gemma3" } else { "smollm2" };
            tokio::time::timeout(patience, ask(pool, model)).await.is_ok()
        }
    });
    let stayed = join_all(leavers).await;
    assert!(stayed.contains(&false));
    until_snapshot(&*pool, "an empty queue and idle engines", SOON, |state| {
        state.queue.is_empty() && state.engines.iter().all(|engine| engine.in_flight == 0)
    })
    .await;
    ask(&pool, "smollm2").await;
    ask(&pool, "gemma3").await;
    assert_eq!(snapshot(&*pool).await.totals.failed_loads, 0);
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
                Some(Refusal::LoadFailed { reason }) => reason.to_string(),
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
