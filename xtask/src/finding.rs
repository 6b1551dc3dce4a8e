//! What an audit has to say.

use std::fmt;

/// One broken rule: where, what, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the workspace's root, with `/` on every platform.
    pub path: String,
    /// The line, counted from 1, where the rule is about one.
    pub line: Option<usize>,
    /// What is wrong; names the item.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl Finding {
    /// A finding about a whole file.
    pub fn in_file(path: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { path: path.into(), line: None, problem: problem.into(), remedy: remedy.into() }
    }

    /// The same finding at `line`.
    #[must_use]
    pub fn at(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}\n    -> {}", self.problem, self.remedy)
    }
}

/// The outcome of one audit.
#[derive(Debug)]
pub struct Report {
    /// The audit's name, as typed after `cargo xtask`.
    pub name: &'static str,
    /// What was looked at, with counts: an audit that saw nothing must not look like one that passed.
    pub seen: String,
    /// The broken rules, in order of place.
    pub findings: Vec<Finding>,
}

impl Report {
    /// A report over `findings`, sorted by place.
    pub fn new(name: &'static str, seen: String, mut findings: Vec<Finding>) -> Self {
        findings.sort();
        findings.dedup();
        Self { name, seen, findings }
    }

    /// Whether no rule is broken.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        match self.findings.len() {
            0 => writeln!(f, "{}: {}: clean", self.name, self.seen),
            1 => writeln!(f, "{}: {}: 1 finding", self.name, self.seen),
            n => writeln!(f, "{}: {}: {n} findings", self.name, self.seen),
        }
    }
}
