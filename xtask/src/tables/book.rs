//! The book's summary lists its pages, all of them and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::Finding;
use crate::workspace::relative;

const SOURCE: &str = "docs/src";
const SUMMARY: &str = "docs/src/SUMMARY.md";

/// Compares the summary with the pages of the workspace at `root`; answers with the number of pages listed.
pub fn check(root: &Path) -> Result<(usize, Vec<Finding>)> {
    let summary = fs::read_to_string(root.join(SUMMARY)).with_context(|| format!("cannot read {SUMMARY}"))?;
    let source = root.join(SOURCE);
    let mut present = BTreeSet::new();
    collect_pages(&source, &source, &mut present)?;

    let mut listed = BTreeSet::new();
    let mut findings = Vec::new();
    for (line, page) in links(&summary) {
        if !present.contains(page) {
            let remedy = format!("write {SOURCE}/{page}, or take the line out");
            findings.push(
                Finding::in_file(SUMMARY, format!("lists `{page}`, which does not exist"), remedy).at(line),
            );
        }
        if !listed.insert(page.to_owned()) {
            findings.push(Finding::in_file(SUMMARY, format!("lists `{page}` twice"), "keep one").at(line));
        }
    }
    for page in present.difference(&listed) {
        let remedy = format!("add `[Title]({page})` to {SUMMARY}, or delete the page");
        findings.push(Finding::in_file(format!("{SOURCE}/{page}"), "is not in the book's summary", remedy));
    }
    Ok((listed.len(), findings))
}

/// Line (from 1) and target of each link.
fn links(summary: &str) -> impl Iterator<Item = (usize, &str)> {
    summary.lines().enumerate().filter_map(|(index, line)| {
        let (_, target) = line.split_once("](")?;
        let (target, _) = target.split_once(')')?;
        Some((index + 1, target.trim_start_matches("./")))
    })
}

fn collect_pages(source: &Path, directory: &Path, pages: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect_pages(source, &path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md")
            && path != source.join("SUMMARY.md")
        {
            pages.insert(relative(source, &path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_and_pages_have_to_agree() {
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join(SOURCE);
        fs::create_dir_all(source.join("guide")).unwrap();
        fs::write(source.join("guide/start.md"), "").unwrap();
        fs::write(source.join("guide/lost.md"), "").unwrap();
        let summary =
            "# Summary\n\n- [Start](./guide/start.md)\n- [Gone](gone.md)\n- [Again](guide/start.md)\n";
        fs::write(root.path().join(SUMMARY), summary).unwrap();

        let (listed, findings) = check(root.path()).unwrap();
        let problems: Vec<_> =
            findings.iter().map(|f| (f.path.as_str(), f.line, f.problem.as_str())).collect();
        assert_eq!(listed, 2);
        assert_eq!(
            problems,
            [
                (SUMMARY, Some(4), "lists `gone.md`, which does not exist"),
                (SUMMARY, Some(5), "lists `guide/start.md` twice"),
                ("docs/src/guide/lost.md", None, "is not in the book's summary"),
            ]
        );
    }
}
