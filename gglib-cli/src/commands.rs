//! The commands, one a file.

use crate::args::{Command, Common};
use crate::error::CliError;
use crate::exit::Exit;

pub(crate) mod admission;
mod chat;
mod completions;
mod config;
mod drill;
mod model;
mod question;
pub(crate) mod retry;
mod serve;
mod simulation;
mod status;
mod top;
mod up;

pub(crate) async fn run(command: Command, common: &Common) -> Result<Exit, CliError> {
    match command {
        Command::Up(args) => up::run(&args, common).await,
        Command::Serve(args) => serve::run(&args, common).await,
        Command::Chat(args) => chat::run(args, common).await,
        Command::Q(args) => question::run(args, common).await,
        Command::Model(args) => model::run(&args, common),
        Command::Status(args) => status::run(&args, common).await,
        Command::Top(args) => top::run(&args, common).await,
        Command::Admission(args) => admission::run(&args),
        Command::Retry(args) => retry::run(&args),
        Command::Drill(args) => drill::run(&args, common).await,
        Command::Config(args) => config::run(&args, common),
        Command::Completions { shell } => Ok(completions::run(shell)),
    }
}
