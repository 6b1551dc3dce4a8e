//! `gglib retry simulate startup`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::args::Startup;
use super::super::text::seconds;
use crate::error::CliError;
use crate::simulate::startup::{self, Bounds, Outcome, Settings};
use crate::simulate::{percentile, plots};

/// Rows of the table, and the width of the longest bar.
const ROWS: usize = 20;
const BAR: usize = 50;

pub(super) fn show(args: &Startup) -> Result<String, CliError> {
    let settings = Settings {
        clients: args.clients,
        load: args.load,
        service: args.service,
        parallel: args.parallel,
        bounds: Bounds { queue: args.queue as usize, ..Bounds::default() },
        hint: args.hint,
        seed: args.random.seed,
    };
    let rules = &args.preset.rules;
    let outcome = startup::run(rules, settings);
    args.picture.write(|| plots::startup(rules.name, settings, &outcome))?;
    Ok(if args.output.json { format!("{}\n", json(args, &outcome)) } else { text(args, &outcome) })
}

fn text(args: &Startup, outcome: &Outcome) -> String {
    let mut lines = vec![
        format!(
            "{} clients, one model that loads in {}; then {} answers at once, {} each",
            args.clients,
            seconds(args.load),
            args.parallel,
            seconds(args.service)
        ),
        format!(
            "policy {}, queue of {}, hint: {}, seed {}",
            args.preset.rules.name,
            args.queue,
            args.hint.as_str(),
            args.random.seed
        ),
        String::new(),
        format!("{:>7}{:>10}", "second", "calls"),
    ];
    let counts = per_second(&outcome.calls);
    let step = counts.len().div_ceil(ROWS).max(1);
    let rows: Vec<usize> = counts.chunks(step).map(|counts| counts.iter().sum()).collect();
    let most = rows.iter().copied().max().unwrap_or(0).max(1);
    lines.extend((0..).step_by(step).zip(rows).map(|(second, calls)| {
        let bar = "#".repeat((calls * BAR).div_ceil(most));
        format!("{second:>7}{calls:>10}  {bar}").trim_end().to_owned()
    }));
    let time = |percent| percentile(&outcome.answered, percent).map_or("-".to_owned(), seconds);
    lines.extend([
        String::new(),
        format!("answered  {} (p50 {}, p99 {})", outcome.answered.len(), time(50), time(99)),
        format!("gave up   {}{}", outcome.gave_up.len(), reasons(outcome)),
        format!("calls     {}", outcome.calls.len()),
    ]);
    lines.join("\n") + "\n"
}

fn json(args: &Startup, outcome: &Outcome) -> Value {
    let time = |percent| percentile(&outcome.answered, percent).map(|time| time.as_secs_f64());
    json!({
        "policy": args.preset.rules.name,
        "hint": args.hint.as_str(),
        "clients": args.clients,
        "seed": args.random.seed,
        "answered": outcome.answered.len(),
        "answered_p50_s": time(50),
        "answered_p99_s": time(99),
        "gave_up": outcome.gave_up.len(),
        "calls": outcome.calls.len(),
        "calls_per_second": per_second(&outcome.calls),
    })
}

/// How many there are in each second, up to the last.
fn per_second(times: &[Duration]) -> Vec<usize> {
    let mut counts = Vec::new();
    for time in times {
        let second = usize::try_from(time.as_secs()).unwrap_or(usize::MAX - 1);
        if counts.len() <= second {
            counts.resize(second + 1, 0);
        }
        counts[second] += 1;
    }
    counts
}

fn reasons(outcome: &Outcome) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, reason) in &outcome.gave_up {
        *counts.entry(reason.as_str()).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}
