//! Who may depend on whom inside the workspace: an allow-list, so that a new edge is a decision.
//!
//! Reads `cargo metadata --no-deps`; nothing is resolved and no network is needed.

use std::path::Path;

use anyhow::Result;
use cargo_metadata::{DependencyKind, Package};

use crate::finding::{Finding, Report};
use crate::workspace::Workspace;

/// A crate and what it may use when it is shipped (build scripts included).
const ALLOWED: &[(&str, &[&str])] = &[
    ("gglib-core", &[]),
    ("gglib-runtime", &["gglib-core"]),
    ("gglib-proxy", &["gglib-core"]),
    ("gglib-cli", &["gglib-core", "gglib-proxy", "gglib-runtime"]),
    ("gglib-testkit", &["gglib-core", "gglib-runtime"]),
    ("xtask", &["gglib-core", "gglib-cli", "gglib-proxy", "gglib-runtime", "gglib-testkit"]),
];

/// What every crate's tests may use besides.
const ALLOWED_IN_TESTS: &str = "gglib-testkit";

/// Checks every edge between members of the workspace at `root`.
pub fn audit(root: &Path) -> Result<Report> {
    let workspace = Workspace::read(root)?;
    let edges = edges(&workspace.packages);
    let seen = format!("{} crates, {} edges", workspace.packages.len(), edges.len());
    let findings = edges.iter().filter(|edge| !edge.is_allowed()).map(|edge| Finding {
        path: workspace.relative(edge.from.manifest_path.as_std_path()),
        line: None,
        problem: format!("`{}` depends on `{}`{}", edge.from.name, edge.to, edge.suffix()),
        remedy: "remove the edge; crates that may not know each other meet in gglib_core::ports and are put \
                 together in gglib-cli"
            .to_owned(),
    });
    Ok(Report::new("audit deps", seen, findings.collect()))
}

struct Edge<'a> {
    from: &'a Package,
    to: &'a str,
    kind: DependencyKind,
}

impl Edge<'_> {
    fn is_allowed(&self) -> bool {
        let listed = ALLOWED
            .iter()
            .find(|(from, _)| *from == self.from.name.as_str())
            .is_some_and(|(_, targets)| targets.contains(&self.to));
        listed || self.kind == DependencyKind::Development && self.to == ALLOWED_IN_TESTS
    }

    fn suffix(&self) -> &'static str {
        match self.kind {
            DependencyKind::Development => " in its tests",
            DependencyKind::Build => " in its build script",
            _ => "",
        }
    }
}

fn edges(packages: &[Package]) -> Vec<Edge<'_>> {
    let is_member = |name: &str| packages.iter().any(|package| package.name == name);
    packages
        .iter()
        .flat_map(|from| from.dependencies.iter().map(move |to| Edge { from, to: &to.name, kind: to.kind }))
        .filter(|edge| is_member(edge.to))
        .collect()
}
