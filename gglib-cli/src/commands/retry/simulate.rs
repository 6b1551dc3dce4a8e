//! `gglib retry simulate`: the simulations, as tables and pictures.

use std::fs;

use super::args::{Picture, Simulate};
use crate::error::CliError;
use crate::plot::Plot;

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

impl Picture {
    /// Writes the plot, if one is wanted.
    fn write(&self, plot: impl FnOnce() -> Plot) -> Result<(), CliError> {
        let Some(path) = &self.plot else { return Ok(()) };
        fs::write(path, plot().to_string())
            .map_err(|source| CliError::WritePlot { path: path.clone(), source })
    }
}
