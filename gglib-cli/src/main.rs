//! The `gglib` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gglib_cli::main(std::env::args_os())
}
