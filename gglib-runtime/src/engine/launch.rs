//! From a model to a ready engine, and to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gglib_core::admission::{Generation, Urgency};
use gglib_core::memory::{Memory, died_of_memory};
use gglib_core::model::{ModelName, ModelSpec};
use gglib_core::ports::Upstream;
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::address::{Address, Addresses};
use super::command::{arguments, options, saves_slots_itself};
use super::devices::Devices;
use super::handle::Engine;
use super::log::LogRing;
use super::process::Process;
use super::readiness::{Bounds, NotReady, wait_until_ready};
use super::register::{Register, Registered};
use super::survey::check_model_file;
use super::upstream;
use crate::memory::Accounts;
use crate::slots::{EngineSlots, Launched, RESTORE, SlotStore};

pub use error::LaunchError;
pub use settings::LaunchSettings;

mod error;
mod settings;

/// Log lines that an error quotes.
const QUOTED: usize = 8;
/// Keeps the libraries below the engine from writing a backtrace where its last words are quoted from.
const NO_BACKTRACE: (&str, &str) = ("GGML_NO_BACKTRACE", "1");

/// What an engine's task tells the owner of the queue: `Started` at most once; then, or at once, `LoadFailed` or
/// `Loaded`; after `Loaded` at most one `Outgrown`, and exactly one `Ended`. After `LoadFailed` and `Ended` the process is gone and
/// its memory is back, as far as that can be waited for: a task that panics tells of the end at once, while its engine is
/// being killed.
pub(crate) enum EngineEvent {
    Started {
        generation: Generation,
        pid: u32,
        address: Address,
    },
    Loaded {
        engine: Arc<Engine>,
        footprint: Option<Memory>,
    },
    LoadFailed(Generation, LaunchError),
    /// It takes much more than when it was ready.
    Outgrown(Generation),
    Ended(Generation),
}

/// Launches engines.
#[derive(Debug)]
pub struct Launcher {
    pub(super) settings: LaunchSettings,
    addresses: Addresses,
    /// Known once a survey has asked for them.
    pub(super) devices: OnceCell<Devices>,
    pub(super) accounts: Option<Accounts>,
    slots: Option<Arc<SlotStore>>,
    register: Option<Register>,
    /// Whether nobody will need the memory of the engines that end now.
    no_more: watch::Sender<bool>,
}

impl Launcher {
    /// A launcher with an address space of its own.
    ///
    /// # Errors
    /// When no directory for sockets could be made.
    pub fn new(settings: LaunchSettings) -> io::Result<Self> {
        let addresses = Addresses::new(settings.transport)?;
        let devices = OnceCell::new();
        Ok(Self {
            settings,
            addresses,
            devices,
            accounts: None,
            slots: None,
            register: None,
            no_more: watch::Sender::new(false),
        })
    }

    /// Saves the slots of engines that are stopped in `slots`, and restores them into the next engine of the model.
    #[must_use]
    pub fn with_slots(self, slots: Arc<SlotStore>) -> Self {
        Self { slots: Some(slots), ..self }
    }

    /// Enters engines in `register` as long as they run.
    #[must_use]
    pub fn with_register(self, register: Register) -> Self {
        Self { register: Some(register), ..self }
    }

