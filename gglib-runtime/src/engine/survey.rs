//! A look at a model's file, before anything is stopped for it.

use std::io;
use std::path::Path;
use std::time::Duration;

use gglib_core::config::MODEL_LOOK;
use gglib_core::model::{ModelName, ModelSpec};
use tokio::io::AsyncReadExt;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::devices::Devices;
use super::launch::{LaunchError, Launcher};
use crate::memory::Expected;

/// A disk may have to spin up, a network may be gone; after the longest look nothing is known against the file, and its
/// load will tell.
const LOOK: Duration = MODEL_LOOK;
/// The first bytes of a model file (the GGUF specification's magic number).
const MAGIC: &[u8] = b"GGUF";

/// What a look came to.
#[derive(Debug)]
pub(crate) enum Survey {
    /// What an engine of it will take.
    Takes(Expected),
    /// It cannot be loaded.
    Unloadable(LaunchError),
    /// It may be loaded; what that takes will be measured.
    Unknown,
}

impl Launcher {
    /// Looks at the file of `spec`. What is wrong with it is logged.
    pub(crate) async fn survey(&self, name: &ModelName, spec: &ModelSpec) -> Survey {
        let devices = async {
            if spec.context.is_some() {
                self.devices.get_or_init(|| Devices::ask(&self.settings.binary)).await;
            }
        };
        let (survey, ()) = tokio::join!(timeout(LOOK, self.look(name, spec)), devices);
        let Ok(survey) = survey else {
            let (path, after_s) = (spec.path.display(), LOOK.as_secs());
            tracing::warn!(%name, %path, after_s, "the disk does not answer; is it mounted?");
            return Survey::Unknown;
        };
        survey
    }

    async fn look(&self, name: &ModelName, spec: &ModelSpec) -> Survey {
        if let Err(error) = check_model_file(&spec.path).await {
            tracing::warn!(%name, %error, "this model cannot be loaded; check its `path`");
            return Survey::Unloadable(error);
        }
        let Some(accounts) = self.accounts.clone() else { return Survey::Unknown };
        let (spec, binary) = (spec.clone(), self.settings.binary.clone());
        match spawn_blocking(move || accounts.expected(&spec, &binary)).await {
            Ok(Ok(expected)) => Survey::Takes(expected),
            Ok(Err(error)) => {
                tracing::warn!(%name, %error, "what this model takes is not known before it is loaded");
                Survey::Unknown
            }
            Err(_) => Survey::Unknown,
        }
    }
}

/// Whether the file is there and looks like a model.
pub(super) async fn check_model_file(path: &Path) -> Result<(), LaunchError> {
    let failed = |error| LaunchError::ModelFile { path: path.to_owned(), error };
    // Opening a pipe that nobody writes to would wait for ever.
    if !tokio::fs::metadata(path).await.map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut magic = [0; MAGIC.len()];
    match file.read_exact(&mut magic).await {
        Ok(_) if magic == MAGIC => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(failed(error)),
        _ => Err(LaunchError::NotGguf { path: path.to_owned() }),
    }
}
