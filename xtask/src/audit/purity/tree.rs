//! The resolved dependency tree of one crate, as `cargo tree` prints it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::finding::Finding;
use crate::workspace::cargo;

/// Crates that bring a runtime, the network, a clock or a log with them.
const IMPURE: &[&str] = &[
    "async-io",
    "async-std",
    "axum",
    "chrono",
    "embassy-executor",
    "futures-executor",
    "futures-timer",
    "hyper",
    "hyper-util",
    "instant",
    "isahc",
    "jiff",
    "log",
    "mio",
    "notify",
    "polling",
    "quanta",
    "rayon",
    "reqwest",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tokio-util",
    "tower",
    "tracing",
    "tracing-core",
    "ureq",
    "web-time",
];

/// The names in the normal dependency tree of `package` for every platform, without the package itself.
pub(super) fn normal(root: &Path, package: &str) -> Result<BTreeSet<String>> {
    let output = Command::new(cargo())
        .args(["tree", "--edges", "normal", "--target", "all", "--prefix", "none", "--format", "{p}"])
        .args(["--package", package])
        .current_dir(root)
        .output()
        .context("cannot start cargo tree")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree failed for `{package}`: {errors}");
    Ok(names(&String::from_utf8_lossy(&output.stdout), package))
}

fn names(printed: &str, package: &str) -> BTreeSet<String> {
    let names = printed.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != package).map(str::to_owned).collect()
}

/// A finding per impure crate in `tree`.
pub(super) fn impure(tree: &BTreeSet<String>, manifest: &str) -> Vec<Finding> {
    let found = tree.iter().filter(|name| IMPURE.contains(&name.as_str()));
    found
        .map(|name| {
            Finding::in_file(
                manifest,
                format!("the core's dependency tree contains `{name}`"),
                format!("see `cargo tree -p gglib-core -e normal -i {name}`; drop the feature or crate that brings it"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impure_crate_deep_in_the_tree_is_found() {
        let printed = "core v0.1.0 (/somewhere)\nhttp v1.5.0\nmio v1.0.0\nhttp v1.5.0 (*)\n";
        let tree = names(printed, "core");
        assert_eq!(tree.iter().collect::<Vec<_>>(), ["http", "mio"]);
        let findings = impure(&tree, "core/Cargo.toml");
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].problem, "the core's dependency tree contains `mio`");
    }
}
