//! Residency by memory, and loads that fail: the pool over fake engines, measured by a probe that says what the test
//! wants.
//!
//! Which fault of queueing, loading, swapping and memory is shown where ("core" is `gglib-core/tests/admission`,
//! "endpoint" is `gglib-proxy/tests/endpoint`, every other file stands beside this one):
//!
//! | fault | shown by |
//! |---|---|
//! | long answer, then a rival (T1) | `pool.rs`: `a_long_answer_is_finished_before_another_model_comes` |
//! | two cold models at once, one client leaves (T2) | `pool.rs`: `two_unloaded_models_at_once_…` |
//! | evicted before its own request (T3) | `pool.rs`: `a_model_that_has_just_loaded_serves_…` |
//! | a waiter leaves (T4) | `pool.rs`: `who_leaves_the_queue_…`; core: `fifty_leavers_…`; endpoint: `in_the_queue_the_place_is_given_up_…` |
//! | the scheduler stands still (T4, 7) | endpoint: `health_turns_red_…`; `admission/pool.rs`: `an_owner_that_does_not_answer_…` |
//! | continuous traffic starves a rival (T6, T7, 8) | `pool.rs`: `continuous_traffic_…`; core: `the_oldest_waiter_of_every_model_…` |
//! | a swap per request, the wrong engine (T7, 4, 6) | `pool.rs`: `a_mixed_queue_…`; core: `two_crowds_swap_once_per_quantum_…` |
//! | a request right after the ttl (T8) | here: `an_engine_unused_for_its_ttl_ends_…` |
//! | many cold requests, one launch (T9, A) | `pool.rs`: `many_at_once_…` (two tests) |
//! | a dead engine is used again (3) | `pool.rs`: `after_kill_9_the_next_request_has_a_new_engine` |
//! | a lease outlives its engine (B) | `pool.rs`: `a_lease_that_outlives_its_engine_touches_no_newer_one` |
//! | killed during the load or while idle (T18, G) | `engine.rs`: `an_engine_that_ends_early_…`, `an_engine_killed_while_idle_…`; here: `a_load_that_dies_of_memory_twice_…` |
//! | dies of memory, then fits (T19) | here: `a_load_that_dies_of_memory_is_tried_once_more`, `the_next_launch_waits_…` (two tests) |
//! | load storms (T20, M) | here: `a_model_that_never_loads_…`; `pool_time.rs`: `a_model_that_does_not_load_is_left_alone_…` |
//! | slow load that tells of progress (T21) | `engine.rs`: `a_load_longer_than_the_stall_is_not_killed_while_it_talks` |
//! | load that stalls, and lasts too long (T21, F, 10) | `engine.rs`: `a_silent_load_is_killed_after_the_stall_and_a_talking_one_at_the_limit_…` |
//! | the client is gone before the load ends (T22, 5) | `pool.rs`: `a_load_goes_on_without_the_client_…`; `pool_apart.rs`: `of_two_who_wait_for_a_load_…`; `pool_time.rs`: `a_load_that_nobody_wants_…` |
//! | silence while waiting (T24, 2) | endpoint: `a_stream_is_never_silent_…`, `a_waiting_stream_gets_its_head_in_time_…` |
//! | more at once than are served (T25) | endpoint: `a_full_queue_refuses_before_any_byte_…` |
//! | no such file, no model, no such flag (T33) | `engine.rs`: `what_is_no_model_file_…`, `an_engine_that_ends_early_…`; here: `a_file_that_cannot_be_loaded_…` |
//! | an engine that grows (T35) | `pool_time.rs`: `an_engine_that_grows_is_launched_anew_when_it_is_idle` |
//! | long jobs and a short one (T38) | `pool_time.rs`: `a_chat_waits_for_the_turn_of_long_jobs_…` |
//! | a load that seems dead (T39) | endpoint: `a_waiting_stream_is_told_where_it_stands`; core: `a_load_in_progress_and_those_ahead_…` |
//! | unknown beside not ready (T40) | endpoint: `an_unknown_model_is_404_with_near_names_…` |
//! | the first request against its own load (9) | core: `the_stall_clock_is_held_by_a_load_…` |
//! | more than the engine was started for (11) | core: `an_engine_takes_as_many_as_it_was_started_for` |
//! | a busy engine taken for a dead one (12, 13) | endpoint: `who_waits_while_another_is_served_is_not_given_up`, `a_silent_engine_that_lives_is_left_alone_…` |
//! | bounds of each phase (1) | endpoint: `every_clock_of_an_attempt_has_its_code_…` (two tests) |
//! | stops and relaunches that hit others (I) | `pool_apart.rs`: `a_dead_engine_is_launched_again_…`, `an_engine_that_is_stopped_on_purpose_…` |
//! | a request that asks for another launch (N) | endpoint: `what_a_request_asks_for_never_changes_a_launch` |
//! | something blocks the owner (O, 7) | here: `a_system_that_does_not_answer_…`; `pool_apart.rs`: `the_owner_answers_…` (two tests) |
//! | engines outlive us (P) | `guard.rs`: `when_we_are_killed_nothing_of_us_is_left` |

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use gglib_core::admission::{EngineState, Refusal, Snapshot};
use gglib_core::memory::{Footprint, Machine, Memory, MemoryProbe};
use gglib_core::model::ModelName;
use gglib_core::ports::{Lease, Residency};
use gglib_core::retry::BreakerState::{Closed, HalfOpen, Open};
use gglib_core::retry::{BreakerSettings, BreakerState, EventSource, RetryEvent, RetryObserver};
use gglib_runtime::admission::Pool;
use gglib_runtime::memory::{Accounts, FootprintFile};
use gglib_testkit::engines::{Enter, engine_pid, is_running, snapshot, until_snapshot};
use gglib_testkit::{Death, End, Engines, Entry, Launch, Load, Script, Scripted, tiny_model, until};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const BOUND: Duration = Duration::from_secs(20);
const GIB: u64 = 1 << 30;

