//! `gglib admission simulate`.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Shown, Simulate};
use crate::error::CliError;
use crate::simulate::admission::{self, Outcome, Rule, Workload};
use crate::simulate::plots;

pub(super) fn show(args: &Simulate) -> Result<String, CliError> {
    let (Shown(workloads), seed) = (&args.workload, args.random.seed);
    let outcomes: Vec<(Workload, Rule, Outcome)> = workloads
        .iter()
        .flat_map(|workload| Rule::ALL.map(|rule| (*workload, rule, admission::run(*workload, rule, seed))))
        .collect();
    args.picture.write(|| plots::admission(seed, &outcomes))?;
    let parts = outcomes.chunk_by(|one, other| one.0 == other.0);
    Ok(if args.output.json {
        let workloads: Vec<Value> = parts.map(|outcomes| json(seed, outcomes)).collect();
        format!("{}\n", json!({ "seed": seed, "workloads": workloads }))
    } else {
        let parts: Vec<String> = parts.map(|outcomes| text(seed, outcomes)).collect();
        parts.join("\n")
    })
}

/// A table for the outcomes of one workload.
fn text(seed: u64, outcomes: &[(Workload, Rule, Outcome)]) -> String {
    let Some((workload, _, outcome)) = outcomes.first() else { return String::new() };
    let mut lines = vec![
        format!("{}: {}", workload.as_str(), workload.about()),
        format!(
            "{} requests, seed {seed}; bound of gglib's oldest waiters: {:.0} s",
            outcome.waits.len(),
            workload.bound(seed).as_secs_f64()
        ),
        String::new(),
        format!(
            "{:<10}{:>7}{:>10}{:>13}{:>13}{:>13}{:>14}",
            "rule", "loads", "expired", "wait p50, s", "p99, s", "longest, s", "all done, s"
        ),
    ];
    lines.extend(outcomes.iter().map(|(_, rule, outcome)| {
        let [p50, p99, longest] = [50, 99, 100].map(|percent| tenths(outcome.wait(percent)));
        format!(
            "{:<10}{:>7}{:>10}{p50:>13}{p99:>13}{longest:>13}{:>14}",
            rule.as_str(),
            outcome.loads,
            outcome.expired(),
            tenths(outcome.makespan)
        )
    }));
    lines.join("\n") + "\n"
}

fn json(seed: u64, outcomes: &[(Workload, Rule, Outcome)]) -> Value {
    let rules: Vec<Value> = outcomes
        .iter()
        .map(|(_, rule, outcome)| {
            json!({
                "rule": rule.as_str(),
                "requests": outcome.waits.len(),
                "loads": outcome.loads,
                "expired": outcome.expired(),
                "wait_p50_s": outcome.wait(50).as_secs_f64(),
                "wait_p99_s": outcome.wait(99).as_secs_f64(),
                "wait_max_s": outcome.wait(100).as_secs_f64(),
                "makespan_s": outcome.makespan.as_secs_f64(),
            })
        })
        .collect();
    let workload = outcomes.first().map(|(workload, ..)| *workload);
    json!({
        "workload": workload.map(Workload::as_str),
        "bound_s": workload.map(|workload| workload.bound(seed).as_secs_f64()),
        "rules": rules,
    })
}

/// In seconds, with one digit after the point.
fn tenths(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}
