//! The page on retry sites: the registry as a table.

use std::path::Path;

use anyhow::{Result, bail};

use super::markdown::{self, Page, code};
use crate::registry::{self, FILE, Row};

const INTRO: &str = "\
Every place in gglib's code that repeats or re-issues work. `cargo xtask audit retry` reads the code and
fails when one is missing here, or when a row no longer says the truth.";

const SHAPES: &str = "\
- **backoff**: the same work again after a delay that the [retry policy](retry-policy.md) decides.
- **one-shot**: changed work issued exactly once; never in a loop. A *decision* is one of a state machine, whose driver
  does the work.
- **control**: waiting that is neither, such as polling, ticking, debouncing or a fixed second try.";

/// Renders the registry of the workspace at `root`.
pub fn render(root: &Path) -> Result<String> {
    let registry = registry::read(root)?;
    if let Some(finding) = registry.findings.first() {
        bail!("{FILE} has rows that cannot be rendered\n{finding}");
    }
    Ok(page(&registry.rows))
}

fn page(rows: &[Row]) -> String {
    let mut page = Page::new("Retry sites", FILE);
    page.add(INTRO);
    page.add(SHAPES);
    if rows.is_empty() {
        page.add("No site is registered.");
        return page.finish();
    }
    let rows = rows.iter().map(|row| {
        let decide = if row.uses_decide { "yes" } else { "no" };
        let shape = if row.decision { format!("{} (decision)", row.shape) } else { row.shape.to_string() };
        [code(&row.path), code(&row.item), shape, decide.to_owned(), row.why.clone()]
    });
    page.add(markdown::table(["file", "function", "shape", "uses `decide`", "why"], rows));
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Shape;

    #[test]
    fn no_rows_are_said_to_be_none() {
        let page = page(&[]);
        assert!(page.ends_with("\n\nNo site is registered.\n") && !page.contains("|---"));
    }

    #[test]
    fn a_row_is_one_line_of_the_table() {
        let row = Row {
            path: "a/src/b.rs".into(),
            item: "T::f".into(),
            shape: Shape::OneShot,
            uses_decide: false,
            decision: false,
            why: "first\n  this | that".into(),
            line: 1,
        };
        let page = page(&[row]);
        assert!(page.ends_with(
            "|---|---|---|---|---|\n| `a/src/b.rs` | `T::f` | one-shot | no | first this \\| that |\n"
        ));
    }
}
