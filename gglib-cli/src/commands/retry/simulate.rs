//! `gglib retry simulate`: the simulations, as tables and pictures.

use super::args::Simulate;
use crate::error::CliError;

mod contention;
mod layers;
mod overload;
mod startup;

pub(super) fn show(args: &Simulate) -> Result<String, CliError> {
    match args {
        Simulate::Contention(args) => contention::show(args),
        Simulate::Layers(args) => layers::show(args),
        Simulate::Overload(args) => overload::show(args),
        Simulate::Startup(args) => startup::show(args),
    }
}
