//! The code map names every module of every crate's root, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::Item;

use crate::finding::Finding;
use crate::workspace::{Workspace, directory};

const PAGE: &str = "docs/src/contributing/architecture.md";

/// Compares the code map with the crates of the workspace at `root`; answers with the number of their modules.
pub fn check(root: &Path) -> Result<(usize, Vec<Finding>)> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut mapped = mapped(&page);
    let mut findings = Vec::new();
    let mut count = 0;
    let workspace = Workspace::read(root)?;
    for package in &workspace.packages {
        let name = package.name.as_str();
        let path = directory(package).join("src/lib.rs");
        let file = workspace.relative(&path);
        let source = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
        let modules = modules(&source).with_context(|| format!("cannot parse {file}"))?;
        count += modules.len();
        let rows = mapped.remove(name).unwrap_or_default();
        for module in modules.iter().filter(|module| !rows.contains_key(module.as_str())) {
            let remedy = format!("say in the table below **{name}** of {PAGE} what it is for");
            findings.push(Finding::in_file(&file, format!("`{module}` is not in the code map"), remedy));
        }
        for (module, line) in rows.iter().filter(|(module, _)| !modules.contains(**module)) {
            let problem = format!("maps `{module}`, which is no module of {name}'s root");
            findings.push(
                Finding::in_file(PAGE, problem, "take it out, or name the one that it became").at(*line),
            );
        }
    }
    Ok((count, findings))
}

/// By the bold name that stands above a table, the roots of the modules in its first column, with their lines (from 1).
fn mapped(page: &str) -> BTreeMap<&str, BTreeMap<&str, usize>> {
    let mut crates: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let mut current = None;
    for (index, line) in page.lines().enumerate() {
        if line.starts_with('#') {
            current = None;
        } else if let Some((name, _)) = line.strip_prefix("**").and_then(|rest| rest.split_once("**")) {
            current = Some(name);
        } else if let (Some(name), Some(rest)) = (current, line.strip_prefix("| `")) {
            let cell = rest.split('|').next().unwrap_or_default();
            // What stands between the backticks: every second part.
            for path in cell.split('`').step_by(2).filter(|path| !path.trim().is_empty()) {
                let module = path.split("::").next().unwrap_or(path);
                crates.entry(name).or_default().entry(module).or_insert(index + 1);
            }
        }
    }
    crates
}

/// The modules of a crate's root.
fn modules(source: &str) -> syn::Result<BTreeSet<String>> {
    let modules = syn::parse_file(source)?.items.into_iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
        _ => None,
    });
    Ok(modules.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mapped_and_what_is_no_more_are_found() {
        let root = tempfile::tempdir().unwrap();
        let members = "[workspace]\nresolver = \"3\"\nmembers = [\"one\", \"two\"]\n";
        fs::write(root.path().join("Cargo.toml"), members).unwrap();
        let two = "pub mod a;\nmod b;\nmod lost;\n#[cfg(test)]\nmod tests {}\n";
        for (name, text) in [("one", ""), ("two", two)] {
            let source = root.path().join(name).join("src");
            fs::create_dir_all(&source).unwrap();
            fs::write(source.join("lib.rs"), text).unwrap();
            let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n");
            fs::write(root.path().join(name).join("Cargo.toml"), manifest).unwrap();
        }
        let page = root.path().join(PAGE);
        fs::create_dir_all(page.parent().unwrap()).unwrap();
        let map = "**one**: pure\n\n| module | |\n|---|---|\n| `gone` | was here |\n\n\
                   **two**:\n\n| `a`, `b` | two |\n| `a::c` | below, in `lost` words |\n\n\
                   # Else\n\n| `lost` | elsewhere |\n";
        fs::write(page, map).unwrap();

        let (count, mut findings) = check(root.path()).unwrap();
        findings.sort();
        let problems: Vec<_> = findings.iter().map(|f| (&*f.path, f.line, &*f.problem)).collect();
        assert_eq!(count, 3);
        assert_eq!(
            problems,
            [
                (PAGE, Some(5), "maps `gone`, which is no module of one's root"),
                ("two/src/lib.rs", None, "`lost` is not in the code map"),
            ]
        );
    }
}
