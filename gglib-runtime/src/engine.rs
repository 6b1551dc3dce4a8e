//! Engines: `llama-server` processes that we launch, watch and stop.
//!
//! A [`Launcher`] is the only thing that starts one. Each engine belongs to one task, which owns its
//! process from the first line of the log to the last; the process itself hangs on a [`guard`], so that it
//! cannot outlive us.

pub use address::Address;
pub use discover::{DiscoverError, LLAMA_SERVER_ENV_VAR, discover};
pub use handle::Engine;
pub use launch::{LaunchError, LaunchSettings, Launcher};
pub use process::{Exit, GuardCommand};
pub use register::Register;

pub(crate) use launch::EngineEvent;
pub(crate) use survey::Survey;

mod address;
mod command;
mod devices;
mod discover;
mod growth;
pub mod guard;
mod handle;
mod launch;
mod log;
mod process;
mod readiness;
mod register;
mod survey;
mod upstream;
