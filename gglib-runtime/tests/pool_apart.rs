//! What does not touch each other: one engine's end and another one's leases, and whatever takes its time and the owner
//! of the queue.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use gglib_core::admission::{EngineSnapshot, EngineState, Outlook, Refusal, Snapshot, WaitPhase};
use gglib_core::model::ModelName;
use gglib_core::ports::{Lease, Liveness, Residency};
use gglib_runtime::admission::Pool;
use gglib_testkit::engines::{Enter, is_running, signal, snapshot, until_snapshot};
use gglib_testkit::{Engines, Launch, Load, Script, Scripted};
use rustix::process::Signal;
use tokio::time::{Instant, timeout};

const MS: Duration = Duration::from_millis(1);
const BOUND: Duration = Duration::from_secs(20);
/// In less, whoever does not wait is answered: an owner that is held up takes 2 s, for a stop's grace or a look at a file.
const TOLD: Duration = Duration::from_millis(1500);

fn engines(scripts: &[Scripted]) -> Engines {
    let named = ["a", "b"].into_iter().zip(scripts);
    named.fold(Engines::fake(), |engines, (name, script)| engines.scripted(name, script))
}

async fn lease(pool: &Pool, model: &'static str) -> Box<dyn Lease> {
    pool.lease(ModelName::new(model)).await.unwrap()
}

fn of<'a>(state: &'a Snapshot, model: &str) -> Option<&'a EngineSnapshot> {
    state.engines.iter().find(|engine| engine.model.as_str() == model)
}

async fn pid(pool: &Pool, model: &str) -> u32 {
    of(&snapshot(pool).await, model).unwrap().pid.unwrap()
}

/// Fault I: a relaunch ends the engine that has died, and no other one.
#[tokio::test]
async fn a_dead_engine_is_launched_again_and_its_neighbour_never_notices() {
    let scripts = [(); 2].map(|()| Script::default().place());
    let mut engines = engines(&scripts);
    engines.admission.max_resident = 2;
    let pool = engines.start();
    let (broken, neighbour) = (lease(&pool, "a").await, lease(&pool, "b").await);
    let before = pid(&pool, "b").await;
    signal(pid(&pool, "a").await, Signal::KILL);
    assert_eq!(broken.confirm().await, Liveness::Dead);
    let again = lease(&pool, "a").await;
    // The old lease comes back late, and is asked about once more.
    assert_eq!(broken.confirm().await, Liveness::Dead);
    drop(broken);
    assert_eq!((again.confirm().await, neighbour.confirm().await), (Liveness::Alive, Liveness::Alive));
    let state = snapshot(&*pool).await;
    let told =
        ["a", "b"].map(|model| of(&state, model).map(|engine| (engine.generation.0, engine.in_flight)));
    assert_eq!(told, [Some((3, 1)), Some((2, 1))]);
    assert_eq!(pid(&pool, "b").await, before);
    assert_eq!(scripts[1].log().launches(), 1);
}

/// Fault I: whoever changes or removes a model stops its engine when its leases are back, and no other one.
#[tokio::test]
async fn an_engine_that_is_stopped_on_purpose_finishes_what_it_has_and_its_neighbour_stays() {
    let scripts = [(); 2].map(|()| Script::default().place());
    let mut engines = engines(&scripts);
    engines.admission.max_resident = 2;
    let pool = engines.start();
    let (held, neighbour) = (lease(&pool, "a").await, lease(&pool, "b").await);
    let pids = [pid(&pool, "a").await, pid(&pool, "b").await];
    let changed = engines.with("a", |model| model.context = Some(1024));
    pool.configure(changed.catalog(), changed.admission).await;
    let drains =
        |state: &Snapshot| of(state, "a").is_some_and(|engine| engine.state == EngineState::Draining);
    until_snapshot(&*pool, "the drain", BOUND, drains).await;
    let mut next = pin!(pool.lease(ModelName::new("a")));
    assert!((&mut next).now_or_never().is_none(), "the old engine takes nobody any more");
    assert_eq!(held.confirm().await, Liveness::Alive);
    drop(held);
    assert_eq!(next.await.unwrap().generation().0, 3);
    assert_eq!(pids.map(is_running), [false, true]);

    // Nothing but b's own lease keeps it when it is removed.
    let only_a = engines_of(&changed, "a");
    pool.configure(only_a, changed.admission).await;
    assert_eq!(pool.lease(ModelName::new("b")).await.err(), Some(Refusal::NotConfigured));
    assert_eq!(neighbour.confirm().await, Liveness::Alive);
    drop(neighbour);
    until_snapshot(&*pool, "the end of b", BOUND, |state| of(state, "b").is_none()).await;
    assert!(!is_running(pids[1]));
    assert_eq!(of(&snapshot(&*pool).await, "a").unwrap().generation.0, 3);
}

