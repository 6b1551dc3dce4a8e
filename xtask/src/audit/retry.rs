//! Every site that repeats or re-issues work is in `docs/retry-sites.toml`, and the registry says the truth.
//!
//! A function is a site when it waits inside a loop or by recursion, if only through helpers of its crate, when it
//! calls `decide`, `decide_with` or a `RetrySequence`, when it sends a request again, and when its name or the
//! counters of its loops say that it tries again (see [`visit`] and [`graph`]). The audit fails on a site without a row, on a row without a site, on a row that is wrong
//! about `decide`, and on a one-shot that can happen more than once because it awaits inside a loop.
//!
//! Where a state machine decides that something is done once more and its driver does it, the function that decides is
//! the site. Nothing in it gives it away, so its row says `decision = true`; it has to be a function of its own, which
//! neither awaits nor loops, so that it vanishes with the decision.
//!
//! Looked at is everything under `src/` of the workspace's crates, tests apart, except the crates that are
//! not shipped and the policy itself in `gglib-core/src/retry`.
//!
//! What it does not see: waits behind a function of another crate, behind a function pointer or trait object whose
//! name says nothing, and iterator chains and streams that repeat work without a loop.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::finding::{Finding, Report};
use crate::registry::{self, FILE, Row, Shape};
use crate::source;
use crate::workspace::{self, Workspace};
use graph::Files;

pub mod graph;
pub mod smells;
pub mod visit;

mod body;
mod names;
mod tokens;
mod waits;

/// Crates that are not shipped.
const NOT_SHIPPED: &[&str] = &["gglib-testkit", "xtask"];

/// Where `decide` is defined and rendered: the policy itself, no site.
const POLICY: &[&str] = &["gglib-core/src/retry.rs", "gglib-core/src/retry/"];

/// Compares the code of the workspace at `root` with its registry.
pub fn audit(root: &Path) -> Result<Report> {
    let files = shipped_functions(root)?;
    let registry = registry::read(root)?;
    let mut findings = registry.findings;
    for row in &registry.rows {
        check_row(row, &files, &mut findings);
    }
    let mut sites = 0;
    for (path, functions) in &files {
        for (item, function) in functions {
            let Some((line, what)) = function.site() else { continue };
            sites += 1;
            if !registry.rows.iter().any(|row| row.path == *path && row.item == *item) {
                findings.push(unregistered(path, item, what).at(line));
            }
        }
    }
    let seen = format!("{} files, {sites} sites, {} rows", files.len(), registry.rows.len());
    Ok(Report::new("audit retry", seen, findings))
}

fn shipped_functions(root: &Path) -> Result<Files> {
    let workspace = Workspace::read(root)?;
    let mut files = Files::new();
    for package in workspace.packages.iter().filter(|package| !NOT_SHIPPED.contains(&package.name.as_str())) {
        let mut of_crate = Files::new();
        for source in source::shipped(&workspace.root, workspace::directory(package))? {
            if !POLICY.iter().any(|policy| source.path.starts_with(policy)) {
                of_crate.insert(source.path, visit::functions(&source.tree));
            }
        }
        graph::follow(&mut of_crate);
        files.append(&mut of_crate);
    }
    ensure!(!files.is_empty(), "no shipped source files under {}", workspace.root.display());
    Ok(files)
}

fn unregistered(path: &str, item: &str, what: &str) -> Finding {
    let remedy = format!(
        "a retry belongs to the completion client; for other waiting add a row with item = \"{item}\" to {FILE} \
         and run `cargo xtask tables`"
    );
    Finding::in_file(path, format!("`{item}` {what} and is not registered"), remedy)
}

