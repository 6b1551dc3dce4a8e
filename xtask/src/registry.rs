//! The registry of sites: `docs/retry-sites.toml`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use toml::Spanned;

use crate::finding::Finding;

/// The registry's place in the workspace.
pub const FILE: &str = "docs/retry-sites.toml";

/// What kind of repetition a site is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The same work repeated after delays that the retry policy decides.
    Backoff,
    /// Changed work issued exactly once.
    OneShot,
    /// Waiting that is neither: polling, ticking, debouncing, a fixed second try.
    Control,
}

impl Shape {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "backoff" => Some(Self::Backoff),
            "one-shot" => Some(Self::OneShot),
            "control" => Some(Self::Control),
            _ => None,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backoff => "backoff",
            Self::OneShot => "one-shot",
            Self::Control => "control",
        })
    }
}

/// One row: a function that repeats or re-issues work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The file, relative to the workspace's root, with `/`.
    pub path: String,
    /// The enclosing function: `function`, `Type::method` or `module::function` within the file.
    pub item: String,
    /// What kind of repetition it is.
    pub shape: Shape,
    /// Whether the function calls `decide` or `decide_with`.
    pub uses_decide: bool,
    /// Whether the function only decides that work is done once more, and code elsewhere does it. Of a one-shot alone.
    pub decision: bool,
    /// Why it exists and why it has this shape.
    pub why: String,
    /// The row's line in the registry, counted from 1.
    pub line: usize,
}

/// The rows that could be read, and what is wrong with the others.
#[derive(Debug, Default)]
pub struct Registry {
    /// In the file's order.
    pub rows: Vec<Row>,
    /// Rows with an unknown shape, without a reason, contradicting themselves, or written twice.
    pub findings: Vec<Finding>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    site: Vec<Spanned<RawRow>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    path: String,
    item: String,
    shape: String,
    uses_decide: bool,
    #[serde(default)]
    decision: bool,
    why: String,
}

/// Reads the registry of the workspace at `root`.
///
/// A file that is missing or is not of the registry's form is an error; what is wrong with single rows is in
/// [`Registry::findings`].
pub fn read(root: &Path) -> Result<Registry> {
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Registry> {
    let document: Document = toml::from_str(text).with_context(|| format!("cannot parse {FILE}"))?;
    let mut registry = Registry::default();
    let mut known = BTreeSet::new();
    for raw in document.site {
        let line = text[..raw.span().start].matches('\n').count() + 1;
        let raw = raw.into_inner();
        let mut report = |problem: String, remedy: &str| {
            registry.findings.push(Finding::in_file(FILE, problem, remedy).at(line));
        };
        let item = &raw.item;
        if raw.why.trim().is_empty() {
            report(format!("`{item}` has no reason"), "say in `why` what it repeats and why in this shape");
        }
        if !known.insert((raw.path.clone(), item.clone())) {
            report(format!("`{item}` is registered twice"), "keep one row per function");
        }
        let Some(shape) = Shape::parse(&raw.shape) else {
            let problem = format!("`{item}` has the unknown shape `{}`", raw.shape);
            report(problem, "use \"backoff\", \"one-shot\" or \"control\"");
            continue;
        };
        match (shape, raw.uses_decide) {
            (Shape::Backoff, false) => report(
                format!("`{item}` is a backoff that does not use `decide`"),
                "let the policy decide its delays; waiting that is not a retry is \"control\"",
            ),
            (Shape::OneShot, true) => report(
                format!("`{item}` is a one-shot that uses `decide`"),
                "a one-shot has no second attempt to decide about; split the function or fix the row",
            ),
            _ => {}
        }
        if raw.decision && shape != Shape::OneShot {
            let problem = format!("`{item}` is said to be a decision and no one-shot");
            report(problem, "leave `decision` out: whatever waits or asks the policy does so itself");
        }
        registry.rows.push(Row {
            path: raw.path,
            item: raw.item,
            shape,
            uses_decide: raw.uses_decide,
            decision: raw.decision,
            why: raw.why,
            line,
        });
    }
    Ok(registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(item: &str, shape: &str, uses_decide: bool) -> String {
        format!(
            "[[site]]\npath = \"a/src/b.rs\"\nitem = \"{item}\"\nshape = \"{shape}\"\n\
             uses_decide = {uses_decide}\nwhy = \"because\"\n"
        )
    }

    fn problems(text: &str) -> Vec<String> {
        let findings = parse(text).unwrap().findings;
        findings.into_iter().map(|f| format!("{}: {}", f.line.unwrap(), f.problem)).collect()
    }

    #[test]
    fn a_registry_of_comments_has_no_rows() {
        let registry = parse("# nothing yet\n").unwrap();
        assert!(registry.rows.is_empty() && registry.findings.is_empty());
    }

    #[test]
    fn rows_are_read_with_their_lines() {
        let text = format!("# head\n\n{}\n{}", row("f", "backoff", true), row("T::g", "one-shot", false));
        let registry = parse(&text).unwrap();
        assert!(registry.findings.is_empty());
        let expected = Row {
            path: "a/src/b.rs".into(),
            item: "T::g".into(),
            shape: Shape::OneShot,
            uses_decide: false,
            decision: false,
            why: "because".into(),
            line: 10,
        };
        assert_eq!(registry.rows.len(), 2);
        assert_eq!(registry.rows[1], expected);
        assert_eq!(registry.rows[0].line, 3);
    }

    #[test]
    fn bad_rows_are_named() {
        let text = row("f", "loop", false)
            + &row("g", "backoff", false)
            + &row("h", "one-shot", true)
            + &row("i", "control", true)
            + &row("i", "control", false).replace("because", " ")
            + &row("j", "control", false).replace("why", "decision = true\nwhy");
        assert_eq!(
            problems(&text),
            [
                "1: `f` has the unknown shape `loop`",
                "7: `g` is a backoff that does not use `decide`",
                "13: `h` is a one-shot that uses `decide`",
                "25: `i` has no reason",
                "25: `i` is registered twice",
                "31: `j` is said to be a decision and no one-shot",
            ]
        );
    }

    #[test]
    fn unknown_and_missing_keys_are_errors() {
        assert!(parse(&row("f", "control", false).replace("why", "reason")).is_err());
        assert!(parse("[[sites]]\n").is_err());
    }
}