/// A machine with 64 GiB, on which every engine takes what its place in the order of measurements says.
#[derive(Default)]
struct Scale {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the nth engine that is measured, in GiB.
    sizes: Vec<u64>,
    measured: BTreeMap<u32, u64>,
    /// What is taken of the machine by others, until a time.
    taken: Option<(u64, Instant)>,
}

impl Scale {
    fn of(sizes: &[u64]) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { sizes: sizes.to_vec(), ..State::default() }) })
    }
}

impl MemoryProbe for Scale {
    fn machine(&self) -> Machine {
        let state = self.state.lock().unwrap();
        let taken = state.taken.filter(|(_, until)| Instant::now() < *until).map_or(0, |(taken, _)| taken);
        let memory = |gib: u64| Memory { ram: gib * GIB, vram: 0 };
        Machine { total: memory(64), available: memory(64 - taken) }
    }

    fn footprint(&self, leader: u32) -> Option<Footprint> {
        let mut state = self.state.lock().unwrap();
        let next = state.sizes.get(state.measured.len()).copied().unwrap_or(1);
        let gib = *state.measured.entry(leader).or_insert(next);
        Some(Footprint { anonymous: gib * GIB, ..Footprint::default() })
    }
}

/// Engines under the shipped bounds but for a short quantum, with this much memory for four of them.
fn engines(scripts: &[Scripted], scale: &Arc<Scale>, budget: u64) -> (Engines, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let named = ["a", "b", "c", "d"].into_iter().zip(scripts);
    let mut engines = named.fold(Engines::fake(), |engines, (name, script)| engines.scripted(name, script));
    engines.admission.max_resident = 4;
    engines.admission.budget = Memory { ram: budget * GIB, vram: 0 };
    engines.admission.quantum = 100 * MS;
    let record = FootprintFile::open(&data.path().join("footprints.jsonl"));
    engines.accounts = Some(Accounts::new(scale.clone(), record));
    (engines, data)
}

