//! `cargo xtask bench`: figures to look at, never to assert on.
//!
//! Everything that is compared is measured in one run, in turns, so that a busy machine hurts both sides; what
//! is printed are medians over the rounds, and ratios.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

pub mod admission;
pub mod proxy;
pub mod repair;
pub mod retry;
pub mod slots;
pub mod startup;
pub mod swap;

mod load;
pub mod upstream;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    /// The endpoint against a direct connection.
    Proxy,
    /// One retry decision, beside other crates.
    Retry,
    /// The simulation of a start-up.
    Startup,
    /// The next turn of a conversation after a swap.
    Slots,
    /// The queue: its machine alone, and the pool around it.
    Admission,
    /// Tool calls of a real model, without repair and with it.
    Repair {
        /// Turns of each cell.
        turns: u32,
        /// Whose, if not everybody's.
        calls: Option<repair::Calls>,
    },
    /// Swaps of two real models, beside the engine's own router mode.
    Swap {
        /// How often each is measured.
        rounds: usize,
    },
}

impl Bench {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Retry => "retry",
            Self::Startup => "startup",
            Self::Slots => "slots",
            Self::Admission => "admission",
            Self::Repair { .. } => "repair",
            Self::Swap { .. } => "swap",
        }
    }
}

/// Runs `bench` in a release build: this process if it is one, else a new one.
///
/// # Errors
/// When something does not build or run.
pub fn run(root: &Path, bench: Bench) -> Result<bool> {
    if cfg!(debug_assertions) {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = ["build", "--quiet", "--release", "--package", "gglib-cli", "--package", "xtask"];
        // With its relay.
        let testkit =
            ["--package", "gglib-testkit"].into_iter().filter(|_| matches!(bench, Bench::Repair { .. }));
        if !Command::new(&cargo).args(build).args(testkit).current_dir(root).status()?.success() {
            bail!("the release build failed");
        }
        let run = ["run", "--quiet", "--release", "--package", "xtask", "--", "bench", bench.name()];
        let mut command = Command::new(&cargo);
        command.args(run).current_dir(root);
        match bench {
            Bench::Swap { rounds } => command.args(["--rounds", &rounds.to_string()]),
            Bench::Repair { turns, calls } => command
                .args(["--turns", &turns.to_string()])
                .args(calls.into_iter().flat_map(|calls| ["--calls".to_owned(), calls.name()])),
            _ => &mut command,
        };
        return Ok(command.status()?.success());
    }
    match bench {
        Bench::Proxy => proxy::run(&std::env::current_exe()?)?,
        Bench::Retry => retry::run(),
        Bench::Startup => startup::run(),
        Bench::Slots => slots::run(&std::env::current_exe()?)?,
        Bench::Admission => admission::run(&std::env::current_exe()?)?,
        Bench::Repair { turns, calls } => repair::run(root, &std::env::current_exe()?, turns, calls)?,
        Bench::Swap { rounds } => swap::run(&std::env::current_exe()?, rounds)?,
    }
    Ok(true)
}
