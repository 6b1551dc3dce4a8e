//! `gglib retry`: what a retry policy does, shown without a server.

use crate::error::CliError;
use crate::exit::Exit;
use crate::ui;

pub(crate) use args::Retry;

mod args;
mod explain;
mod replay;
mod simulate;
mod table;
mod text;

pub(crate) fn run(args: &Retry) -> Result<Exit, CliError> {
    ui::part(&match args {
        Retry::Table(args) => table::show(args),
        Retry::Explain(args) => explain::show(args),
        Retry::Replay(args) => replay::show(args),
        Retry::Simulate(args) => simulate::show(args)?,
    });
    Ok(Exit::Success)
}