fn healthy<const N: usize>() -> [Scripted; N] {
    std::array::from_fn(|_| Script::default().place())
}

async fn lease(pool: &Pool, model: &'static str) -> Box<dyn Lease> {
    tokio::time::timeout(BOUND, pool.lease(ModelName::new(model))).await.expect("it is served").unwrap()
}

async fn refusal(pool: &Pool, model: &'static str) -> Refusal {
    let waited = tokio::time::timeout(BOUND, pool.lease(ModelName::new(model))).await;
    waited.expect("the wait ends").err().expect("it is refused")
}

async fn residents(pool: &Pool) -> Vec<String> {
    let engines = snapshot(pool).await.engines;
    engines.iter().map(|engine| engine.model.to_string()).collect()
}

fn launches(scripts: &[Scripted]) -> Vec<usize> {
    scripts.iter().map(|script| script.log().launches()).collect()
}

#[tokio::test]
async fn what_fits_stays_and_of_the_idle_only_who_is_in_the_way_goes() {
    let scripts: [_; 4] = healthy();
    let scale = Scale::of(&[3, 2, 4]);
    let (engines, _data) = engines(&scripts, &scale, 8);
    let pool = engines.start();
    for model in ["a", "b"] {
        drop(lease(&pool, model).await);
    }
    assert_eq!(residents(&pool).await, ["a", "b"]);
    assert_eq!(snapshot(&*pool).await.engines[0].measured, Some(Memory { ram: 3 * GIB, vram: 0 }));
    // Nothing is known of c before it is there, and then it is too much: one has to go.
    drop(lease(&pool, "c").await);
    let fits = |state: &Snapshot| state.engines.len() == 2;
    until_snapshot(&*pool, "one to go", BOUND, fits).await;
    // That one comes back, in the place of one other that is enough.
    let before = residents(&pool).await;
    let gone = if before.contains(&"a".to_owned()) { "b" } else { "a" };
    drop(lease(&pool, gone).await);
    until_snapshot(&*pool, "room", BOUND, |state| {
        let sum: u64 =
            state.engines.iter().filter_map(|engine| engine.measured).map(|memory| memory.ram).sum();
        sum <= 8 * GIB && state.engines.iter().any(|engine| engine.model.as_str() == gone)
    })
    .await;
    assert_eq!(snapshot(&*pool).await.totals.failed_loads, 0);
}

#[tokio::test]
async fn what_was_measured_is_known_to_the_next_run_and_a_model_too_large_is_not_even_tried() {
    let scripts: [_; 1] = healthy();
    let (engines, data) = engines(&scripts, &Scale::of(&[9]), 64);
    // A header that can be read: a model of nothing.
    std::fs::write(scripts[0].model(), tiny_model(&[])).unwrap();
    let pool = engines.start();
    drop(lease(&pool, "a").await);
    pool.shut_down(BOUND).await;

    let record = data.path().join("footprints.jsonl");
    // It is written by a thread that nobody waits for.
    until("the record", BOUND, || record.exists()).await;
    let record = FootprintFile::open(&record);
    let mut next = engines;
    next.accounts = Some(Accounts::new(Scale::of(&[]), record));
    next.admission.budget = Memory { ram: 8 * GIB, vram: 0 };
    let pool = next.start();
    let refused = refusal(&pool, "a").await;
    let Refusal::InsufficientMemory { needed: Some(needed), budget, reason: None } = &refused else {
        panic!("{refused}")
    };
    assert_eq!((needed.ram, budget.ram), (9 * GIB, 8 * GIB));
    let text = refused.to_string();
    assert!(text.contains("9216 MiB") && text.contains("8192 MiB"), "{text}");
    assert_eq!(launches(&scripts), [1]);
    pool.shut_down(BOUND).await;

    // What was measured, and not estimated, may exceed the budget by a little.
    next.admission.budget = Memory { ram: 17 * GIB / 2, vram: 0 };
    drop(lease(&next.start(), "a").await);
    assert_eq!(launches(&scripts), [2]);
}

