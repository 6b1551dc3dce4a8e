//! The endpoint put together: engines, queue and proxy.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gglib_core::admission::Settings as AdmissionSettings;
use gglib_core::config::{Budget, Config, Slots};
use gglib_core::memory::{Memory, MemoryProbe};
use gglib_proxy::{App, Settings};
use gglib_runtime::admission::Pool;
use gglib_runtime::engine::{GuardCommand, LaunchSettings, Launcher, Register, guard};
use gglib_runtime::install::DataDir;
use gglib_runtime::memory::{Accounts, FootprintFile, SystemProbe};
use gglib_runtime::slots::SlotStore;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::CliError;

/// After the engines have ended, how long connections may take to hear of it.
const CONNECTIONS: Duration = Duration::from_secs(2);
/// Below the data directory, the register of the engines that run. (`engines` is where they are installed.)
const RUNNING: &str = "running";

/// A running endpoint.
pub(crate) struct Endpoint {
    address: SocketAddr,
    pool: Arc<Pool>,
    app: App,
    /// What it was started with.
    started: Config,
    /// What engines may take of the machine's memory if the configuration does not say.
    whole: Memory,
    drain: Duration,
    stop: oneshot::Sender<()>,
    server: JoinHandle<io::Result<()>>,
}

impl Endpoint {
    /// Listens and serves, with engines run from `binary`.
    pub(crate) async fn start(config: &Config, binary: PathBuf) -> Result<Self, CliError> {
        let data = DataDir::locate().map(|data| data.as_ref().to_owned()).map_err(|error| error.to_string());
        Self::start_with(data, config, binary).await
    }

    /// The same, with what it remembers in the directory `data`.
    pub(crate) async fn start_in(data: &Path, config: &Config, binary: PathBuf) -> Result<Self, CliError> {
        Self::start_with(Ok(data.to_owned()), config, binary).await
    }

    async fn start_with(
        data: Result<PathBuf, String>,
        config: &Config,
        binary: PathBuf,
    ) -> Result<Self, CliError> {
        gglib_proxy::raise_file_limit();
        let address = config.server.listen;
        let listener = TcpListener::bind(address).await.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => CliError::AddressTaken(address),
            _ => CliError::Listen { address, source },
        })?;
        let address = listener.local_addr().map_err(|source| CliError::Listen { address, source })?;

        let guard = GuardCommand {
            program: std::env::current_exe().map_err(CliError::Launcher)?,
            args: vec![guard::SUBCOMMAND.into()],
        };
        let slots = {
            let (config, data) = (config.slots.clone(), data.clone());
            tokio::task::spawn_blocking(move || slots(&config, data)).await.ok().flatten()
        };
        let mut launcher =
            Launcher::new(LaunchSettings::new(config, binary, guard)).map_err(CliError::Launcher)?;
        if let Some(slots) = &slots {
            launcher = launcher.with_slots(Arc::clone(slots));
        }
        let register = {
            let data = data.clone();
            tokio::task::spawn_blocking(|| swept_register(data)).await.ok().flatten()
        };
        if let Some(register) = register {
            launcher = launcher.with_register(register);
        }
        let memory = tokio::task::spawn_blocking(|| open_accounts(data)).await.ok().flatten();
        let whole = memory.as_ref().map_or(Memory::UNBOUNDED, |(_, budget)| *budget);
        if let Some((accounts, _)) = memory {
            launcher = launcher.with_accounts(accounts);
        }
        let pool = Arc::new(Pool::start(launcher, config.catalog(), admission(config, whole)));
        let mut app = App::new(pool.clone(), config.catalog(), Settings::new(config));
        if let Some(slots) = slots {
            app = app.with_slots(slots);
        }
        pool.publish_breakers(app.retry_observer());
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(gglib_proxy::serve(listener, app.clone(), async {
            // A dropped sender stops the server too.
            let _ = stopped.await;
        }));
        let (started, drain) = (config.clone(), config.engine.drain);
        Ok(Self { address, pool, app, started, whole, drain, stop, server })
    }

    /// What clients are given as base URL.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Resolves when the server has failed by itself.
    pub(crate) async fn failed(&mut self) -> CliError {
        match (&mut self.server).await {
            Ok(Err(error)) => CliError::Serve(error),
            Ok(Ok(())) => CliError::Serve(io::Error::other("the server ended")),
            Err(error) => CliError::Serve(io::Error::other(error)),
        }
    }

    /// Takes over `config` by what is different; the keys that take effect only after a restart.
    pub(crate) async fn configure(&mut self, config: &Config) -> Vec<&'static str> {
        let after_restart = self.started.after_restart(config);
        self.drain = config.engine.drain;
        // The queue first: the routes never offer a model that it does not know.
        self.pool.configure(config.catalog(), admission(config, self.whole)).await;
        self.app.configure(config.catalog(), Settings::new(config), after_restart.clone());
        after_restart
    }

    /// Lets `/status` say that a change of the configuration could not be taken over.
    pub(crate) fn configuration_failed(&self, error: &CliError) {
        self.app.configuration_failed(error.to_string());
    }

    /// Refuses what is new and what waits, lets what is running finish within the configured bound, stops every
    /// engine. The endpoint listens meanwhile, since a refusal says more than a port that is closed.
    pub(crate) async fn shut_down(self) {
        self.app.drain();
        self.pool.shut_down(self.drain).await;
        let _ = self.stop.send(());
        let mut server = self.server;
        if timeout(CONNECTIONS, &mut server).await.is_err() {
            server.abort();
        }
    }
}

