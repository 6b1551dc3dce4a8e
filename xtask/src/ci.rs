//! Everything that CI does, in order of how soon it can fail; stops at the first failure.

#![expect(clippy::print_stdout, reason = "says what it is doing while it works")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::audit;
use crate::drill;
use crate::finding::Report;
use crate::soak;
use crate::tables;
use crate::workspace::cargo;
use stopwatch::Stopwatch;

pub mod real_engine;

mod python;
mod stopwatch;
mod tests;

/// What a step came to: a line for the summary, or why it failed.
type Outcome = Result<String>;

struct Step {
    name: &'static str,
    run: fn(&Path) -> Outcome,
}

const STEPS: &[Step] = &[
    Step { name: "python", run: python::check },
    Step { name: "fmt", run: |root| cargo_step(root, &["fmt", "--all", "--check"], &[]) },
    Step { name: "audit", run: |root| reports(&audit::all(root)?) },
    Step { name: "tables", run: |root| reports(&[tables::check(root)?]) },
    Step {
        name: "clippy",
        run: |root| {
            cargo_step(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
        },
    },
    Step {
        name: "doc",
        run: |root| cargo_step(root, &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-Dwarnings")]),
    },
    Step { name: "test", run: tests::run },
    Step { name: "drill", run: drill_fake },
    Step { name: "soak", run: short_soak },
];

/// Runs the steps on the workspace at `root` up to the first failure, and says whether all of them passed.
pub fn run(root: &Path) -> Result<bool> {
    let whole = Stopwatch::start();
    let mut summary = Vec::new();
    let mut passed = true;
    for Step { name, run } in STEPS {
        if !passed {
            summary.push(format!("  not run  {name}"));
            continue;
        }
        println!("==> {name}");
        let watch = Stopwatch::start();
        let outcome = run(root);
        let took = seconds(watch.elapsed());
        println!("<== {name} took {took}\n");
        passed = outcome.is_ok();
        summary.push(match outcome {
            Ok(result) => format!("  passed   {name:<8}{took:>9}  {result}"),
            Err(error) => format!("  FAILED   {name:<8}{took:>9}  {error:#}"),
        });
    }
    for line in &summary {
        println!("{}", line.trim_end());
    }
    println!("ci {} after {}", if passed { "passed" } else { "FAILED" }, seconds(whole.elapsed()));
    Ok(passed)
}

fn drill_fake(root: &Path) -> Outcome {
    let options = drill::Options { check: true, ..drill::Options::default() };
    anyhow::ensure!(drill::run(root, &options)?, "the drill was not as it should be, see above");
    Ok(String::new())
}

fn short_soak(root: &Path) -> Outcome {
    let options = soak::Options { minutes: 2, seed: 1, json: false };
    anyhow::ensure!(soak::run(root, options)?, "the soak was not as it should be, see above");
    Ok(String::new())
}

fn cargo_step(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let command = format!("cargo {}", arguments.join(" "));
    println!("{command}");
    let status = Command::new(cargo())
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot start `{command}`"))?;
    anyhow::ensure!(status.success(), "`{command}` failed");
    Ok(String::new())
}

fn reports(reports: &[Report]) -> Outcome {
    for report in reports {
        print!("{report}");
    }
    let findings: usize = reports.iter().map(|report| report.findings.len()).sum();
    anyhow::ensure!(findings == 0, "{findings} findings, listed above");
    Ok(String::new())
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
