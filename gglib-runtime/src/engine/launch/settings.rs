//! What is the same for every launch.

use std::path::PathBuf;
use std::time::Duration;

use gglib_core::config::{self, Transport};

use crate::engine::process::GuardCommand;

/// What every launch needs to know.
#[derive(Clone, Debug)]
pub struct LaunchSettings {
    /// The `llama-server` to run.
    pub binary: PathBuf,
    /// How to start the guard.
    pub guard: GuardCommand,
    /// How engines are reached.
    pub transport: Transport,
    /// Longest silence of a load.
    pub load_stall: Duration,
    /// Longest load.
    pub load_limit: Duration,
    /// From SIGTERM to SIGKILL.
    pub stop_grace: Duration,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// An engine that takes so many bytes more than when it was ready is to be launched anew.
    pub growth: u64,
}

impl LaunchSettings {
    /// The settings of a configuration, for the `binary` that discovery found.
    pub fn new(config: &config::Config, binary: PathBuf, guard: GuardCommand) -> Self {
        let engine = &config.engine;
        Self {
            binary,
            guard,
            transport: engine.transport,
            load_stall: engine.load_stall,
            load_limit: engine.load_limit,
            stop_grace: engine.stop_grace,
            connect_timeout: config.timeouts.connect,
            growth: config.memory.growth,
        }
    }
}
