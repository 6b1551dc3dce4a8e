//! The core's purity: no runtime, clock, I/O or thread, neither of its own nor through a dependency.
//!
//! Three checks: the external crates that it names are on a short list; its resolved normal dependency tree
//! holds none of the crates that would bring a runtime, the network or a clock; and its own code, tests
//! apart, mentions none of the standard library's modules that do. Two files are excused, as the crate's
//! docs say: `retry/jitter.rs` draws from `rand`, `retry/env.rs` reads `std::env`. `SystemTime` may be named
//! under `retry/hint`, where HTTP dates are read, but its `now` and `elapsed` may not be called there either.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cargo_metadata::{DependencyKind, Package};

use crate::finding::{Finding, Report};
use crate::workspace::{self, Workspace};

mod code;
mod tree;

const CORE: &str = "gglib-core";

/// The external crates that the core may name.
const DIRECT: &[&str] = &[
    "bytes",
    "futures-core",
    "http",
    "httpdate",
    "humantime",
    "rand",
    "serde",
    "serde_json",
    "serde_path_to_error",
    "strsim",
    "thiserror",
    "toml",
];

/// Checks the crate `gglib-core` of the workspace at `root`.
pub fn audit(root: &Path) -> Result<Report> {
    let workspace = Workspace::read(root)?;
    let core = workspace
        .packages
        .iter()
        .find(|package| package.name == CORE)
        .with_context(|| format!("the workspace has no crate `{CORE}`, whose purity is to be checked"))?;
    let manifest = workspace.relative(core.manifest_path.as_std_path());

    let mut findings = unlisted(core, &manifest);
    let tree = tree::normal(&workspace.root, CORE)?;
    findings.extend(tree::impure(&tree, &manifest));
    let sources = crate::source::shipped(&workspace.root, workspace::directory(core))?;
    ensure!(!sources.is_empty(), "the crate `{CORE}` has no source files");
    for source in &sources {
        findings.extend(code::impure(source));
    }
    let seen = format!("{} files, {} crates in the tree of {CORE}", sources.len(), tree.len());
    Ok(Report::new("audit purity", seen, findings))
}

fn unlisted(core: &Package, manifest: &str) -> Vec<Finding> {
    let normal = core.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
    let names: BTreeSet<_> = normal.map(|dependency| dependency.name.as_str()).collect();
    let unlisted = names.into_iter().filter(|name| !DIRECT.contains(name));
    unlisted
        .map(|name| {
            Finding::in_file(
                manifest,
                format!("`{CORE}` depends on `{name}`, which is not on the list of what the core may use"),
                "keep it out of the core, or argue for it in the list in xtask/src/audit/purity.rs",
            )
        })
        .collect()
}
