//! Rules about files: module docs, size, layout, forbidden macros and attributes, paths of one machine.
//!
//! Looked at is every text file of the tree except build output (directories that carry cargo's
//! `CACHEDIR.TAG`, `docs/book`) and hidden directories other than `.cargo`, `.ci` and `.github`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::finding::{Finding, Report};
use crate::workspace::relative;

mod rust;

/// Hidden directories that hold files of the project.
const HIDDEN: &[&str] = &[".cargo", ".ci", ".github"];

/// Files that tools write; in a linked worktree `.git` is a file.
const NOT_OURS: &[&str] = &[".git", "Cargo.lock"];

/// Where a developer's files live on one machine and on no other. Written apart, so that this file is clean.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/tmp/ba", "sh"), concat!("/ro", "ot/")];

/// Checks every file under `root`.
pub fn audit(root: &Path) -> Result<Report> {
    let mut findings = Vec::new();
    let mut rust_files = 0;
    let files = files(root)?;
    for path in &files {
        let Ok(text) = fs::read_to_string(path) else { continue }; // not text
        let place = relative(root, path);
        findings.extend(machine_paths(&place, &text));
        if path.extension().is_some_and(|extension| extension == "rs") {
            rust_files += 1;
            findings.extend(rust::check(&place, &text)?);
        }
    }
    ensure!(rust_files > 0, "no Rust files under {}", root.display());
    Ok(Report::new("audit tidy", format!("{} files, {rust_files} of them Rust", files.len()), findings))
}

fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() && is_ours(root, &path) {
                pending.push(path);
            } else if kind.is_file() && !NOT_OURS.iter().any(|name| entry.file_name() == *name) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_ours(root: &Path, directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let hidden = name.starts_with('.') && !HIDDEN.contains(&name.as_ref());
    !hidden
        && name != "target"
        && !directory.join("CACHEDIR.TAG").exists()
        && directory != root.join("docs/book")
}

fn machine_paths(place: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for path in MACHINE_PATHS {
            if mentions_absolute(line, path) {
                let remedy = "use a path relative to the file, a temporary directory or an example that fits any machine";
                findings.push(
                    Finding::in_file(place, format!("mentions `{path}`, a path of one machine"), remedy)
                        .at(index + 1),
                );
            }
        }
    }
    findings
}

/// Whether `line` holds `path` where a path begins, not in the middle of a longer one.
fn mentions_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~' | '}' | ')'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found_where_they_begin() {
        let text = format!("fine\n\"{0}x\" and {0}\nhttps://host{0}x ../a{0}b", MACHINE_PATHS[0]);
        let lines: Vec<_> = machine_paths("a.md", &text).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [Some(2)]);
    }

    #[test]
    fn build_output_and_foreign_hidden_directories_are_skipped() {
        let root = tempfile::tempdir().unwrap();
        for path in
            ["a/b.rs", ".ci/run", ".git", ".venv/c", "out/CACHEDIR.TAG", "out/d.rs", "docs/book/e.html"]
        {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let files = files(root.path()).unwrap();
        let places: Vec<_> = files.iter().map(|path| relative(root.path(), path)).collect();
        assert_eq!(places, [".ci/run", "a/b.rs"]);
    }
}
