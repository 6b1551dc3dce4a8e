//! A pool of engines, fake or real, as a test needs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gglib_core::admission::{EngineSnapshot, Refusal, Settings, Snapshot};
use gglib_core::config::Transport;
use gglib_core::model::{Catalog, ModelName, ModelSpec};
use gglib_core::ports::{Lease, Residency};
use gglib_core::retry::BreakerSettings;
use gglib_runtime::admission::Pool;
use gglib_runtime::engine::{GuardCommand, LaunchSettings, Launcher, Register};
use gglib_runtime::memory::Accounts;
use gglib_runtime::slots::SlotStore;
use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use crate::{Scripted, bins, fake_engine, real, until};

/// What a test's pool is made of. Engines run under the real guard.
#[derive(Debug)]
pub struct Engines {
    models: BTreeMap<ModelName, ModelSpec>,
    /// Bounds and transport of launches; change them before [`start`](Self::start).
    pub launch: LaunchSettings,
    /// Bounds of waiting; change them before [`start`](Self::start).
    pub admission: Settings,
    /// Where slots are saved, if anywhere; change it before [`start`](Self::start).
    pub slots: Option<Arc<SlotStore>>,
    /// Where engines are entered, if anywhere; change it before [`start`](Self::start).
    pub register: Option<Register>,
    /// Measures and remembers memory; without it nothing is known of that. Set it before [`start`](Self::start).
    pub accounts: Option<Accounts>,
}

impl Engines {
    /// Fake engines.
    pub fn fake() -> Self {
        Self::of(fake_engine())
    }

    /// Real ones.
    pub fn real() -> Self {
        Self::of(real::engine())
    }

    /// Engines run from `binary`.
    pub fn of(binary: PathBuf) -> Self {
        let launch = LaunchSettings {
            binary,
            guard: GuardCommand { program: bins().join("gglib-guard"), args: Vec::new() },
            transport: Transport::Unix,
            load_stall: Duration::from_secs(60),
            load_limit: Duration::from_secs(120),
            stop_grace: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            growth: 2 << 30,
        };
        let admission = Settings {
            stall: Duration::from_secs(60),
            max_wait: Duration::from_secs(120),
            quantum: Duration::from_secs(1),
            // A failed load may be tried again at once.
            breaker: BreakerSettings { open_for: Duration::ZERO, ..BreakerSettings::MODEL_LOAD },
            ..Settings::default()
        };
        Self { models: BTreeMap::new(), launch, admission, slots: None, register: None, accounts: None }
    }

    /// Adds a model whose engine follows `script`.
    #[must_use]
    pub fn scripted(self, name: &str, script: &Scripted) -> Self {
        self.model(name, &script.model(), 1, script.args())
    }

    /// Adds a model.
    #[must_use]
    pub fn model(mut self, name: &str, path: &Path, parallel: u32, args: Vec<String>) -> Self {
        let spec = ModelSpec { context: Some(2048), parallel, args, ..ModelSpec::new(path) };
        self.models.insert(ModelName::new(name), spec);
        self
    }

    /// Changes the model `name`, which has been added.
    #[must_use]
    pub fn with(mut self, name: &str, change: impl FnOnce(&mut ModelSpec)) -> Self {
        change(self.models.get_mut(name).expect("the model has been added"));
        self
    }

    /// Saves the slots of engines in `directory`.
    #[must_use]
    pub fn saving_slots(self, directory: &Path, budget: u64) -> Self {
        let slots = SlotStore::open(directory, budget).expect("nobody else uses the directory");
        Self { slots: Some(Arc::new(slots)), ..self }
    }

    /// The models, for the proxy.
    pub fn catalog(&self) -> Catalog {
        Catalog::new(self.models.clone())
    }

    /// Starts the pool. Its engines end when it is dropped and its leases are back, or with the test's runtime.
    pub fn start(&self) -> Arc<Pool> {
        let mut launcher = Launcher::new(self.launch.clone()).expect("a directory for sockets can be made");
        if let Some(slots) = &self.slots {
            launcher = launcher.with_slots(Arc::clone(slots));
        }
        if let Some(register) = &self.register {
            launcher = launcher.with_register(register.clone());
        }
        if let Some(accounts) = &self.accounts {
            launcher = launcher.with_accounts(accounts.clone());
        }
        Arc::new(Pool::start(launcher, self.catalog(), self.admission))
    }
}

