//! `gglib retry simulate layers`.

use serde_json::{Value, json};

use super::super::args::Layers;
use crate::error::CliError;
use crate::simulate::layers::{self, Outcome, Restraint, Settings};
use crate::simulate::plots;

pub(super) fn show(args: &Layers) -> Result<String, CliError> {
    let settings = Settings {
        layers: args.count,
        attempts: args.attempts,
        requests: args.requests,
        failing_percent: args.failing,
        seed: args.random.seed,
    };
    let results = Restraint::ALL.map(|restraint| (restraint, layers::run(settings, restraint)));
    args.picture.write(|| plots::layers(settings))?;
    Ok(if args.output.json { format!("{}\n", json(settings, &results)) } else { text(settings, &results) })
}

fn text(settings: Settings, results: &[(Restraint, Outcome)]) -> String {
    let Settings { layers, attempts, requests, failing_percent, .. } = settings;
    let mut lines = vec![
        format!("{requests} requests; layers: {layers}, attempts of each: {attempts}"),
        format!("{failing_percent} % of the calls at the bottom fail"),
        String::new(),
        format!("{:<20}{:>12}{:>12}{:>14}", "restraint", "calls", "load", "succeeded"),
    ];
    lines.extend(results.iter().map(|(restraint, outcome)| {
        let succeeded = f64::from(outcome.succeeded) / f64::from(requests) * 100.0;
        format!(
            "{:<20}{:>12}{:>11.3}×{succeeded:>12.1} %",
            restraint.as_str(),
            outcome.calls,
            load(settings, *outcome)
        )
    }));
    lines.join("\n") + "\n"
}

fn json(settings: Settings, results: &[(Restraint, Outcome)]) -> Value {
    let results: Vec<Value> = results
        .iter()
        .map(|(restraint, outcome)| {
            json!({
                "restraint": restraint.as_str(),
                "calls": outcome.calls,
                "load": load(settings, *outcome),
                "succeeded": outcome.succeeded,
            })
        })
        .collect();
    json!({
        "layers": settings.layers,
        "attempts": settings.attempts,
        "requests": settings.requests,
        "failing_percent": settings.failing_percent,
        "seed": settings.seed,
        "results": results,
    })
}

/// Calls for each original request.
#[expect(clippy::cast_precision_loss, reason = "counts of calls are far below 2^53")]
fn load(settings: Settings, outcome: Outcome) -> f64 {
    outcome.calls as f64 / f64::from(settings.requests)
}
