//! `cargo xtask`: audits, generated docs, and everything that CI does.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a development tool; its output is for the terminal"
)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::audit::retry::smells::{self, output};
use xtask::bench::repair::Calls;
use xtask::bench::{self, Bench};
use xtask::finding::Report;
use xtask::workspace::Workspace;
use xtask::{audit, ci, drill, soak, tables};

/// Development tasks of gglib.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the house rules; all of them unless one is named.
    Audit {
        #[command(subcommand)]
        rule: Option<Rule>,
    },
    /// Write the generated pages of the docs.
    Tables {
        /// Write nothing; fail when a page is stale or the book's summary is wrong.
        #[arg(long)]
        check: bool,
    },
    /// Measure something, in a release build.
    Bench {
        #[command(subcommand)]
        what: What,
    },
    /// The upstream of `bench proxy` and `bench admission`.
    #[command(hide = true)]
    BenchUpstream {
        /// What `llama-server` would be given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Play every fault of an engine that a request can see, and write the page of what clients saw.
    Drill {
        /// On the scripted fake engine; `gglib drill` does it on the real one.
        #[arg(long, required = true)]
        fake: bool,
        /// Only the scenarios of this source (T10, S05), or with this in their name; writes no page.
        #[arg(long, value_name = "NAME")]
        scenario: Option<String>,
        /// Write nothing; fail when the page is stale.
        #[arg(long)]
        check: bool,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// Mixed traffic and random faults on the real engine: every request accounted for, nothing leaked.
    Soak {
        /// Minutes of traffic.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        minutes: u16,
        /// What is asked and done; another one each time without it.
        #[arg(long)]
        seed: Option<u64>,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// Do everything that CI does, stopping at the first failure.
    Ci,
}

#[derive(Subcommand)]
enum What {
    /// What the endpoint adds to a request, against a direct connection to an instant upstream.
    Proxy,
    /// Nanoseconds and allocations per retry decision, beside backon, retry-policies and tokio-retry.
    Retry,
    /// Seconds to simulate 10,000 clients that collide on one start-up.
    Startup,
    /// Time to first token after a swap, with and without saved slots; needs the real engine.
    Slots,
    /// Microseconds per request that the queue takes, alone and with the pool around it, at 1, 100 and 10,000 waiters.
    Admission,
    /// Tool calls of a real small model, without repair and with it: how many could be run, and what that costs.
    Repair {
        /// Seeded turns of each cell of the table.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        turns: u32,
        /// Only the calls that are held in this way.
        #[arg(long, value_enum)]
        calls: Option<Calls>,
    },
    /// Two real models of which one fits, beside llama-server's own router mode.
    Swap {
        /// How often each is measured; the median counts.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
    },
}

#[derive(Subcommand)]
enum Rule {
    /// Who may depend on whom, how manifests are written, and what the core may touch.
    Deps,
    /// Every place that waits in a loop or asks the retry policy is in docs/retry-sites.toml.
    Retry {
        /// Look at this tree instead of our own, for retries written by hand and what is wrong with them.
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
        /// How to write what was found in the tree.
        #[arg(long, value_enum, default_value_t = Format::Text, requires = "path")]
        format: Format,
    },
    /// Module docs, file sizes, forbidden macros and attributes, paths of one machine.
    Tidy,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For code scanners: SARIF 2.1.0.
    Sarif,
}

fn main() -> ExitCode {
    match run(&Args::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one task and says whether everything is in order.
fn run(task: &Task) -> Result<bool> {
    if let Task::BenchUpstream { args } = task {
        return bench::upstream::run(args).map(|()| true);
    }
    if let Task::Audit { rule: Some(Rule::Retry { path: Some(path), format }) } = task {
        let lint = smells::lint(path)?;
        match format {
            Format::Text => print!("{}", output::text(&lint)),
            Format::Json => println!("{:#}", output::json(&lint)),
            Format::Sarif => println!("{:#}", output::sarif(&lint)),
        }
        return Ok(lint.is_clean());
    }
    let root = Workspace::read(&env::current_dir()?)?.root;
    match task {
        Task::Audit { rule: None } => Ok(show(&audit::all(&root)?)),
        Task::Audit { rule: Some(Rule::Deps) } => Ok(show(&audit::deps(&root)?)),
        Task::Audit { rule: Some(Rule::Retry { .. }) } => Ok(show(&[audit::retry::audit(&root)?])),
        Task::Audit { rule: Some(Rule::Tidy) } => Ok(show(&[audit::tidy::audit(&root)?])),
        Task::Tables { check: true } => Ok(show(&[tables::check(&root)?])),
        Task::Tables { check: false } => write_tables(&root),
        Task::Bench { what: What::Proxy } => bench::run(&root, Bench::Proxy),
        Task::Bench { what: What::Retry } => bench::run(&root, Bench::Retry),
        Task::Bench { what: What::Startup } => bench::run(&root, Bench::Startup),
        Task::Bench { what: What::Slots } => bench::run(&root, Bench::Slots),
        Task::Bench { what: What::Admission } => bench::run(&root, Bench::Admission),
        Task::Bench { what: What::Repair { turns, calls } } => {
            bench::run(&root, Bench::Repair { turns: *turns, calls: *calls })
        }
        Task::Bench { what: What::Swap { rounds } } => {
            bench::run(&root, Bench::Swap { rounds: usize::from(*rounds) })
        }
        Task::BenchUpstream { .. } => unreachable!("answered above"),
        Task::Drill { fake: _, scenario, check, json } => {
            drill::run(&root, &drill::Options { scenario: scenario.clone(), check: *check, json: *json })
        }
        Task::Soak { minutes, seed, json } => {
            let seed = seed.unwrap_or_else(rand::random);
            soak::run(&root, soak::Options { minutes: *minutes, seed, json: *json })
        }
        Task::Ci => ci::run(&root),
    }
}

/// Prints the reports and says whether all of them are clean.
fn show(reports: &[Report]) -> bool {
    for report in reports {
        print!("{report}");
    }
    reports.iter().all(Report::is_clean)
}

fn write_tables(root: &Path) -> Result<bool> {
    for page in tables::write(root)? {
        println!("wrote {page}");
    }
    Ok(show(&[tables::check(root)?]))
}