/// One who leaves takes nobody's load with it.
#[tokio::test]
async fn of_two_who_wait_for_a_load_one_may_leave_and_the_other_is_served_by_it() {
    let slow = Launch { load: Load::Takes(300 * MS), ..Launch::default() };
    let scripts = [Script::always(slow).place()];
    let pool = engines(&scripts).start();
    let launcher = pool.enter(ModelName::new("a"));
    let mut other = pool.enter(ModelName::new("a"));
    let loads = |state: &Snapshot| of(state, "a").is_some_and(|engine| engine.pid.is_some());
    until_snapshot(&*pool, "the load", BOUND, loads).await;
    drop(launcher);
    assert_eq!(other.granted().await.unwrap().generation().0, 1);
    assert_eq!(scripts[0].log().launches(), 1);
}

/// The catalog without all other models.
fn engines_of(engines: &Engines, model: &str) -> gglib_core::model::Catalog {
    let catalog = engines.catalog();
    let kept = catalog.iter().filter(|(name, _)| name.as_str() == model);
    gglib_core::model::Catalog::new(kept.map(|(name, spec)| (name.clone(), spec.clone())).collect())
}

/// Asks the owner how things are until `work` is done; each answer comes soon.
async fn answering<T>(pool: &Pool, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        let asked = Instant::now();
        assert!(pool.snapshot().await.is_some());
        assert!(asked.elapsed() < TOLD, "the owner answered after {:?}", asked.elapsed());
        if let Ok(done) = timeout(20 * MS, &mut work).await {
            return done;
        }
    }
}

#[tokio::test]
async fn the_owner_answers_while_an_engine_does_not_want_to_end() {
    let stubborn = Script::always(Launch { ignores_sigterm: true, ..Launch::default() }).place();
    let scripts = [stubborn, Script::default().place()];
    let engines = engines(&scripts);
    let pool = engines.start();
    drop(lease(&pool, "a").await);
    let began = Instant::now();
    answering(&pool, lease(&pool, "b")).await;
    assert!(began.elapsed() >= engines.launch.stop_grace, "{:?}", began.elapsed());
}

/// Runs `work` with two models, the first of which is resident, while no file can be read: the only thread for that is
/// taken.
fn without_files(change: impl FnOnce(&mut Engines), work: impl AsyncFnOnce(&Pool)) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let scripts = [(); 2].map(|()| Script::default().place());
        let mut engines = engines(&scripts);
        engines.admission.max_resident = 2;
        change(&mut engines);
        let pool = engines.start();
        drop(lease(&pool, "a").await);
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || is_done.recv());
        work(&pool).await;
        drop(done);
        pool.shut_down(BOUND).await;
    });
}

#[test]
fn the_owner_answers_and_grants_while_no_file_can_be_read() {
    without_files(
        |engines| engines.launch.load_stall = 2000 * MS,
        async |pool| {
            // The look at the file is given up after 2 s, and then the launch makes no progress.
            let wanted = answering(pool, async {
                let mut wanted = pin!(pool.lease(ModelName::new("b")));
                loop {
                    let resident = timeout(TOLD, lease(pool, "a")).await;
                    drop(resident.expect("a needs no file"));
                    if let Ok(ended) = timeout(10 * MS, &mut wanted).await {
                        return ended;
                    }
                }
            });
            let refused = timeout(BOUND, wanted).await.expect("the wait ends").err();
            assert!(
                matches!(&refused, Some(Refusal::LoadFailed { reason }) if reason.contains("no progress")),
                "{refused:?}"
            );
        },
    );
}

#[test]
fn who_stands_at_the_gate_is_seen_and_counted() {
    without_files(
        |engines| engines.admission.queue = 2,
        async |pool| {
            let places = [(); 2].map(|()| pool.enter(ModelName::new("b")));
            let first = Outlook { position: 1, estimate: None, phase: WaitPhase::Turn, percent: None };
            assert_eq!(places[0].outlook().await, Some(first));
            assert_eq!(places[1].outlook().await, Some(Outlook { position: 2, ..first }));
            let queue = &snapshot(pool).await.queue;
            assert_eq!((queue.len(), queue[0].model.as_str(), queue[0].waiting), (1, "b", 2));
            let too_many = pool.lease(ModelName::new("b")).await.err();
            assert_eq!(too_many, Some(Refusal::QueueFull { limit: 2 }));
            let [leaver, _stays] = places;
            drop(leaver);
            assert_eq!(snapshot(pool).await.queue[0].waiting, 1);
        },
    );
}
