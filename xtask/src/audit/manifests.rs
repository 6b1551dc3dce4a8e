//! One place for versions and lints: what a member's manifest takes from the workspace.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::finding::{Finding, Report};
use crate::workspace::Workspace;

const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks that every member inherits the lints and takes every dependency from the workspace's table.
pub fn audit(root: &Path) -> Result<Report> {
    let workspace = Workspace::read(root)?;
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let path = package.manifest_path.as_std_path();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let manifest = text.parse().with_context(|| format!("cannot parse {}", path.display()))?;
        check(&workspace.relative(path), &manifest, &mut findings);
    }
    Ok(Report::new("audit manifests", format!("{} manifests", workspace.packages.len()), findings))
}

fn check(path: &str, manifest: &Table, findings: &mut Vec<Finding>) {
    if !manifest.get("lints").is_some_and(inherits) {
        findings.push(Finding::in_file(
            path,
            "does not inherit the workspace's lints",
            "add `[lints]` with `workspace = true`",
        ));
    }
    let everywhere = [manifest].into_iter();
    let by_target = manifest.get("target").and_then(Value::as_table).into_iter();
    let by_target = by_target.flat_map(Table::values).filter_map(Value::as_table);
    for section in everywhere.chain(by_target) {
        let tables = DEPENDENCY_TABLES.iter().filter_map(|name| section.get(*name)?.as_table());
        for (name, _) in tables.flatten().filter(|(_, dependency)| !inherits(dependency)) {
            findings.push(Finding::in_file(
                path,
                format!("declares `{name}` by itself"),
                "declare it under [workspace.dependencies] in the root manifest and write `workspace = true` here",
            ));
        }
    }
}

fn inherits(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(manifest: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check("Cargo.toml", &manifest.parse().unwrap(), &mut findings);
        findings.into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn an_inheriting_manifest_is_clean() {
        let manifest = "lints.workspace = true\n[dependencies]\na.workspace = true\n\
                        [dev-dependencies]\na = { workspace = true, features = [\"x\"] }";
        assert_eq!(problems(manifest), [""; 0]);
    }

    #[test]
    fn missing_lints_and_own_versions_are_found_in_every_table() {
        let manifest = "[dependencies]\na = \"1\"\nb.path = \"../b\"\n[build-dependencies]\nc = \"1\"\n\
                        [target.'cfg(unix)'.dev-dependencies]\nd = \"1\"";
        assert_eq!(
            problems(manifest),
            [
                "does not inherit the workspace's lints",
                "declares `a` by itself",
                "declares `b` by itself",
                "declares `c` by itself",
                "declares `d` by itself",
            ]
        );
    }
}
