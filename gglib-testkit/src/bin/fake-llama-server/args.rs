//! The command line of `llama-server`, as far as the fake cares.

use std::{env, path::PathBuf, time::Duration};

use gglib_testkit::{SCRIPT_ENV_VAR, SCRIPT_FLAG};

/// The values that matter here; everything else is accepted and ignored.
#[derive(Debug, Clone)]
pub(crate) struct Args {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) model: String,
    /// Slots: how many requests are answered at once.
    pub(crate) parallel: usize,
    /// Tokens.
    pub(crate) context: usize,
    pub(crate) ping_every: Duration,
    /// The API key, which the real engine also takes from the environment.
    pub(crate) key: Option<String>,
    pub(crate) script: Option<PathBuf>,
    pub(crate) slot_save_path: Option<PathBuf>,
    /// It makes embeddings.
    pub(crate) embeddings: bool,
    /// All of them, for the log.
    pub(crate) all: Vec<String>,
}

impl Args {
    pub(crate) fn parse(all: Vec<String>) -> Self {
        let value = |names: &[&str]| {
            let position = all.iter().rposition(|arg| names.contains(&arg.as_str()))?;
            all.get(position + 1).cloned()
        };
        let number = |names: &[&str]| value(names).and_then(|text| text.parse::<u64>().ok());
        let count = |names: &[&str]| number(names).and_then(|number| usize::try_from(number).ok());
        let model = value(&["-m", "--model"]).unwrap_or_default();
        Self {
            host: value(&["--host"]).unwrap_or_else(|| "127.0.0.1".to_owned()),
            port: number(&["--port"]).and_then(|port| u16::try_from(port).ok()).unwrap_or(8080),
            model: value(&["-a", "--alias"]).unwrap_or(model),
            parallel: count(&["-np", "--parallel"]).unwrap_or(4),
            context: count(&["-c", "--ctx-size"]).filter(|context| *context > 0).unwrap_or(4096),
            ping_every: Duration::from_secs(number(&["--sse-ping-interval"]).unwrap_or(30)),
            key: env::var("LLAMA_API_KEY").ok().filter(|key| !key.is_empty()),
            script: value(&[SCRIPT_FLAG])
                .map(PathBuf::from)
                .or_else(|| env::var_os(SCRIPT_ENV_VAR).map(PathBuf::from)),
            slot_save_path: value(&["--slot-save-path"]).map(PathBuf::from),
            embeddings: all.iter().any(|arg| arg == "--embeddings"),
            all,
        }
    }
}
