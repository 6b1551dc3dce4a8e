//! The queue in front of engines, one engine at a time: who is served, in which order, by how many launches, and that
//! nothing is left of those who went.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use gglib_core::admission::{EngineState, Refusal, Snapshot};
use gglib_core::model::ModelName;
use gglib_core::ports::{Lease, Liveness, Residency};
use gglib_runtime::admission::Pool;
use gglib_testkit::engines::{Enter, engine_pid, is_running, only_engine, signal, snapshot, until_snapshot};
use gglib_testkit::{Engines, Entry, Launch, Load, Reply, Script, Scripted, until};
use http::Request;
use rustix::process::Signal;
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const BOUND: Duration = Duration::from_secs(20);
/// What happens at once takes less, also on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// Scripts that load for `load` and answer with ten contents, one every `pace`.
fn scripts<const N: usize>(load: Duration, pace: Duration) -> [Scripted; N] {
    let reply = Reply { pace, ..Reply::numbered(10) };
    let launch = Launch { load: Load::Takes(load), replies: vec![reply], ..Launch::default() };
    std::array::from_fn(|_| Script::always(launch.clone()).place())
}

fn engines(scripts: &[Scripted]) -> Engines {
    let named = ["a", "b", "c"].into_iter().zip(scripts);
    named.fold(Engines::fake(), |engines, (name, script)| engines.scripted(name, script))
}

async fn lease(pool: &Pool, model: &'static str) -> Box<dyn Lease> {
    pool.lease(ModelName::new(model)).await.unwrap()
}

