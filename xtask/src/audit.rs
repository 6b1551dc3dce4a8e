//! The house rules that a compiler does not check.

use std::path::Path;

use anyhow::Result;

use crate::finding::Report;

pub mod deps;
pub mod manifests;
pub mod purity;
pub mod retry;
pub mod tidy;

/// Every audit, in order of what a reader wants to know first.
pub fn all(root: &Path) -> Result<Vec<Report>> {
    let mut reports = deps(root)?;
    reports.push(retry::audit(root)?);
    reports.push(tidy::audit(root)?);
    Ok(reports)
}

/// The three audits about dependencies: edges between crates, how manifests are written, the pure core.
pub fn deps(root: &Path) -> Result<Vec<Report>> {
    Ok(vec![deps::audit(root)?, manifests::audit(root)?, purity::audit(root)?])
}
