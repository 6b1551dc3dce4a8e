//! A new configuration taken over by a pool that runs: files are looked at before anything is launched, or stopped, for
//! them.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use gglib_core::admission::{Refusal, Snapshot};
use gglib_core::memory::{Footprint, Machine, Memory, MemoryProbe};
use gglib_core::model::ModelName;
use gglib_core::retry::BreakerState::{Closed, Open};
use gglib_core::retry::{BreakerSettings, BreakerState, EventSource, RetryEvent, RetryObserver};
use gglib_runtime::memory::{Accounts, FootprintFile};
use gglib_testkit::engines::{Enter, engine_pid, signal, snapshot, until_snapshot};
use gglib_testkit::{Death, End, Engines, Launch, Script, Scripted, tiny_model};
use rustix::process::Signal;

const BOUND: Duration = Duration::from_secs(20);
const GIB: u64 = 1 << 30;

/// A machine on which every engine takes 6 GiB, and has given them back at the next look.
#[derive(Default)]
struct Heavy(AtomicU64);

impl MemoryProbe for Heavy {
    fn machine(&self) -> Machine {
        let memory = |gib| Memory { ram: gib * GIB, vram: 0 };
        let looks = self.0.fetch_add(1, Ordering::Relaxed);
        Machine { total: memory(1000), available: memory(64 + 6 * looks) }
    }

    fn footprint(&self, _: u32) -> Option<Footprint> {
        Some(Footprint { anonymous: 6 * GIB, ..Footprint::default() })
    }
}

/// Scripts of engines whose model files can be read.
fn scripts<const N: usize>(script: &Script) -> [Scripted; N] {
    std::array::from_fn(|_| {
        let placed = script.clone().place();
        std::fs::write(placed.model(), tiny_model(&[])).unwrap();
        placed
    })
}

/// Engines `a` and `b`, both at once within this many GiB, and what is remembered of them in `data`.
fn engines(scripts: &[Scripted], budget: u64, data: &Path) -> Engines {
    let named = ["a", "b"].into_iter().zip(scripts);
    let mut engines = named.fold(Engines::fake(), |engines, (name, script)| engines.scripted(name, script));
    engines.admission.max_resident = 2;
    engines.admission.budget = Memory { ram: budget * GIB, vram: 0 };
    let record = FootprintFile::open(&data.join("footprints.jsonl"));
    engines.accounts = Some(Accounts::new(Arc::new(Heavy::default()), record));
    engines
}

fn residents(state: &Snapshot) -> Vec<&str> {
    state.engines.iter().map(|engine| engine.model.as_str()).collect()
}

#[tokio::test]
async fn a_model_that_is_added_is_preloaded_only_if_it_fits() {
    let (scripts, data): ([_; 2], _) = (scripts(&Script::default()), tempfile::tempdir().unwrap());
    // That each takes 6 GiB is known from a run before.
    let pool = engines(&scripts, 64, data.path()).start();
    for model in ["a", "b"] {
        drop(pool.lease(ModelName::new(model)).await.unwrap());
    }
    pool.shut_down(BOUND).await;

    for (budget, expected) in [(11, vec!["a"]), (12, vec!["a", "b"])] {
        let pool = engines(&scripts[..1], budget, data.path()).start();
        drop(pool.lease(ModelName::new("a")).await.unwrap());
        let both = engines(&scripts, budget, data.path()).with("b", |model| model.preload = true);
        pool.configure(both.catalog(), both.admission).await;
        assert_eq!(residents(&snapshot(&*pool).await), expected, "within {budget} GiB");
        pool.shut_down(BOUND).await;
    }
}