/// Waiting for an engine in one step, for tests that need nothing of what lies between.
pub trait Enter {
    /// Enters the queue for `model` when it is first polled, and waits for the end. Dropped, it leaves.
    fn lease(&self, model: ModelName) -> impl Future<Output = Result<Box<dyn Lease>, Refusal>> + Send;
}

impl<R: Residency + ?Sized> Enter for R {
    async fn lease(&self, model: ModelName) -> Result<Box<dyn Lease>, Refusal> {
        let mut waiting = self.enter(model);
        waiting.granted().await.map_err(|refused| refused.refusal)
    }
}

/// The pool's state.
pub async fn snapshot(pool: &dyn Residency) -> Snapshot {
    pool.snapshot().await.expect("the owner of the queue answers")
}

/// Waits until the pool's state fulfils `condition` and returns it; see [`until`].
///
/// # Panics
/// After `bound`, showing the state and naming `what` was waited for.
pub async fn until_snapshot(
    pool: &dyn Residency,
    what: &str,
    bound: Duration,
    condition: impl Fn(&Snapshot) -> bool,
) -> Snapshot {
    let mut last = snapshot(pool).await;
    let waited = tokio::time::timeout(bound, async {
        while !condition(&last) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            last = snapshot(pool).await;
        }
    });
    assert!(waited.await.is_ok(), "waited {bound:?} in vain for {what}: {last:#?}");
    last
}

/// The process of the only engine that there is, once there is one; loading or ready.
pub async fn engine_pid(pool: &dyn Residency) -> u32 {
    let started = |state: &Snapshot| state.engines.iter().any(|engine| engine.pid.is_some());
    until_snapshot(pool, "a process", Duration::from_secs(20), started).await;
    only_engine(pool).await.pid.expect("it has been waited for")
}

/// The only engine that there is, once there is one with a process.
pub async fn only_engine(pool: &dyn Residency) -> EngineSnapshot {
    let mut engines = snapshot(pool).await.engines;
    assert_eq!(engines.len(), 1, "{engines:?}");
    engines.remove(0)
}

/// Whether a process of this number exists, zombies excepted.
pub fn is_running(pid: u32) -> bool {
    stat(&pid.to_string()).is_some_and(|(state, _)| state != "Z")
}

/// The process that started the process `pid`: of an engine, its guard.
pub fn parent_of(pid: u32) -> u32 {
    stat(&pid.to_string()).expect("the process exists").1
}

/// The processes that `pid` has started.
pub fn children_of(pid: u32) -> Vec<u32> {
    numbers_in("/proc").filter(|id| stat(&id.to_string()).is_some_and(|(_, parent)| parent == pid)).collect()
}

/// Sends a signal to the process `pid`.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("pids are positive numbers");
    kill_process(pid, signal).expect("the process exists");
}

/// A process that a test takes from whoever would end it. When this is dropped its whole group is killed.
#[derive(Debug)]
pub struct Orphan {
    group: Option<Pid>,
}

impl Orphan {
    /// The process `pid`, and the group that it is in now. One that has ended already is nothing.
    pub fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self { group: pid.and_then(|pid| getpgid(Some(pid)).ok()) }
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // The group may be empty by now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Stops the process `pid` by SIGSTOP and waits until its last thread has heard of it.
pub async fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
    let stopped = |thread| stat(&format!("{pid}/task/{thread}")).is_none_or(|(state, _)| state == "T");
    let all_stopped = || numbers_in(&format!("/proc/{pid}/task")).all(stopped);
    until("all threads to stop", Duration::from_secs(20), all_stopped).await;
}

fn numbers_in(directory: &str) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(directory).expect("the directory can be listed");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// State and parent of a process or thread.
fn stat(of: &str) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{of}/stat")).ok()?;
    // They follow the name, which is in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
