//! The `gglib` command as a library: the only place where core, runtime and proxy are put together, and the
//! source of the reference pages on flags and exit codes.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use gglib_runtime::engine::guard;

pub use args::Args;
pub use exit::Exit;

use args::Command;
use error::CliError;

mod args;
mod choice;
mod client;
mod commands;
mod config_file;
pub mod drill;
mod endpoint;
mod error;
mod exit;
mod install;
mod notice;
pub mod plot;
mod reload;
mod screen;
mod settings;
mod shutdown;
pub mod simulate;
mod ui;
mod view;

/// The command line as clap knows it, for the reference page and completions.
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs the command line `args`, the program's name included.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    // Not one of clap's commands: it must start fast, take anything, and never be listed.
    if args.get(1).is_some_and(|first| first == guard::SUBCOMMAND) {
        return guard::main(args.into_iter().skip(2));
    }
    let parsed =
        match command().try_get_matches_from(args).and_then(|matches| Args::from_arg_matches(&matches)) {
            Ok(parsed) => parsed,
            Err(error) => {
                let _ = error.print();
                return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
            }
        };
    match run(parsed) {
        Ok(exit) => exit.into(),
        Err(error) => {
            ui::failure(&error);
            error.exit().into()
        }
    }
}

fn run(args: Args) -> Result<Exit, CliError> {
    let Some(command) = args.command else {
        ui::overview();
        return Ok(Exit::Success);
    };
    ui::start_log(log_level(&command));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(CliError::Runtime)?;
    let outcome = runtime.block_on(commands::run(command, &args.common));
    // A task that still blocks, such as a read of the terminal, must not hold the exit up.
    runtime.shutdown_background();
    outcome
}

/// What a command logs by default: what goes wrong, what it warns of if it serves, and for a server what happens.
const fn log_level(command: &Command) -> &'static str {
    match command {
        Command::Serve(_) => "info",
        Command::Up(_) => "warn",
        _ => "error",
    }
}
