//! A pool of engines, fake or real, as a test needs it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gglib_core::admission::{EngineSnapshot, Settings, Snapshot};
use gglib_core::config::Transport;
use gglib_core::model::{Catalog, ModelName, ModelSpec};
use gglib_core::ports::Residency;
use gglib_runtime::admission::Pool;
use gglib_runtime::engine::{GuardCommand, LaunchSettings, Launcher};

use crate::{Scripted, bins, fake_engine, real};

/// What a test's pool is made of. Engines run under the real guard.
#[derive(Debug)]
pub struct Engines {
    models: BTreeMap<ModelName, ModelSpec>,
    /// Bounds and transport of launches; change them before [`start`](Self::start).
    pub launch: LaunchSettings,
    /// Bounds of waiting; change them before [`start`](Self::start).
    pub admission: Settings,
    /// Model files of fakes: they only have to look like some.
    files: tempfile::TempDir,
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
        };
        let admission =
            Settings { stall: Duration::from_secs(60), max_wait: Duration::from_secs(120), queue: 256 };
        let files = tempfile::tempdir().expect("a temporary directory can be made");
        Self { models: BTreeMap::new(), launch, admission, files }
    }

    /// Adds a model whose engine follows `script`.
    #[must_use]
    pub fn scripted(self, name: &str, script: &Scripted) -> Self {
        let path = self.files.path().join(format!("{name}.gguf"));
        let mut file = std::fs::File::create(&path).expect("a temporary file can be made");
        file.write_all(b"GGUF").expect("a temporary file can be written");
        self.model(name, &path, 1, script.args())
    }

    /// Adds a model.
    #[must_use]
    pub fn model(mut self, name: &str, path: &Path, parallel: u32, args: Vec<String>) -> Self {
        let spec =
            ModelSpec { path: path.to_owned(), aliases: Vec::new(), context: Some(2048), parallel, args };
        self.models.insert(ModelName::new(name), spec);
        self
    }

    /// Gives a model that is there another name.
    #[must_use]
    pub fn with_alias(mut self, name: &str, alias: &str) -> Self {
        self.models.get_mut(name).expect("the model is there").aliases.push(alias.to_owned());
        self
    }

    /// The models, for the proxy.
    pub fn catalog(&self) -> Catalog {
        Catalog::new(self.models.clone())
    }

    /// Starts the pool. Its engines end when the test's runtime does.
    pub fn start(&self) -> Arc<Pool> {
        let launcher = Launcher::new(self.launch.clone()).expect("a directory for sockets can be made");
        Arc::new(Pool::start(launcher, self.catalog(), self.admission))
    }
}

/// The pool's state.
pub async fn snapshot(pool: &dyn Residency) -> Snapshot {
    pool.snapshot().await.expect("the owner of the queue answers")
}

/// The only engine that there is, once there is one with a process.
pub async fn only_engine(pool: &dyn Residency) -> EngineSnapshot {
    let mut engines = snapshot(pool).await.engines;
    assert_eq!(engines.len(), 1, "{engines:?}");
    engines.remove(0)
}

/// Whether a process of this number exists, zombies excepted.
pub fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses and may hold anything.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