#[tokio::test]
async fn the_next_launch_waits_for_the_memory_of_the_one_before_but_not_for_ever() {
    for (lingers, least, most) in [(1500 * MS, 1500 * MS, 4500 * MS), (60_000 * MS, 5000 * MS, 15_000 * MS)] {
        let scripts: [_; 2] = healthy();
        let scale = Scale::of(&[6, 6]);
        let (mut engines, _data) = engines(&scripts, &scale, 8);
        engines.admission.max_resident = 1;
        let pool = engines.start();
        drop(lease(&pool, "a").await);
        let began = Instant::now();
        scale.state.lock().unwrap().taken = Some((20, began + lingers));
        // Whoever looks before the stop sees 44 GiB, and expects 5.4 more.
        drop(lease(&pool, "b").await);
        let waited = began.elapsed();
        assert!((least..most).contains(&waited), "{waited:?}");
        assert_eq!(launches(&scripts), [1, 1]);
    }
}

#[tokio::test]
async fn the_next_launch_waits_for_the_memory_of_a_cancelled_load_too() {
    let never = Script::always(Launch { load: Load::Never, ..Launch::default() }).place();
    let [b] = healthy();
    let scripts = [never, b];
    let scale = Scale::of(&[6]);
    let (mut engines, _data) = engines(&scripts, &scale, 64);
    engines.admission.max_resident = 1;
    let pool = engines.start();
    let leaver = pool.enter(ModelName::new("a"));
    let pid = engine_pid(&*pool).await;
    drop(leaver);
    let began = Instant::now();
    scale.state.lock().unwrap().taken = Some((20, began + 1500 * MS));
    drop(lease(&pool, "b").await);
    assert!((1500 * MS..4500 * MS).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(!is_running(pid));
    assert_eq!(residents(&pool).await, ["b"]);
    assert_eq!(snapshot(&*pool).await.totals.cancelled_loads, 1);
}

#[tokio::test]
async fn shutting_down_does_not_wait_for_memory() {
    let scripts: [_; 1] = healthy();
    let scale = Scale::of(&[6]);
    let (engines, _data) = engines(&scripts, &scale, 8);
    let pool = engines.start();
    drop(lease(&pool, "a").await);
    scale.state.lock().unwrap().taken = Some((20, Instant::now() + BOUND));
    let shut_down = tokio::time::timeout(3000 * MS, pool.shut_down(BOUND)).await;
    shut_down.expect("nobody needs the memory");
}

/// Dies of memory at its first launch, or at each.
fn short_of_memory(launches: &[bool]) -> Scripted {
    let launch = |dies| Launch {
        stderr: vec!["alloc_tensor_range: failed to allocate CPU buffer of size 188743680".to_owned()],
        death: if dies { Some(Death::BeforeBind) } else { None },
        end: End::Exit(1),
        ..Launch::default()
    };
    Script { launches: launches.iter().copied().map(launch).collect() }.place()
}

#[tokio::test]
async fn a_load_that_dies_of_memory_is_tried_once_more() {
    let [idle] = healthy();
    let scripts = [idle, short_of_memory(&[true, false])];
    let (engines, _data) = engines(&scripts, &Scale::of(&[]), 64);
    let pool = engines.start();
    drop(lease(&pool, "a").await);
    drop(lease(&pool, "b").await);
    // The second try had all the room that could be made.
    assert_eq!(launches(&scripts), [1, 2]);
    assert_eq!(residents(&pool).await, ["b"]);
    assert_eq!(snapshot(&*pool).await.breakers, []);
}

#[tokio::test]
async fn a_load_that_dies_of_memory_twice_is_refused_with_the_numbers_and_the_engines_words() {
    let scripts = [short_of_memory(&[true])];
    let (engines, _data) = engines(&scripts, &Scale::of(&[]), 64);
    let pool = engines.start();
    let refused = refusal(&pool, "a").await;
    assert!(matches!(refused, Refusal::InsufficientMemory { .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("65536 MiB") && text.contains("failed to allocate CPU buffer"), "{text}");
    assert_eq!(launches(&scripts), [2]);

    // Killed during the load: the kernel's way to say it.
    let killed = Launch {
        load: Load::Never,
        death: Some(Death::WhileLoading(20 * MS)),
        end: End::Kill,
        ..Launch::default()
    };
    let scripts = [Script::always(killed).place()];
    let (engines, _data) = self::engines(&scripts, &Scale::of(&[]), 64);
    let text = refusal(&engines.start(), "a").await.to_string();
    assert!(text.contains("was killed by signal 9, likely out of memory"), "{text}");
    assert_eq!(launches(&scripts), [2]);
}

#[tokio::test]
async fn a_file_that_cannot_be_loaded_is_noticed_before_the_resident_is_stopped_for_it() {
    let scripts: [_; 3] = healthy();
    let (mut engines, _data) = engines(&scripts, &Scale::of(&[]), 64);
    engines.admission.max_resident = 1;
    engines.admission.breaker = BreakerSettings::MODEL_LOAD;
    std::fs::remove_file(scripts[1].model()).unwrap();
    std::fs::write(scripts[2].model(), "<html>").unwrap();
    let pool = engines.start();
    drop(lease(&pool, "a").await);
    for (model, words) in [("b", "cannot read the model file"), ("c", "is not a GGUF model file")] {
        let refused = refusal(&pool, model).await;
        assert!(matches!(&refused, Refusal::LoadFailed { reason } if reason.contains(words)), "{refused:?}");
        let again = refusal(&pool, model).await;
        assert!(matches!(&again, Refusal::BreakerOpen { failures: 1, .. }), "{again:?}");
    }
    assert_eq!(residents(&pool).await, ["a"]);
    assert_eq!(launches(&scripts), [1, 0, 0]);
    assert_eq!(snapshot(&*pool).await.totals.evictions, 0);
}

/// Keeps the changes of breakers.
#[derive(Default)]
struct Changes(Mutex<Vec<(String, BreakerState, BreakerState)>>);

impl RetryObserver for Changes {
    fn observe(&self, source: &EventSource<'_>, event: &RetryEvent) {
        if let RetryEvent::BreakerChanged { from, to, .. } = *event {
            self.0.lock().unwrap().push((source.target.to_owned(), from, to));
        }
    }
}

#[tokio::test]
async fn a_model_that_never_loads_is_launched_once_per_pause() {
    let broken = Launch {
        stderr: vec!["unknown model architecture: 'x'".to_owned()],
        death: Some(Death::BeforeBind),
        end: End::Exit(1),
        ..Launch::default()
    };
    let scripts = [Script { launches: vec![broken.clone(), broken, Launch::default()] }.place()];
    let (mut engines, _data) = engines(&scripts, &Scale::of(&[]), 64);
    // The shipped pause is ten seconds; what it does over time is shown in core.
    let pause = 2000 * MS;
    engines.admission.breaker = BreakerSettings { open_for: pause, ..BreakerSettings::MODEL_LOAD };
    let pool = engines.start();
    let changes = Arc::new(Changes::default());
    pool.publish_breakers(changes.clone());
    for round in 1..=2_u32 {
        let began = Instant::now();
        let refused = refusal(&pool, "a").await;
        assert!(
            matches!(&refused, Refusal::LoadFailed { reason } if reason.contains("unknown model")),
            "{refused:?}"
        );
        for _ in 0..20 {
            let refused = refusal(&pool, "a").await;
            if began.elapsed() < pause {
                assert!(matches!(&refused, Refusal::BreakerOpen { failures, .. } if *failures == round));
            }
        }
        assert_eq!(launches(&scripts), [round as usize]);
        let closes = |state: &Snapshot| state.breakers[0].retry_in.is_none();
        until_snapshot(&*pool, "the end of the pause", BOUND, closes).await;
    }
    drop(lease(&pool, "a").await);
    let expected = [(Closed, Open), (Open, HalfOpen), (HalfOpen, Open), (Open, HalfOpen), (HalfOpen, Closed)];
    let expected = expected.map(|(from, to)| ("a".to_owned(), from, to));
    assert_eq!(*changes.0.lock().unwrap(), expected);
}

#[tokio::test]
async fn an_engine_unused_for_its_ttl_ends_and_a_request_at_that_moment_is_served() {
    let scripts: [_; 1] = healthy();
    let (engines, _data) = engines(&scripts, &Scale::of(&[]), 64);
    let pool = engines.with("a", |model| model.ttl = Some(200 * MS)).start();
    for round in 1..=3 {
        drop(lease(&pool, "a").await);
        let ended = Entry::Terminated { launch: round };
        scripts[0].until("the end of the ttl", BOUND, |log| log.entries.contains(&ended)).await;
        // The engine is on its way out.
    }
    drop(lease(&pool, "a").await);
    assert_eq!(launches(&scripts), [4]);
}

#[tokio::test]
async fn preload_pin_and_group_are_kept() {
    let scripts: [_; 4] = healthy();
    let (mut engines, _data) = engines(&scripts, &Scale::of(&[]), 64);
    engines.admission.max_resident = 2;
    let group = |model: &mut gglib_core::model::ModelSpec| model.group = Some("g".to_owned());
    let engines = engines
        .with("a", |model| (model.preload, model.pin) = (true, true))
        .with("c", group)
        .with("d", group);
    let pool = engines.start();
    let loaded = |state: &Snapshot| state.engines.iter().any(|engine| engine.state == EngineState::Resident);
    until_snapshot(&*pool, "the preload", BOUND, loaded).await;
    assert_eq!(residents(&pool).await, ["a"]);
    for model in ["b", "c", "d"] {
        drop(lease(&pool, model).await);
        assert_eq!(residents(&pool).await, ["a", model]);
    }
    assert_eq!(launches(&scripts), [1, 1, 1, 1]);

    // Of a group there is one, although more would fit.
    let scripts: [_; 4] = healthy();
    let (engines, _data) = self::engines(&scripts, &Scale::of(&[]), 64);
    let pool = engines.with("c", group).with("d", group).start();
    for model in ["c", "d"] {
        drop(lease(&pool, model).await);
    }
    assert_eq!(residents(&pool).await, ["d"]);
}

/// Answers nothing, ever.
struct Hung;

impl MemoryProbe for Hung {
    fn machine(&self) -> Machine {
        loop {
            std::thread::park_timeout(BOUND);
        }
    }

    fn footprint(&self, _: u32) -> Option<Footprint> {
        self.machine();
        None
    }
}

#[test]
fn a_system_that_does_not_answer_holds_nobody_up_for_long_and_the_owner_never() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let scripts: [_; 2] = healthy();
        // The estimate, the measurement and the look before a stop all hang.
        std::fs::write(scripts[0].model(), tiny_model(&[])).unwrap();
        let (mut engines, data) = engines(&scripts, &Scale::of(&[]), 64);
        engines.admission.max_resident = 1;
        let record = FootprintFile::open(&data.path().join("other.jsonl"));
        engines.accounts = Some(Accounts::new(Arc::new(Hung), record));
        let pool = engines.start();
        let mut both =
            Box::pin(async { tokio::join!(lease(&pool, "a"), async { drop(lease(&pool, "b").await) }).0 });
        assert!((&mut both).now_or_never().is_none());
        drop(both);
        for model in ["a", "b"] {
            let mut served = Box::pin(lease(&pool, model));
            loop {
                let asked = Instant::now();
                assert!(pool.snapshot().await.is_some());
                assert!(asked.elapsed() < 1000 * MS, "the owner answered after {:?}", asked.elapsed());
                if tokio::time::timeout(50 * MS, &mut served).await.is_ok() {
                    break;
                }
            }
        }
        pool.shut_down(BOUND).await;
    });
    // The threads that hang are not waited for.
    runtime.shutdown_background();
}
