//! Reading the configuration: which file, which environment, which flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use gglib_core::config::{self, Config, Sources};

use crate::args::Common;
use crate::error::CliError;
use crate::ui;

/// Keys given as flags.
pub(crate) type Flags<'a> = &'a [(&'static str, String)];

/// The configuration file that the command line means, whether it exists or not.
pub(crate) fn path(common: &Common) -> Result<PathBuf, CliError> {
    if let Some(path) = &common.config {
        return Ok(std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    }
    let base = etcetera::choose_base_strategy().map_err(|_| CliError::NoHome)?;
    Ok(base.config_dir().join("gglib").join("gglib.toml"))
}

/// The configuration; a file that does not exist is an empty one, unless it was named.
pub(crate) fn load(common: &Common, flags: Flags<'_>) -> Result<Config, CliError> {
    let path = path(common)?;
    let text = read(&path)?;
    if text.is_none() && common.config.is_some() {
        return Err(CliError::NoConfig(path));
    }
    load_from(&path, text.as_deref(), flags)
}

/// The configuration that `text` would be at `path`.
pub(crate) fn load_from(path: &Path, text: Option<&str>, flags: Flags<'_>) -> Result<Config, CliError> {
    let env = |name: &str| std::env::var(name).ok();
    let config = config::load(&Sources { file: text.map(|text| (path, text)), env: &env, flags })?;
    for warning in &config.warnings {
        ui::warning(&warning.to_string());
    }
    Ok(config)
}

/// Where an endpoint listens that is started from the file at `path` without flags; `None` if the file has a mistake.
pub(crate) fn listens_at(path: &Path) -> Option<SocketAddr> {
    let text = read(path).ok()?;
    let env = |name: &str| std::env::var(name).ok();
    let sources = Sources { file: text.as_deref().map(|text| (path, text)), env: &env, flags: &[] };
    config::load(&sources).ok().map(|config| config.server.listen)
}

/// Warns of what is doubtful in the sections on retries, and of pinned models that keep others out. Only the commands
/// that are about the configuration do so: the others would say it again each time.
pub(crate) fn warn_of_lints(config: &Config) {
    for lint in config.retry_lints() {
        ui::warning(&lint.to_string());
    }
    for lint in config.pin_lints() {
        ui::warning(&lint.to_string());
    }
}

/// The file's text; `None` when there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, CliError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CliError::ReadConfig { path: path.to_owned(), source }),
    }
}
