//! The flags that simulations share.

use std::fs;
use std::path::PathBuf;

use crate::error::CliError;
use crate::plot::Plot;

/// How what comes out is written.
#[derive(Debug, clap::Args)]
pub(crate) struct Output {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where chance comes from.
#[derive(Debug, clap::Args)]
pub(crate) struct Random {
    /// Where the random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Whether there is a picture.
#[derive(Debug, clap::Args)]
pub(crate) struct Picture {
    /// Write a picture of it over time as well, as SVG
    #[arg(long, value_name = "FILE.svg", value_parser = svg)]
    plot: Option<PathBuf>,
}

impl Picture {
    /// Writes the plot, if one is wanted.
    pub(crate) fn write(&self, plot: impl FnOnce() -> Plot) -> Result<(), CliError> {
        let Some(path) = &self.plot else { return Ok(()) };
        fs::write(path, plot().to_string())
            .map_err(|source| CliError::WritePlot { path: path.clone(), source })
    }
}

fn svg(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if is_svg {
        return Ok(path);
    }
    Err("a plot is an SVG, and its file ends in .svg; for a PNG, convert that, say with `rsvg-convert`"
        .to_owned())
}
