//! Why an engine did not come up.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::engine::process::Exit;

/// Why an engine did not come up. The text is for the client, so it says what to do where that is known.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The model's file is missing or unreadable.
    #[error("cannot read the model file {}: {error}", path.display())]
    ModelFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The model's file is something else.
    #[error("{} is not a GGUF model file (it does not begin with \"GGUF\")", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
    },
    /// The process or its address could not be made.
    #[error("{0}")]
    Start(io::Error),
    /// The process ended before it was ready.
    #[error("llama-server {exit} while loading{}", quote(log))]
    Ended {
        /// How.
        exit: Exit,
        /// Whether it did so for lack of memory ([`died_of_memory`](gglib_core::memory::died_of_memory), by all of the log that is kept).
        is_of_memory: bool,
        /// Its last lines.
        log: Vec<String>,
    },
    /// Neither a log line nor a change of health for too long.
    #[error("llama-server made no progress for {} s while loading{}", after.as_secs(), quote(log))]
    Stalled {
        /// The configured bound.
        after: Duration,
        /// Its last lines.
        log: Vec<String>,
    },
    /// Not ready within the hard limit.
    #[error("llama-server was not ready after {} s{}", after.as_secs(), quote(log))]
    OverLimit {
        /// The configured bound.
        after: Duration,
        /// Its last lines.
        log: Vec<String>,
    },
    /// Another process answers at the engine's port.
    #[error("another process listens at {address}; the engine was not used")]
    Impostor {
        /// The port.
        address: String,
    },
    /// The load was given up before it ended.
    #[error("the load was cancelled")]
    Cancelled,
}

fn quote(log: &[String]) -> String {
    if log.is_empty() { String::new() } else { format!("; its last lines:\n{}", log.join("\n")) }
}
