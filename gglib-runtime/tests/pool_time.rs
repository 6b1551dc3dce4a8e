//! What the pool does over long times. The engines are processes and take their own time; only the clock of the queue is
//! moved, between one thing and the next.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gglib_core::admission::{EngineState, Refusal, Settings, Snapshot};
use gglib_core::memory::{Footprint, Machine, Memory, MemoryProbe};
use gglib_core::model::ModelName;
use gglib_core::ports::{Lease, Refused, Residency};
use gglib_core::retry::BreakerSettings;
use gglib_runtime::admission::Pool;
use gglib_runtime::memory::{Accounts, FootprintFile};
use gglib_testkit::engines::{Enter, engine_pid, is_running, signal, snapshot, until_snapshot};
use gglib_testkit::{Death, End, Engines, Launch, Load, Script, Scripted, until};
use rustix::process::Signal;
use tokio::time::timeout;

const BOUND: Duration = Duration::from_secs(20);
const MS: Duration = Duration::from_millis(1);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The clock goes on, at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn engines(scripts: &[Scripted]) -> Engines {
    let named = ["a", "b"].into_iter().zip(scripts);
    let mut engines = named.fold(Engines::fake(), |engines, (name, script)| engines.scripted(name, script));
    engines.admission = Settings::default();
    engines.launch.load_stall = secs(600);
    engines.launch.load_limit = secs(600);
    engines
}

async fn lease(pool: &Pool, model: &'static str) -> Box<dyn Lease> {
    pool.lease(ModelName::new(model)).await.unwrap()
}

async fn refused(pool: &Pool) -> Refused {
    pool.enter(ModelName::new("a")).granted().await.err().expect("it is refused")
}

async fn until_gone(pool: &Pool) {
    until_snapshot(pool, "no engine", BOUND, |state| state.engines.is_empty()).await;
}

fn launches(scripts: &[Scripted]) -> Vec<usize> {
    scripts.iter().map(|script| script.log().launches()).collect()
}

/// T20 with the shipped pauses: 10 s, doubling up to 5 min, and from the beginning again after a success or a change.
#[tokio::test]
async fn a_model_that_does_not_load_is_left_alone_for_longer_each_time() {
    let broken = Launch {
        stderr: vec!["unknown model architecture: 'x'".to_owned()],
        death: Some(Death::BeforeBind),
        end: End::Exit(1),
        ..Launch::default()
    };
    let mut launches = vec![broken; 9];
    launches[7] = Launch::default();
    let scripts = [Script { launches }.place()];
    let engines = engines(&scripts);
    assert_eq!(engines.admission.breaker, BreakerSettings::MODEL_LOAD);
    let pool = engines.start();
    let fails = async |pause| {
        let failed = refused(&pool).await;
        assert!(matches!(&failed.refusal, Refusal::LoadFailed { .. }), "{failed:?}");
        assert_eq!(failed.retry_after, Some(secs(pause)));
    };
    let is_left_alone = async |failures| {
        let again = refused(&pool).await;
        assert!(
            matches!(&again.refusal, Refusal::BreakerOpen { failures: so_far, reason }
                if *so_far == failures && reason.contains("unknown model architecture")),
            "{again:?}"
        );
        again.retry_after.unwrap()
    };
    for (failures, pause) in (1..).zip([10, 20, 40, 80, 160, 300, 300]) {
        fails(pause).await;
        pass(secs(pause - 5)).await;
        let rest = is_left_alone(failures).await;
        assert!(rest <= secs(5), "{rest:?}");
        assert_eq!(scripts[0].log().launches(), failures as usize);
        pass(rest).await;
    }
    // The eighth launch is ready, and all is forgotten.
    drop(lease(&pool, "a").await);
    assert_eq!(snapshot(&*pool).await.breakers, []);
    signal(engine_pid(&*pool).await, Signal::KILL);
    until_gone(&pool).await;
    fails(10).await;

    // A configuration that starts the model as before changes nothing.
    pool.configure(engines.catalog(), Settings { quantum: secs(30), ..engines.admission }).await;
    is_left_alone(1).await;
    let changed = engines.with("a", |model| model.context = Some(1024));
    pool.configure(changed.catalog(), changed.admission).await;
    fails(10).await;
    assert_eq!(scripts[0].log().launches(), 10);
}

/// T22: what becomes of a load whose clients have gone, when another model is wanted.
#[tokio::test]
async fn a_load_that_nobody_wants_goes_on_if_it_is_more_than_half_done_and_else_is_cancelled() {
    let takes = |time| Launch { load: Load::Takes(time), ..Launch::default() };
    let never = Launch { load: Load::Never, ..Launch::default() };
    let a = Script { launches: vec![takes(300 * MS), never, takes(300 * MS)] }.place();
    let scripts = [a, Script::default().place()];
    let pool = engines(&scripts).start();
    let enter = |model| pool.enter(ModelName::new(model));
    let loading = async |model: &str| {
        let is_it = |state: &Snapshot| matches!(&*state.engines, [engine] if engine.model.as_str() == model && engine.pid.is_some());
        until_snapshot(&*pool, "the load", BOUND, is_it).await.engines[0].pid.unwrap()
    };
    let slowly = async {
        loading("a").await;
        pass(secs(40)).await;
    };
    drop(tokio::join!(lease(&pool, "a"), slowly).0);
    let known = &snapshot(&*pool).await.models[0];
    assert!((secs(40)..secs(60)).contains(&known.loading), "{known:?}");
    drop(lease(&pool, "b").await);

    // Nothing of it is done. (Killed before it has said so, it would leave its part of the script to the next.)
    let leaver = enter("a");
    let pid = loading("a").await;
    scripts[0].until("its launch", BOUND, |log| log.launches() == 2).await;
    drop(leaver);
    let b = lease(&pool, "b").await;
    assert!(!is_running(pid));
    let state = snapshot(&*pool).await;
    assert!(matches!(&*state.engines, [engine] if engine.model.as_str() == "b"), "{state:?}");
    assert_eq!((state.totals.cancelled_loads, state.totals.failed_loads), (1, 0));
    drop(b);

    // More than half of it is done: it is finished, and serves who comes meanwhile.
    let leaver = enter("a");
    let pid = loading("a").await;
    pass(secs(32)).await;
    drop(leaver);
    let mut rival = enter("b");
    let back = lease(&pool, "a").await;
    assert_eq!(engine_pid(&*pool).await, pid);
    drop(back);
    rival.granted().await.unwrap();
    let totals = snapshot(&*pool).await.totals;
    assert_eq!((totals.cancelled_loads, totals.failed_loads, totals.loads), (1, 0, 5));
    assert_eq!(launches(&scripts), [3, 3]);
}