    /// Estimates, measures and remembers the memory of engines by `accounts`, and waits for its return.
    #[must_use]
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Self { accounts: Some(accounts), ..self }
    }

    /// Spares engines that end from now on the wait for their memory.
    pub(crate) fn launch_no_more(&self) {
        self.no_more.send_replace(true);
    }

    /// Launches an engine and stays with it to its end, telling `tell` of each step. `stop` may be set at any
    /// time, and once more to `Immediate`.
    pub(crate) async fn launch(
        &self,
        generation: Generation,
        name: ModelName,
        spec: ModelSpec,
        mut stop: watch::Receiver<Option<Urgency>>,
        tell: impl Fn(EngineEvent),
    ) {
        let (ended, has_ended) = watch::channel(false);
        let launch = Launch { launcher: self, generation, name: &name, spec: &spec, tell: &tell };
        let (mut process, upstream, mut slots) = match launch.load(&mut stop).await {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::warn!(%name, generation = generation.0, %error, "load failed");
                return tell(EngineEvent::LoadFailed(generation, error));
            }
        };
        tracing::info!(%name, generation = generation.0, "engine ready");
        let footprint = self.measured(&spec, &process).await;
        let engine = Arc::new(Engine::new(generation, upstream, has_ended));
        tell(EngineEvent::Loaded { engine: Arc::clone(&engine), footprint });

        let leader = process.id();
        let available = tokio::select! {
            exit = process.ended() => {
                tracing::warn!(%name, generation = generation.0, "engine {exit}");
                None
            }
            urgency = requested(&mut stop) => {
                let available = self.available_after(&process).await;
                let last_words = LastWords { engine: &engine, slots: slots.as_mut() };
                self.end(&mut process, urgency, &mut stop, last_words).await;
                available
            }
            never = self.watch_growth(leader, || tell(EngineEvent::Outgrown(generation))) => match never {},
        };
        // First, since the disk may hang: requests of this engine need not wait for that to hear of its end.
        ended.send_replace(true);
        let closed = async {
            if let Some(slots) = slots {
                slots.close().await;
            }
        };
        tokio::join!(closed, process.strike_off(), self.wait_for(available));
        tell(EngineEvent::Ended(generation));
    }

    async fn end(
        &self,
        process: &mut Process,
        urgency: Urgency,
        stop: &mut watch::Receiver<Option<Urgency>>,
        last_words: LastWords<'_>,
    ) {
        if urgency == Urgency::Graceful {
            let immediate = stop.wait_for(|urgency| *urgency == Some(Urgency::Immediate));
            tokio::select! {
                () = last_words.then_stop(process, self.settings.stop_grace) => return,
                Ok(_) = immediate => {}
            }
        }
        process.kill().await;
    }

    async fn measured(&self, spec: &ModelSpec, process: &Process) -> Option<Memory> {
        self.accounts.as_ref()?.measured(spec, &self.settings.binary, process.id()?).await
    }

    /// What should be available when the process is gone; unknown if it has gone by itself.
    async fn available_after(&self, process: &Process) -> Option<Memory> {
        self.accounts.as_ref()?.available_after(process.id()?).await
    }

    /// Waits until so much is available, unless nobody will need it.
    async fn wait_for(&self, available: Option<Memory>) {
        let (Some(accounts), Some(available)) = (&self.accounts, available) else { return };
        let mut no_more = self.no_more.subscribe();
        tokio::select! {
            () = accounts.wait_for(available) => {}
            _ = no_more.wait_for(|no_more| *no_more) => {}
        }
    }
}

/// What an idle engine is asked before it is stopped.
struct LastWords<'a> {
    engine: &'a Engine,
    slots: Option<&'a mut EngineSlots>,
}

impl LastWords<'_> {
    async fn then_stop(self, process: &mut Process, grace: Duration) {
        let saved = match self.slots {
            None => None,
            Some(slots) => tokio::select! {
                biased;
                exit = process.ended() => return slots.save_cut_off(exit),
                saved = slots.save(self.engine.upstream()) => saved,
            },
        };
        // The disk takes its time while the engine goes.
        let safe = async {
            if let Some(saved) = saved {
                let _ = saved.await;
            }
        };
        tokio::join!(process.stop(grace), safe);
    }
}

/// What a load has come to.
type Loaded = (Process, Box<dyn Upstream>, Option<EngineSlots>);

/// One launch on its way.
struct Launch<'a, F> {
    launcher: &'a Launcher,
    generation: Generation,
    name: &'a ModelName,
    spec: &'a ModelSpec,
    tell: &'a F,
}