#[tokio::test]
async fn a_changed_model_whose_file_is_missing_is_refused_to_its_waiters_and_the_resident_stays() {
    let (scripts, data): ([_; 2], _) = (scripts(&Script::default()), tempfile::tempdir().unwrap());
    let mut engines = engines(&scripts, 64, data.path());
    engines.admission.max_resident = 1;
    engines.admission.breaker = BreakerSettings::MODEL_LOAD;
    let pool = engines.start();
    let held = pool.lease(ModelName::new("a")).await.unwrap();
    let mut waiting = Box::pin(pool.lease(ModelName::new("b")));
    assert!((&mut waiting).now_or_never().is_none());
    until_snapshot(&*pool, "the waiter", BOUND, |state| state.queue.len() == 1).await;
    let changed = engines.with("b", |model| model.path = "/nowhere/model.gguf".into());
    pool.configure(changed.catalog(), changed.admission).await;
    let refused = waiting.await.err().unwrap();
    assert!(
        matches!(&refused, Refusal::LoadFailed { reason } if reason.contains("/nowhere/model.gguf")),
        "{refused:?}"
    );
    drop(held);
    let state = snapshot(&*pool).await;
    assert_eq!((residents(&state), state.totals.evictions), (vec!["a"], 0));
    assert_eq!(scripts[1].log().launches(), 0);
}

#[tokio::test]
async fn who_waits_for_a_name_that_has_become_an_alias_may_ask_again() {
    let (scripts, data): ([_; 2], _) = (scripts(&Script::default()), tempfile::tempdir().unwrap());
    let pool = engines(&scripts, 64, data.path()).start();
    let held = pool.lease(ModelName::new("a")).await.unwrap();
    let mut waiting = Box::pin(pool.lease(ModelName::new("a")));
    assert!((&mut waiting).now_or_never().is_none());
    until_snapshot(&*pool, "the waiter", BOUND, |state| state.queue.len() == 1).await;
    let renamed =
        Engines::fake().scripted("d", &scripts[1]).with("d", |model| model.aliases = vec!["a".to_owned()]);
    pool.configure(renamed.catalog(), renamed.admission).await;
    assert_eq!(waiting.await.err(), Some(Refusal::Renamed));
    drop(held);
    drop(pool.lease(ModelName::new("a")).await.unwrap());
    assert!(residents(&snapshot(&*pool).await).contains(&"d"));
}

/// Keeps the changes of breakers.
#[derive(Default)]
struct Changes(Mutex<Vec<(BreakerState, BreakerState)>>);

impl RetryObserver for Changes {
    fn observe(&self, _: &EventSource<'_>, event: &RetryEvent) {
        if let RetryEvent::BreakerChanged { from, to, .. } = *event {
            self.0.lock().unwrap().push((from, to));
        }
    }
}

#[tokio::test]
async fn every_change_of_a_breaker_is_published_when_it_happens() {
    let broken = Launch { death: Some(Death::BeforeBind), end: End::Exit(1), ..Launch::default() };
    let launches = [vec![broken.clone()], vec![Launch::default(); 4], vec![broken]].concat();
    let (scripts, data): ([_; 1], _) = (scripts(&Script { launches }), tempfile::tempdir().unwrap());
    let mut engines = engines(&scripts, 64, data.path());
    engines.admission.breaker = BreakerSettings { open_for: BOUND, ..BreakerSettings::MODEL_LOAD };
    let pool = engines.start();
    let changes = Arc::new(Changes::default());
    pool.publish_breakers(changes.clone());
    let published = || std::mem::take(&mut *changes.0.lock().unwrap());

    pool.lease(ModelName::new("a")).await.err().unwrap();
    assert_eq!(published(), [(Closed, Open)]);
    // A change of the model makes it another one.
    let other = engines.with("a", |model| model.context = Some(1024));
    pool.configure(other.catalog(), other.admission).await;
    assert_eq!(published(), [(Open, Closed)]);
    // The third engine that dies without an answer, when it is found out.
    for _ in 0..3 {
        let lease = pool.lease(ModelName::new("a")).await.unwrap();
        signal(engine_pid(&*pool).await, Signal::KILL);
        lease.confirm().await;
        drop(lease);
        until_snapshot(&*pool, "its end", BOUND, |state| state.engines.is_empty()).await;
    }
    assert_eq!(published(), [(Closed, Open)]);
}
