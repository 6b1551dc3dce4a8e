//! `gglib completions`.

use clap_complete::Shell;

use crate::exit::Exit;

pub(super) fn run(shell: Shell) -> Exit {
    clap_complete::generate(shell, &mut crate::command(), "gglib", &mut std::io::stdout());
    Exit::Success
}
