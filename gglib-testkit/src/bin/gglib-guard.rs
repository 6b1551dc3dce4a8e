//! The guard on its own, for tests of crates that are not the `gglib` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gglib_runtime::engine::guard::main(std::env::args_os().skip(1))
}
