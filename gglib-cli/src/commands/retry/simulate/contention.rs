//! `gglib retry simulate contention`.

use serde_json::{Value, json};

use super::super::args::Contention;
use crate::error::CliError;
use crate::simulate::contention::{self, Cost, Settings, Strategy};
use crate::simulate::{Estimate, plots};

pub(super) fn show(args: &Contention) -> Result<String, CliError> {
    let settings = Settings { clients: args.clients, trials: args.trials, seed: args.random.seed };
    let strategies = args.strategy.map_or(Strategy::ALL.to_vec(), |strategy| vec![strategy]);
    let costs: Vec<(Strategy, Cost)> = strategies
        .into_iter()
        .map(|strategy| (strategy, contention::run(&strategy.policy(), settings)))
        .collect();
    args.picture.write(|| plots::contention(settings, &costs))?;
    Ok(if args.output.json { format!("{}\n", json(settings, &costs)) } else { text(settings, &costs) })
}

fn text(settings: Settings, costs: &[(Strategy, Cost)]) -> String {
    let Settings { clients, trials, seed } = settings;
    let mut lines = vec![
        format!("{clients} clients write one row; means of {trials} trials, ± standard error, seed {seed}"),
        String::new(),
        format!("{:<14}{:>20}{:>20}", "strategy", "time, ms", "calls"),
    ];
    let cell = |estimate: Estimate| format!("{:.0} ± {:>5.1}", estimate.mean, estimate.standard_error);
    lines.extend(costs.iter().map(|(strategy, cost)| {
        format!("{:<14}{:>20}{:>20}", strategy.as_str(), cell(cost.time_ms), cell(cost.calls))
    }));
    lines.join("\n") + "\n"
}

fn json(settings: Settings, costs: &[(Strategy, Cost)]) -> Value {
    let estimate = |estimate: Estimate| {
        json!({
            "mean": estimate.mean,
            "deviation": estimate.deviation,
            "standard_error": estimate.standard_error,
        })
    };
    let strategies: Vec<Value> = costs
        .iter()
        .map(|(strategy, cost)| {
            json!({
                "name": strategy.as_str(),
                "time_ms": estimate(cost.time_ms),
                "calls": estimate(cost.calls),
            })
        })
        .collect();
    json!({
        "clients": settings.clients,
        "trials": settings.trials,
        "seed": settings.seed,
        "strategies": strategies,
    })
}