/// T38: ten long jobs are queued when one chat arrives. Those who waited before it are served for three quanta more,
/// then it is the chat's turn, and then theirs again.
#[tokio::test]
async fn a_chat_waits_for_the_turn_of_long_jobs_and_not_for_all_of_them() {
    let scripts = [(); 2].map(|()| Script::default().place());
    let engines = engines(&scripts);
    assert_eq!(engines.admission.quantum, secs(20));
    let pool = engines.start();
    let mut job = lease(&pool, "a").await;
    let mut jobs: Vec<_> = (0..9).map(|_| pool.enter(ModelName::new("a"))).collect();
    // The turn is older than a quantum, so that it is for nobody who comes from now on.
    pass(secs(20)).await;
    let mut chat = pool.enter(ModelName::new("b"));
    let stands_aside = |state: &Snapshot| state.engines[0].state == EngineState::Draining;
    until_snapshot(&*pool, "the pressure", BOUND, stands_aside).await;
    let mut served = 0;
    let answer = loop {
        pass(secs(15)).await;
        drop(job);
        served += 1;
        job = tokio::select! {
            next = jobs[0].granted() => next.unwrap(),
            chat = chat.granted() => break chat.unwrap(),
        };
        drop(jobs.remove(0));
    };
    // At 15 s, 30 s and 45 s the next one was given its place, at 60 s no more.
    assert_eq!((served, jobs.len()), (4, 6));
    drop(answer);
    for mut waiting in jobs {
        waiting.granted().await.unwrap();
    }
    assert_eq!(launches(&scripts), [2, 1]);
}

/// Takes 1 GiB more with each look at it, from the second one on, and hides half of that in swap.
#[derive(Default)]
struct Growing {
    looks: AtomicU64,
    /// The number of a look that fails, from 1.
    blind: u64,
}

impl MemoryProbe for Growing {
    fn machine(&self) -> Machine {
        let memory = Memory { ram: 64 << 30, vram: 0 };
        Machine { total: memory, available: memory }
    }

    fn footprint(&self, _: u32) -> Option<Footprint> {
        let before = self.looks.fetch_add(1, Ordering::SeqCst);
        let grown = before.saturating_sub(1) << 29;
        (before + 1 != self.blind).then_some(Footprint {
            anonymous: grown,
            swapped: grown,
            ..Footprint::default()
        })
    }
}

/// T35: an engine that grows without bound ends before the machine does, but not under a request.
#[tokio::test]
async fn an_engine_that_grows_is_launched_anew_when_it_is_idle() {
    // The measurement when it was ready, the first look, and those by which it has grown.
    grows_for(Growing::default(), 5).await;
    // One that fails is made up for by the next, also the first.
    grows_for(Growing { blind: 2, ..Growing::default() }, 6).await;
    grows_for(Growing { blind: 4, ..Growing::default() }, 5).await;
}

/// An engine that is launched anew after so many looks at its memory.
async fn grows_for(probe: Growing, last: u64) {
    let scripts = [Script::default().place()];
    let data = tempfile::tempdir().unwrap();
    let mut engines = engines(&scripts);
    engines.launch.growth = 2 << 30;
    let record = FootprintFile::open(&data.path().join("footprints.jsonl"));
    let probe = Arc::new(probe);
    engines.accounts = Some(Accounts::new(probe.clone(), record));
    let pool = engines.start();
    let held = lease(&pool, "a").await;
    let pid = engine_pid(&*pool).await;
    let looks_so_far = || probe.looks.load(Ordering::SeqCst);
    until("the first look", BOUND, || looks_so_far() == 2).await;
    for looks in 3..=last {
        assert_eq!(engine_pid(&*pool).await, pid);
        // A minute that passes while the last look is not quite over is lost.
        while looks_so_far() < looks {
            pass(secs(60)).await;
            let _ = timeout(secs(5), until("a look", BOUND, || looks_so_far() == looks)).await;
        }
        assert_eq!(looks_so_far(), looks);
    }
    assert!(is_running(pid));
    assert_eq!(snapshot(&*pool).await.engines[0].in_flight, 1);
    drop(held);
    until_gone(&pool).await;
    assert!(!is_running(pid));
    let totals = snapshot(&*pool).await.totals;
    assert_eq!((totals.recycles, totals.crashes, totals.evictions), (1, 0, 0));
    drop(lease(&pool, "a").await);
    assert_eq!(launches(&scripts), [2]);
}
