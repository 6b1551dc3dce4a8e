//! `gglib completions`.

use clap_complete::Shell;

use crate::exit::Exit;
use crate::ui;

pub(super) fn run(shell: Shell) -> Exit {
    // Not straight to standard output: clap panics when that is closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::command(), "gglib", &mut script);
    ui::part(&String::from_utf8_lossy(&script));
    Exit::Success
}