/// One request from the queue to the end of its answer, which must be whole.
async fn ask(pool: &Pool, model: &'static str) {
    let lease = lease(pool, model).await;
    let request = Request::post("/v1/chat/completions")
        .body(Bytes::from_static(br#"{"messages":[],"stream":true}"#))
        .unwrap();
    let response = lease.upstream().send(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let chunks: Vec<_> = response.into_body().map(|chunk| chunk.unwrap()).collect().await;
    let body = String::from_utf8(chunks.concat()).unwrap();
    assert_eq!(body.matches(r#"{"content":""#).count(), 10, "{body}");
    assert!(body.contains(r#""finish_reason":"stop""#) && body.ends_with("data: [DONE]\n\n"), "{body}");
}

async fn until_waiting(pool: &Pool, count: usize) {
    let waiting = |state: &Snapshot| state.queue.iter().map(|model| model.waiting).sum::<usize>() == count;
    until_snapshot(pool, &format!("{count} in the queue"), BOUND, waiting).await;
}

/// Nothing waits, nothing is in use, and the next request is served.
async fn no_residue(pool: &Pool, model: &'static str) {
    let calm =
        |state: &Snapshot| state.queue.is_empty() && state.engines.iter().all(|engine| engine.in_flight == 0);
    until_snapshot(pool, "an empty queue and idle engines", BOUND, calm).await;
    tokio::time::timeout(BOUND, ask(pool, model)).await.expect("the next request is served");
}

fn pids(scripts: &[Scripted]) -> Vec<u32> {
    let entries = scripts.iter().flat_map(|script| script.log().entries);
    let pid = |entry| if let Entry::Launched { pid, .. } = entry { Some(pid) } else { None };
    entries.filter_map(pid).collect()
}

fn launches(scripts: &[Scripted]) -> Vec<usize> {
    scripts.iter().map(|script| script.log().launches()).collect()
}

#[tokio::test]
async fn a_long_answer_is_finished_before_another_model_comes() {
    let scripts: [_; 2] = scripts(Duration::ZERO, 50 * MS);
    let pool = engines(&scripts).start();
    let second = async {
        scripts[0].until("the answer", BOUND, |log| log.requests() == 1).await;
        ask(&pool, "b").await;
        // By the time that b is up, a has been finished and ended.
        let a = scripts[0].log();
        assert_eq!((a.finished(), a.cancelled()), (1, 0));
    };
    tokio::join!(ask(&pool, "a"), second);
    assert_eq!(launches(&scripts), [1, 1]);
    let totals = snapshot(&*pool).await.totals;
    assert_eq!((totals.loads, totals.swaps, totals.crashes, totals.failed_loads), (2, 1, 0, 0));
    assert_eq!(pids(&scripts).into_iter().filter(|pid| is_running(*pid)).count(), 1);
}

#[tokio::test]
async fn two_unloaded_models_at_once_are_served_in_turn_also_when_the_first_leaves() {
    let scripts: [_; 3] = scripts(200 * MS, Duration::ZERO);
    let pool = engines(&scripts).start();
    ask(&pool, "a").await;
    let order = std::sync::Mutex::new(Vec::new());
    let in_order = async |model| {
        ask(&pool, model).await;
        order.lock().unwrap().push(model);
    };
    tokio::join!(in_order("b"), in_order("c"));
    assert_eq!(*order.lock().unwrap(), ["b", "c"]);
    assert_eq!(launches(&scripts), [1, 1, 1]);

    // c is there. b's client leaves while b loads, and a's waits for the place.
    let mut leaver = Box::pin(ask(&pool, "b"));
    let behind = async {
        until_waiting(&pool, 1).await;
        ask(&pool, "a").await;
    };
    let goes = async {
        let b_loads = |state: &Snapshot| {
            state.engines.iter().any(|engine| engine.model.as_str() == "b" && engine.pid.is_some())
        };
        tokio::select! {
            () = &mut leaver => panic!("b cannot be ready yet"),
            _ = until_snapshot(&*pool, "b's load", BOUND, b_loads) => drop(leaver),
        }
    };
    tokio::join!(goes, behind);
    no_residue(&pool, "a").await;
    assert_eq!(snapshot(&*pool).await.totals.failed_loads, 0);
}

#[tokio::test]
async fn a_model_that_has_just_loaded_serves_its_request_before_it_makes_room() {
    let scripts: [_; 2] = scripts(300 * MS, Duration::ZERO);
    let pool = engines(&scripts).start();
    let later = async {
        engine_pid(&*pool).await;
        ask(&pool, "b").await;
    };
    tokio::join!(ask(&pool, "a"), later);
    assert_eq!(launches(&scripts), [1, 1]);
    assert_eq!(scripts[0].log().finished(), 1);
}

#[tokio::test]
async fn who_leaves_the_queue_leaves_nothing_behind() {
    let scripts: [_; 3] = scripts(50 * MS, Duration::ZERO);
    let pool = engines(&scripts).start();
    let held = lease(&pool, "a").await;
    {
        let mut leaver = Box::pin(lease(&pool, "b"));
        assert!((&mut leaver).now_or_never().is_none());
        until_waiting(&pool, 1).await;
    }
    until_waiting(&pool, 0).await;
    drop(held);
    for model in ["c", "a", "b"] {
        tokio::time::timeout(BOUND, ask(&pool, model)).await.expect("the queue moves");
    }
    // a was resident, and nobody waited for b when it was let go.
    assert_eq!(launches(&scripts), [2, 1, 1]);
    no_residue(&pool, "b").await;
}

#[tokio::test]
async fn continuous_traffic_on_one_model_keeps_no_other_one_out() {
    for parallel in [1, 2] {
        let scripts: [_; 2] = scripts(Duration::ZERO, 5 * MS);
        let pool = engines(&scripts).with("a", |model| model.parallel = parallel).start();
        // Two clients for each place, so that somebody always waits for a.
        let clients: Vec<_> = (0..2 * parallel)
            .map(|_| {
                let pool = Arc::clone(&pool);
                tokio::spawn(async move {
                    loop {
                        ask(&pool, "a").await;
                    }
                })
            })
            .collect();
        scripts[0].until("traffic", BOUND, |log| log.finished() > 2 * parallel as usize).await;
        tokio::time::timeout(SOON, ask(&pool, "b")).await.expect("b has its turn");
        // The others are served again after it.
        let so_far = scripts[0].log().finished();
        scripts[0].until("traffic", BOUND, |log| log.finished() > so_far + 2 * parallel as usize).await;
        assert_eq!(launches(&scripts), [2, 1]);
        assert_eq!(scripts[0].log().cancelled(), 0);
        for client in clients {
            client.abort();
            assert!(client.await.is_err_and(|error| error.is_cancelled()), "a client has failed");
        }
        no_residue(&pool, "a").await;
    }
}

#[tokio::test]
async fn a_mixed_queue_costs_one_load_per_model() {
    let scripts: [_; 3] = scripts(200 * MS, Duration::ZERO);
    let pool = engines(&scripts).start();
    let order = ["a", "b", "a", "a", "c", "a", "b", "c"];
    let requests: FuturesUnordered<_> = order
        .into_iter()
        .enumerate()
        .map(|(number, model)| {
            // First polled, and so queued, in this order.
            let pool = Arc::clone(&pool);
            let request = tokio::spawn(async move { ask(&pool, model).await });
            async move { request.await.map(|()| (model, number)) }
        })
        .collect();
    let served: Vec<_> = requests.map(|served| served.unwrap()).collect().await;
    assert_eq!(
        served,
        [("a", 0), ("a", 2), ("a", 3), ("a", 5), ("b", 1), ("b", 6), ("c", 4), ("c", 7)],
        "each model's own order is kept"
    );
    // And each by its own engine.
    let finished: Vec<_> = scripts.iter().map(|script| script.log().finished()).collect();
    assert_eq!(finished, [4, 2, 2]);
    assert_eq!(launches(&scripts), [1, 1, 1]);
    assert_eq!(snapshot(&*pool).await.totals.swaps, 2);
}

#[tokio::test]
async fn many_at_once_on_a_cold_model_cost_one_launch() {
    let scripts: [_; 1] = scripts(200 * MS, Duration::ZERO);
    let pool = engines(&scripts).with("a", |model| model.aliases = vec!["alias".to_owned()]).start();
    join_all(["a", "alias", "a", "alias"].map(|model| ask(&pool, model))).await;
    assert_eq!(launches(&scripts), [1]);
    scripts[0].until("four answers", BOUND, |log| log.finished() == 4).await;
}

#[tokio::test]
async fn many_at_once_cost_one_launch_also_in_a_swap() {
    let scripts: [_; 2] = scripts(300 * MS, Duration::ZERO);
    let pool = engines(&scripts).start();
    ask(&pool, "a").await;
    let more = async {
        let loading = |state: &Snapshot| {
            state.engines.iter().any(|engine| {
                engine.model.as_str() == "b" && engine.state == EngineState::Loading && engine.pid.is_some()
            })
        };
        until_snapshot(&*pool, "b's load", BOUND, loading).await;
        join_all((0..5).map(|_| ask(&pool, "b"))).await;
    };
    tokio::join!(ask(&pool, "b"), more);
    assert_eq!(launches(&scripts), [1, 1]);
}

#[tokio::test]
async fn after_kill_9_the_next_request_has_a_new_engine() {
    let scripts: [_; 1] = scripts(Duration::ZERO, Duration::ZERO);
    let pool = engines(&scripts).start();
    ask(&pool, "a").await;
    signal(engine_pid(&*pool).await, Signal::KILL);
    // The pool may not have heard of it yet: then the lease is told dead when it is suspected.
    let first = lease(&pool, "a").await;
    if first.generation().0 == 1 {
        assert_eq!(first.confirm().await, Liveness::Dead);
    }
    drop(first);
    ask(&pool, "a").await;
    assert_eq!(only_engine(&*pool).await.generation.0, 2);
}

#[tokio::test]
async fn a_load_goes_on_without_the_client_that_wanted_it_and_the_next_one_joins_it() {
    let scripts: [_; 1] = scripts(2000 * MS, Duration::ZERO);
    let pool = engines(&scripts).start();
    tokio::select! {
        _ = lease(&pool, "a") => panic!("the load takes longer"),
        _ = engine_pid(&*pool) => {}
    }
    until_waiting(&pool, 0).await;
    ask(&pool, "a").await;
    assert_eq!(launches(&scripts), [1]);
}

#[tokio::test]
async fn a_load_that_nobody_wants_is_killed_for_another_model() {
    let never = Script::always(Launch { load: Load::Never, ..Launch::default() }).place();
    let [b] = scripts(Duration::ZERO, Duration::ZERO);
    let scripts = [never, b];
    let pool = engines(&scripts).start();
    let pid = tokio::select! {
        _ = lease(&pool, "a") => panic!("it never loads"),
        pid = engine_pid(&*pool) => pid,
    };
    tokio::time::timeout(SOON, ask(&pool, "b")).await.expect("a is not waited for");
    assert!(!is_running(pid));
    assert_eq!(snapshot(&*pool).await.totals.failed_loads, 0);
}

#[tokio::test]
async fn a_lease_that_outlives_its_engine_touches_no_newer_one() {
    let scripts: [_; 2] = scripts(Duration::ZERO, Duration::ZERO);
    let mut engines = engines(&scripts);
    engines.admission.quantum = Duration::ZERO;
    let pool = engines.start();
    let old = lease(&pool, "a").await;
    signal(engine_pid(&*pool).await, Signal::KILL);
    assert_eq!(old.confirm().await, Liveness::Dead);
    let new = lease(&pool, "a").await;
    let mut rival = Box::pin(lease(&pool, "b"));
    assert!((&mut rival).now_or_never().is_none());
    until_waiting(&pool, 1).await;
    drop(old);
    // The messages of both leases are in order, so this one comes after the release of the old.
    let engine = only_engine(&*pool).await;
    assert_eq!((engine.generation.0, engine.in_flight), (2, 1));
    // Its turn is over when it has lasted some times as long as the switch, which was measured.
    until_snapshot(&*pool, "the end of the turn", BOUND, |snapshot| {
        snapshot.engines.iter().any(|engine| engine.state == EngineState::Draining && engine.in_flight == 1)
    })
    .await;
    assert_eq!(new.confirm().await, Liveness::Alive);
    drop(new);
    rival.await;
}

#[tokio::test]
async fn dropping_the_pool_ends_its_engines_when_their_leases_are_back() {
    let scripts: [_; 1] = scripts(Duration::ZERO, Duration::ZERO);
    let pool = engines(&scripts).start();
    let held = lease(&pool, "a").await;
    let pid = engine_pid(&*pool).await;
    drop(pool);
    assert_eq!(held.confirm().await, Liveness::Alive);
    drop(held);
    until("the end of the engine", BOUND, || !is_running(pid)).await;
    assert!(scripts[0].log().entries.contains(&Entry::Terminated { launch: 1 }));

    // And while it loads.
    let never = [Script::always(Launch { load: Load::Never, ..Launch::default() }).place()];
    let pool = engines(&never).start();
    let pid = tokio::select! {
        _ = lease(&pool, "a") => panic!("it never loads"),
        pid = engine_pid(&*pool) => pid,
    };
    drop(pool);
    until("the end of the engine", BOUND, || !is_running(pid)).await;
}

#[tokio::test]
async fn shutting_down_gives_up_a_load_and_refuses_who_waits_for_it() {
    let never = [Script::always(Launch { load: Load::Never, ..Launch::default() }).place()];
    let pool = engines(&never).start();
    let shut_down = async {
        let pid = engine_pid(&*pool).await;
        // Twice at the same time, and once more.
        tokio::join!(pool.shut_down(BOUND), pool.shut_down(BOUND));
        assert!(!is_running(pid));
    };
    let all = async { tokio::join!(pool.lease(ModelName::new("a")), shut_down).0.err() };
    let refused = tokio::time::timeout(SOON, all).await.expect("loads are killed");
    assert_eq!(refused, Some(Refusal::Draining));
    pool.shut_down(BOUND).await;
    assert_eq!(pool.lease(ModelName::new("a")).await.err(), Some(Refusal::Draining));
    assert_eq!(pool.snapshot().await, None);
}

#[tokio::test]
async fn shutting_down_waits_for_leases_up_to_its_bound_and_refuses_all_who_arrive() {
    let scripts: [_; 2] = scripts(Duration::ZERO, Duration::ZERO);
    let mut engines = engines(&scripts);
    engines.launch.stop_grace = 10 * BOUND;
    for returned in [true, false] {
        let pool = engines.start();
        let held = lease(&pool, "a").await;
        let pid = engine_pid(&*pool).await;
        let began = Instant::now();
        let arrivals = async {
            let mut refused = 0;
            // Before and after the drain has begun.
            while refused < 20 {
                let model = ModelName::new("b");
                let waited = tokio::time::timeout(20 * MS, pool.lease(model)).await;
                refused += usize::from(matches!(waited, Ok(Err(Refusal::Draining))));
                assert!(!matches!(waited, Ok(Ok(_))), "b must wait for the lease");
                tokio::task::yield_now().await;
            }
            assert!(is_running(pid));
            if returned {
                drop(held);
                None
            } else {
                Some(held)
            }
        };
        // Twenty are refused before it is over.
        let bound = if returned { BOUND } else { 2000 * MS };
        let shut_down = tokio::time::timeout(SOON, pool.shut_down(bound));
        let (held, in_time) = tokio::join!(arrivals, shut_down);
        in_time.expect("the bound is kept");
        assert!(!is_running(pid));
        assert!(returned || began.elapsed() >= bound, "{:?}", began.elapsed());
        if let Some(held) = held {
            assert_eq!(held.confirm().await, Liveness::Dead);
        }
    }
}

#[tokio::test]
async fn the_bound_of_a_shutdown_cuts_the_grace_of_a_stop_short() {
    let stubborn = Script::always(Launch { ignores_sigterm: true, ..Launch::default() }).place();
    let [b] = scripts(Duration::ZERO, Duration::ZERO);
    let scripts = [stubborn, b];
    let mut engines = engines(&scripts);
    engines.launch.stop_grace = 10 * BOUND;
    let pool = engines.start();
    drop(lease(&pool, "a").await);
    let pid = engine_pid(&*pool).await;
    let mut rival = Box::pin(pool.lease(ModelName::new("b")));
    assert!((&mut rival).now_or_never().is_none());
    scripts[0].until("SIGTERM", BOUND, |log| log.entries.contains(&Entry::Terminated { launch: 1 })).await;
    tokio::time::timeout(SOON, pool.shut_down(100 * MS)).await.expect("the grace is cut short");
    assert!(!is_running(pid));
    assert_eq!(rival.await.err(), Some(Refusal::Draining));
    assert_eq!(launches(&scripts), [1, 0]);
}
