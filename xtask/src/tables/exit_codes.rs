//! The page on exit codes.

use gglib_cli::Exit;

use super::markdown::{self, Page};

const INTRO: &str = "\
What `gglib` ends with. The numbers are stable. Answers and data go to standard output, everything else to standard
error.";

/// Renders every exit code of the `gglib` command.
pub fn render() -> String {
    let mut page = Page::new("Exit codes", "gglib-cli/src/exit.rs");
    page.add(INTRO);
    let rows = Exit::ALL.iter().map(|exit| [exit.code().to_string(), exit.meaning().to_owned()]);
    page.add(markdown::table(["code", "meaning"], rows));
    page.finish()
}