fn check_row(row: &Row, files: &Files, findings: &mut Vec<Finding>) {
    let item = &row.item;
    let mut stale = |problem: String| {
        let remedy = "fix the row, or remove it and run `cargo xtask tables`";
        findings.push(Finding::in_file(FILE, problem, remedy).at(row.line));
    };
    let Some(functions) = files.get(&row.path) else {
        return stale(format!("stale row: there is no audited file `{}`", row.path));
    };
    let Some(function) = functions.get(item) else {
        return stale(format!("stale row: `{}` has no function `{item}`", row.path));
    };
    if row.shape != Shape::OneShot && function.waits.is_empty() && function.site().is_none() {
        return stale(format!(
            "stale row: `{item}` neither waits, nor asks the retry policy, nor tries again"
        ));
    }
    let acts = function.acts || function.sleeps;
    match (row.shape, row.decision) {
        (Shape::OneShot, false) if !acts => {
            return stale(format!(
                "stale row: `{item}` does nothing that takes time; if it decides that others do, say `decision = true`"
            ));
        }
        (_, true) if acts => {
            return stale(format!("`{item}` is said to be a mere decision, and awaits or loops"));
        }
        _ => {}
    }
    match (row.uses_decide, function.decides.first()) {
        (true, None) => stale(format!("`{item}` is said to use `decide` and does not ask the policy")),
        (false, Some(line)) => {
            let problem = format!("`{item}` asks the retry policy; its row says that it does not");
            let remedy =
                format!("only backoffs ask the policy: take the call out, or correct {FILE}:{}", row.line);
            findings.push(Finding::in_file(&row.path, problem, remedy).at(*line));
        }
        _ => {}
    }
    if row.shape == Shape::OneShot
        && let Some(line) = function.awaiting_loops.first()
    {
        let remedy = "move what happens once into a function of its own and register that one";
        let problem = format!("`{item}` is a one-shot and awaits inside a loop");
        findings.push(Finding::in_file(&row.path, problem, remedy).at(*line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLLING: &str = "async fn f() { loop { sleep(d).await; } }";
    const ASKING: &str = "async fn f() { loop { decide(p); sleep(d).await; } }";
    const ONCE: &str = "async fn f() { send().await; }";

    /// What is wrong with a row about `code`, the whole of its file.
    fn problems(code: &str, (item, shape, uses_decide): (&str, Shape, bool)) -> Vec<String> {
        let row = Row {
            path: "a.rs".into(),
            item: item.into(),
            shape,
            uses_decide,
            decision: false,
            why: "why".into(),
            line: 1,
        };
        problems_of(code, &row)
    }

    fn problems_of(code: &str, row: &Row) -> Vec<String> {
        let functions = visit::functions(&syn::parse_file(code).unwrap());
        let files = Files::from([("a.rs".to_owned(), functions)]);
        let mut findings = Vec::new();
        check_row(row, &files, &mut findings);
        findings.into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn true_rows_are_clean() {
        assert_eq!(problems(POLLING, ("f", Shape::Control, false)), [""; 0]);
        assert_eq!(problems(ASKING, ("f", Shape::Backoff, true)), [""; 0]);
        assert_eq!(problems(ONCE, ("f", Shape::OneShot, false)), [""; 0]);
        let one_wait = "async fn f() { save().await; sleep(d).await; save().await; }";
        assert_eq!(problems(one_wait, ("f", Shape::Control, false)), [""; 0]);
    }

    #[test]
    fn stale_rows_are_found() {
        let gone = problems(ONCE, ("g", Shape::OneShot, false));
        assert_eq!(gone, ["stale row: `a.rs` has no function `g`"]);
        let quiet = problems(ONCE, ("f", Shape::Control, false));
        assert_eq!(quiet, ["stale row: `f` neither waits, nor asks the retry policy, nor tries again"]);
    }

    #[test]
    fn rows_that_are_wrong_about_decide_are_found() {
        let claimed = problems(POLLING, ("f", Shape::Backoff, true));
        assert_eq!(claimed, ["`f` is said to use `decide` and does not ask the policy"]);
        let denied = problems(ASKING, ("f", Shape::Control, false));
        assert_eq!(denied, ["`f` asks the retry policy; its row says that it does not"]);
    }

    #[test]
    fn a_one_shot_in_a_loop_is_found() {
        let code = "async fn f() { while again { send().await; } }";
        let looped = problems(code, ("f", Shape::OneShot, false));
        assert_eq!(looped, ["`f` is a one-shot and awaits inside a loop"]);
    }

    #[test]
    fn a_decision_is_a_function_of_its_own_that_is_marked() {
        let row = |decision| Row {
            path: "a.rs".into(),
            item: "M::again".into(),
            shape: Shape::OneShot,
            uses_decide: false,
            decision,
            why: "why".into(),
            line: 1,
        };
        let decides = "impl M { fn again(&mut self) { self.second = true; self.evict(); } }";
        assert_eq!(problems_of(decides, &row(true)), [""; 0]);
        let unmarked = problems_of(decides, &row(false));
        assert!(unmarked[0].ends_with("if it decides that others do, say `decision = true`"), "{unmarked:?}");
        let acts = problems_of("impl M { async fn again(&mut self) { self.load().await } }", &row(true));
        assert_eq!(acts, ["`M::again` is said to be a mere decision, and awaits or loops"]);
        let gone = problems_of("impl M { fn other(&mut self) {} }", &row(true));
        assert_eq!(gone, ["stale row: `a.rs` has no function `M::again`"]);
    }
}