fn admission(config: &Config, whole: Memory) -> AdmissionSettings {
    AdmissionSettings {
        stall: config.admission.stall,
        max_wait: config.admission.max_wait,
        queue: config.admission.queue,
        quantum: config.admission.quantum,
        max_resident: config.memory.max_resident,
        budget: match config.memory.budget {
            Budget::Auto => whole,
            Budget::Bytes(ram) => Memory { ram, ..whole },
        },
        ..AdmissionSettings::default()
    }
}

/// The register of engines, after what an earlier gglib has left in it is dealt with. Without it an engine is left behind
/// if both gglib and its guard are killed. Blocks.
fn swept_register(data: Result<PathBuf, String>) -> Option<Register> {
    let warn = |error: &String| tracing::warn!(error, "engines that are left behind are not found");
    let opened = data.and_then(|data| Register::open(&data.join(RUNNING)).map_err(|error| error.to_string()));
    let register = opened.inspect_err(warn).ok()?;
    // Whatever is not swept, the engines to come are entered.
    let _ = register.sweep().map_err(|error| error.to_string()).inspect_err(warn);
    Some(register)
}

/// Where engines save their slots. Without it a swap costs the conversation, but serves. Blocks.
fn slots(config: &Slots, data: Result<PathBuf, String>) -> Option<Arc<SlotStore>> {
    if !config.enabled {
        return None;
    }
    let opened = data.and_then(|data| {
        SlotStore::open(&data.join("slots"), config.disk_budget).map_err(|error| error.to_string())
    });
    opened
        .map(Arc::new)
        .inspect_err(|error| tracing::warn!(error, "conversations will be read again after each swap"))
        .ok()
}

/// The books of this machine's memory, and what engines may take of it if the configuration does not say. Without them
/// only `memory.max_resident` bounds what is resident. Blocks.
fn open_accounts(data: Result<PathBuf, String>) -> Option<(Accounts, Memory)> {
    let opened = SystemProbe::new()
        .map_err(|error| error.to_string())
        .and_then(|probe| Ok((probe, FootprintFile::open(&data?.join("footprints.jsonl")))));
    let (probe, record) = opened
        .inspect_err(|error| tracing::warn!(error, "the memory of engines is not accounted for"))
        .ok()?;
    let budget = probe.machine().auto_budget();
    Some((Accounts::new(Arc::new(probe), record), budget))
}
