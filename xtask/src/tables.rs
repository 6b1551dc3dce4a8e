//! The generated pages of the docs: written by `cargo xtask tables`, checked by `cargo xtask tables --check`.
//!
//! A page is a path and a function that renders its whole content; adding one means adding a module beside
//! [`retry_sites`] and a line to [`PAGES`].

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::{Finding, Report};

pub mod book;
pub mod retry_sites;

/// One generated page.
#[derive(Debug)]
pub struct Page {
    /// Its place in the workspace.
    pub path: &'static str,
    /// Renders its content, given the workspace's root.
    pub render: fn(&Path) -> Result<String>,
}

/// Every generated page.
pub const PAGES: &[Page] = &[Page { path: "docs/src/reference/retry-sites.md", render: retry_sites::render }];

/// Writes the pages that are stale and answers with their paths.
pub fn write(root: &Path) -> Result<Vec<&'static str>> {
    let mut written = Vec::new();
    for page in PAGES {
        let content = (page.render)(root)?;
        let path = root.join(page.path);
        if !is_current(&path, &content) {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            fs::write(&path, content).with_context(|| format!("cannot write {}", page.path))?;
            written.push(page.path);
        }
    }
    Ok(written)
}

/// Checks that no page is stale, and that the book's summary and its pages agree.
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
    let (pages, wrong) = book::check(root)?;
    findings.extend(wrong);
    Ok(Report::new("tables", format!("{} generated pages, {pages} pages in the book", PAGES.len()), findings))
}

/// Compares by lines: a checkout may have changed the line ends.
fn is_current(path: &Path, content: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|present| present.lines().eq(content.lines()))
}
