//! Every dependency of the workspace is justified on one page of the book, and nothing else is.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::finding::Finding;

const PAGE: &str = "docs/src/contributing/dependencies.md";
const MANIFEST: &str = "Cargo.toml";

/// Compares the page with `[workspace.dependencies]` of the workspace at `root`; answers with their number.
pub fn check(root: &Path) -> Result<(usize, Vec<Finding>)> {
    let manifest = fs::read_to_string(root.join(MANIFEST)).context("cannot read the root manifest")?;
    let declared = external(&manifest.parse()?);
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let justified: BTreeMap<&str, usize> = rows(&page).collect();

    let missing = declared.iter().filter(|name| !justified.contains_key(name.as_str())).map(|name| {
        let remedy = format!("say in one line of {PAGE} why it is needed");
        Finding::in_file(MANIFEST, format!("the dependency `{name}` is not justified"), remedy)
    });
    let stale = justified.iter().filter(|(name, _)| !declared.iter().any(|declared| declared == *name));
    let stale = stale.map(|(name, line)| {
        let problem = format!("justifies `{name}`, which is not a dependency of the workspace");
        Finding::in_file(PAGE, problem, "take the line out").at(*line)
    });
    let findings = missing.chain(stale).collect();
    Ok((declared.len(), findings))
}

/// The names under `[workspace.dependencies]`, our own crates excepted.
fn external(manifest: &Table) -> Vec<String> {
    let dependencies = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let dependencies = dependencies.and_then(Value::as_table).into_iter().flatten();
    dependencies
        .filter(|(_, dependency)| dependency.get("path").is_none())
        .map(|(name, _)| name.clone())
        .collect()
}

/// Name and line (from 1) of each row of a table whose first cell is a name in code.
fn rows(page: &str) -> impl Iterator<Item = (&str, usize)> {
    page.lines().enumerate().filter_map(|(index, line)| {
        let (name, _) = line.strip_prefix("| `")?.split_once('`')?;
        Some((name, index + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_justified_and_what_is_not_used_are_found() {
        let root = tempfile::tempdir().unwrap();
        let manifest =
            "[workspace.dependencies]\nours = { path = \"ours\" }\na = \"1\"\nb = { version = \"1\" }\n";
        fs::write(root.path().join(MANIFEST), manifest).unwrap();
        let page = root.path().join(PAGE);
        fs::create_dir_all(page.parent().unwrap()).unwrap();
        fs::write(page, "| crate | why |\n|---|---|\n| `a` | because |\n| `c` | why not |\n").unwrap();

        let (declared, findings) = check(root.path()).unwrap();
        let problems: Vec<_> = findings.iter().map(|found| (found.line, found.problem.as_str())).collect();
        assert_eq!(declared, 2);
        assert_eq!(
            problems,
            [
                (None, "the dependency `b` is not justified"),
                (Some(4), "justifies `c`, which is not a dependency of the workspace"),
            ]
        );
    }
}
