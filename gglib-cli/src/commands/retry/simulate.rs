//! `gglib retry simulate`: the simulations, as tables.

use super::args::Simulate;

mod contention;

pub(super) fn show(args: &Simulate) -> String {
    match args {
        Simulate::Contention(args) => contention::show(args),
    }
}
