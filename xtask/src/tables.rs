//! The docs, as far as code can write or check them.
//!
//! `cargo xtask tables` writes the generated pages. `cargo xtask tables --check` writes nothing and fails when one
//! of them is stale, when the book's summary and its pages disagree, when a dependency is not justified, when the code
//! map and the crates disagree, and when a command, a configuration or a link in the docs is not understood.
//!
//! A page is a path and a function that renders its whole content (one that is mostly written by hand takes that over
//! from itself); adding one means adding a module and a line to [`PAGES`].

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::{Finding, Report};

pub mod admission_rules;
pub mod book;
pub mod calls_over_time;
pub mod code_map;
pub mod command_line;
pub mod configuration;
pub mod dependencies;
pub mod errors;
pub mod exit_codes;
pub mod metrics;
pub mod retry_policy;
pub mod retry_sites;
pub mod snippets;

pub(crate) mod markdown;

/// One generated page.
#[derive(Debug)]
pub struct Page {
    /// Its place in the workspace.
    pub path: &'static str,
    /// Renders its content, given the workspace's root.
    pub render: fn(&Path) -> Result<String>,
}

/// Every generated page.
pub const PAGES: &[Page] = &[
    Page { path: admission_rules::PATH, render: admission_rules::render },
    Page { path: "docs/src/concepts/calls-over-time.svg", render: |_| Ok(calls_over_time::render()) },
    Page { path: "docs/src/reference/command-line.md", render: |_| Ok(command_line::render()) },
    Page { path: "docs/src/reference/configuration.md", render: |_| Ok(configuration::render()) },
    Page { path: "docs/src/reference/errors.md", render: |_| errors::render() },
    Page { path: "docs/src/reference/exit-codes.md", render: |_| Ok(exit_codes::render()) },
    Page { path: "docs/src/reference/metrics.md", render: |_| Ok(metrics::render()) },
    Page { path: "docs/src/reference/retry-policy.md", render: |_| Ok(retry_policy::render()) },
    Page { path: "docs/src/reference/retry-sites.md", render: retry_sites::render },
];

/// Writes the pages that are stale and answers with their paths.
pub fn write(root: &Path) -> Result<Vec<&'static str>> {
    let mut written = Vec::new();
    for page in PAGES {
        if write_page(root, page.path, &(page.render)(root)?)? {
            written.push(page.path);
        }
    }
    Ok(written)
}

/// Writes the page at `place` below `root` unless it is so already; whether it was written.
pub(crate) fn write_page(root: &Path, place: &str, content: &str) -> Result<bool> {
    let path = root.join(place);
    if is_current(&path, content) {
        return Ok(false);
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(&path, content).with_context(|| format!("cannot write {place}"))?;
    Ok(true)
}

/// Checks that no page is stale, that the book is whole, and that what the docs say to type is understood.
pub fn check(root: &Path) -> Result<Report> {
    let mut findings = Vec::new();
    for page in PAGES {
        if !is_current(&root.join(page.path), &(page.render)(root)?) {
            findings.push(Finding::in_file(
                page.path,
                "the generated page is stale",
                "run `cargo xtask tables`",
            ));
        }
    }
    let (pages, in_book) = book::check(root)?;
    let (dependencies, in_dependencies) = dependencies::check(root)?;
    let (snippets, in_snippets) = snippets::check(root)?;
    let (modules, in_code_map) = code_map::check(root)?;
    findings.extend(in_book.into_iter().chain(in_dependencies).chain(in_snippets).chain(in_code_map));
    let seen = format!(
        "{} generated pages, {pages} pages in the book, {dependencies} dependencies, {modules} modules, {snippets} \
         commands, snippets and links",
        PAGES.len()
    );
    Ok(Report::new("tables", seen, findings))
}

/// Compares by lines: a checkout may have changed the line ends.
pub(crate) fn is_current(path: &Path, content: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|present| present.lines().eq(content.lines()))
}
