//! Downloads, with consent and a progress bar.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use gglib_core::config::Config;
use gglib_runtime::engine::{DiscoverError, discover};
use gglib_runtime::install::{Artifact, DataDir, ENGINE, SMOLLM2, find, install};

use crate::error::CliError;
use crate::ui;

/// Whether downloads are agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    /// By a flag.
    Given,
    /// To be asked for, where somebody can answer.
    Ask,
}

/// The `llama-server` that the configuration leads to, as long as one is there.
pub(crate) fn engine(config: &Config) -> Result<PathBuf, DiscoverError> {
    let managed = DataDir::locate().ok().and_then(|data| find(&ENGINE, data.as_ref()));
    let env = |name: &str| std::env::var_os(name);
    discover(config.engine.binary.as_deref(), &env, managed.as_ref().map(|engine| engine.path.as_path()))
}

/// The same, installed if there is none.
pub(crate) async fn engine_or_install(config: &Config, consent: Consent) -> Result<PathBuf, CliError> {
    match engine(config) {
        Err(DiscoverError::Missing) => {
            obtain(&ENGINE, "the engine", "put a llama-server on PATH", consent).await
        }
        found => Ok(found?),
    }
}

/// The starter model's file, installed if it is not there.
pub(crate) async fn starter_model(consent: Consent) -> Result<PathBuf, CliError> {
    obtain(&SMOLLM2, "the starter model", "name a GGUF file of your own with --model", consent).await
}

async fn obtain(
    artifact: &'static Artifact,
    what: &'static str,
    instead: &'static str,
    consent: Consent,
) -> Result<PathBuf, CliError> {
    let data = DataDir::locate()?;
    if let Some(installed) = find(artifact, data.as_ref()) {
        return Ok(installed.path);
    }
    let bytes: u64 = artifact.wheels.iter().map(|wheel| wheel.size).sum();
    agree(what, instead, bytes, consent, data.as_ref()).await?;
    let progress = ui::Download::new(what);
    let outcome = tokio::task::spawn_blocking(move || install(artifact, data.as_ref(), &progress)).await;
    match outcome {
        Ok(installed) => Ok(installed?.path),
        Err(panic) => Err(CliError::Runtime(std::io::Error::other(panic))),
    }
}

async fn agree(
    what: &'static str,
    instead: &'static str,
    bytes: u64,
    consent: Consent,
    data: &Path,
) -> Result<(), CliError> {
    let size = ui::megabytes(bytes);
    if consent == Consent::Given {
        return Ok(());
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(CliError::Consent { what, size, instead });
    }
    if ui::ask(&format!("Download {what} ({size}) into {}?", data.display())).await {
        Ok(())
    } else {
        Err(CliError::Declined(what))
    }
}
