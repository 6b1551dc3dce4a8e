//! `gglib admission`: how models share a machine, shown without one.

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::simulation::{Output, Picture, Random};
use crate::error::CliError;
use crate::exit::Exit;
use crate::simulate::admission::Workload;
use crate::ui;

mod simulate;

#[derive(Debug, Subcommand)]
pub(crate) enum Admission {
    /// Simulate clients of several models, under gglib's rule and those of others, on a virtual clock
    Simulate(Simulate),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Simulate {
    /// Who asks what
    #[arg(long, value_name = "NAME", default_value = ALL, value_parser = workload_parser())]
    workload: Shown,
    #[command(flatten)]
    random: Random,
    #[command(flatten)]
    picture: Picture,
    #[command(flatten)]
    output: Output,
}

/// The name of all workloads together.
const ALL: &str = "all";

/// The workloads that are shown, one after the other.
#[derive(Clone, Debug)]
struct Shown(Vec<Workload>);

pub(crate) fn run(args: &Admission) -> Result<Exit, CliError> {
    let Admission::Simulate(args) = args;
    ui::part(&simulate::show(args)?);
    Ok(Exit::Success)
}

fn workload_parser() -> impl TypedValueParser<Value = Shown> {
    let names = Workload::ALL.map(Workload::as_str).into_iter().chain([ALL]);
    PossibleValuesParser::new(names).map(|name| {
        let chosen = |workload: &Workload| name == ALL || workload.as_str() == name;
        Shown(Workload::ALL.into_iter().filter(chosen).collect())
    })
}