impl<F: Fn(EngineEvent)> Launch<'_, F> {
    async fn load(&self, stop: &mut watch::Receiver<Option<Urgency>>) -> Result<Loaded, LaunchError> {
        let stall = self.launcher.settings.load_stall;
        tokio::select! {
            checked = timeout(stall, check_model_file(&self.spec.path)) => {
                checked.unwrap_or(Err(LaunchError::Stalled { after: stall, log: Vec::new() }))?;
            }
            _ = requested(stop) => return Err(LaunchError::Cancelled),
        }
        let address = self.launcher.addresses.next(self.generation).map_err(LaunchError::Start)?;
        let mut process = self.spawn(&address).map_err(LaunchError::Start)?;
        let outcome = tokio::select! {
            outcome = self.come_up(&mut process, address) => outcome,
            _ = requested(stop) => Err(LaunchError::Cancelled),
        };
        match outcome {
            Ok((upstream, slots)) => Ok((process, upstream, slots)),
            Err(error) => {
                let available = self.launcher.available_after(&process).await;
                process.kill().await;
                self.launcher.wait_for(available).await;
                Err(error)
            }
        }
    }

    fn spawn(&self, address: &Address) -> io::Result<Process> {
        let LaunchSettings { binary, guard, .. } = &self.launcher.settings;
        let slots = self.slots().map(|slots| slots.path());
        let args = arguments(self.name, self.spec, address, slots);
        let mut envs = vec![NO_BACKTRACE];
        let is_set = |name: &str| std::env::var_os(name).is_some();
        envs.extend(self.launcher.devices.get().and_then(|devices| devices.environment(self.spec, is_set)));
        let socket = match address {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp { key, .. } => {
                envs.push(("LLAMA_API_KEY", key));
                None
            }
        };
        Process::spawn(guard, binary, args, &envs, socket)
    }

    /// Waits until the process is a ready engine, or will not become one.
    async fn come_up(
        &self,
        process: &mut Process,
        address: Address,
    ) -> Result<(Box<dyn Upstream>, Option<EngineSlots>), LaunchError> {
        let LaunchSettings { binary, load_stall: stall, load_limit: limit, connect_timeout, .. } =
            &self.launcher.settings;
        let pid = process.started().await.map_err(|error| {
            LaunchError::Start(io::Error::other(format!("cannot start {}: {error}", binary.display())))
        })?;
        process.keep(self.registered(pid, &address).await);
        let upstream = upstream::connect(&address, *connect_timeout);
        let keyless = upstream::without_key(&address, *connect_timeout);
        (self.tell)(EngineEvent::Started { generation: self.generation, pid, address: address.clone() });
        let log = process.log().clone();
        let bounds = Bounds { stall: *stall, limit: *limit };
        let mut restore_by = None;
        let ready = async {
            wait_until_ready(&*upstream, keyless.as_deref(), &log, bounds)
                .await
                .map_err(|reason| not_ready(reason, &address, &log))?;
            let deadline = Instant::now() + RESTORE;
            restore_by = Some(deadline);
            let slots = self.restore(&*upstream, deadline).await;
            // Restoring may have killed it, which shows on the connection before it shows on the process. An engine that
            // is slow to answer after all is not given up for that.
            let again = wait_until_ready(&*upstream, keyless.as_deref(), &log, bounds);
            let _ = timeout_at(deadline, again).await;
            Ok(slots)
        };
        let slots = tokio::select! {
            biased;
            exit = process.ended() => {
                let is_of_memory = died_of_memory(exit.into(), &log.tail(usize::MAX));
                Err(LaunchError::Ended { exit, is_of_memory, log: log.tail(QUOTED) })
            }
            slots = ready => slots,
        };
        if let (Err(_), Some(deadline), Some(store)) = (&slots, restore_by, self.slots()) {
            // What an engine dies of must not be given to the next one.
            EngineSlots::forget(store, self.name, deadline).await;
        }
        Ok((upstream, slots?))
    }

    /// The process's entry among the engines that run; without one it is only left behind, and that seldom.
    async fn registered(&self, pid: u32, address: &Address) -> Option<Registered> {
        let entered = self.launcher.register.as_ref()?.enter(pid, address).await;
        entered.inspect_err(|error| tracing::warn!(%error, "an engine is not on record")).ok().flatten()
    }

    /// Restores the model's saved slots, before anybody else can ask the engine.
    async fn restore(&self, engine: &dyn Upstream, deadline: Instant) -> Option<EngineSlots> {
        let launched = Launched {
            generation: self.generation,
            model: self.name.clone(),
            binary: self.launcher.settings.binary.clone(),
            file: self.spec.path.clone(),
            arguments: options(self.spec),
        };
        EngineSlots::restore(self.slots()?, engine, launched, deadline).await
    }

    fn slots(&self) -> Option<&Arc<SlotStore>> {
        self.launcher.slots.as_ref().filter(|_| !saves_slots_itself(self.spec))
    }
}

async fn requested(stop: &mut watch::Receiver<Option<Urgency>>) -> Urgency {
    match stop.wait_for(Option::is_some).await {
        Ok(urgency) => urgency.unwrap_or(Urgency::Graceful),
        // The owner of the queue is gone: so is the need for this engine.
        Err(_) => Urgency::Graceful,
    }
}

fn not_ready(reason: NotReady, address: &Address, log: &LogRing) -> LaunchError {
    let log = log.tail(QUOTED);
    match reason {
        NotReady::Stalled(after) => LaunchError::Stalled { after, log },
        NotReady::OverLimit(after) => LaunchError::OverLimit { after, log },
        NotReady::Impostor => LaunchError::Impostor { address: address.to_string() },
    }
}
