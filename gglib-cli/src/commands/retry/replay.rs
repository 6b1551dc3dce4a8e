//! `gglib retry replay`: a policy against a recorded trace.

use serde_json::json;

use super::args::Replay;
use super::text::{self, seconds};
use crate::simulate::{percentile, replay};

pub(super) fn show(args: &Replay) -> String {
    let rules = &args.preset.rules;
    let outcome = replay::run(rules, &args.trace, args.random.seed);
    let requests = f64::from(outcome.requests.max(1));
    let load = f64::from(outcome.attempts) / requests;
    let succeeded = outcome.added.len();
    if args.output.json {
        let added = |percent| percentile(&outcome.added, percent).map(|time| time.as_secs_f64());
        let result = json!({
            "policy": text::policy_json(rules),
            "requests": outcome.requests,
            "succeeded": succeeded,
            "added_p50_s": added(50),
            "added_p99_s": added(99),
            "load": load,
        });
        return format!("{result}\n");
    }
    let added = |percent| percentile(&outcome.added, percent).map_or("-".to_owned(), seconds);
    let share = f64::from(u32::try_from(succeeded).unwrap_or(u32::MAX)) / requests * 100.0;
    format!(
        "{}\nrequests  {}, of which {succeeded} succeeded ({share:.1} %)\nadded     p50 {}, p99 {}\n\
         load      {load:.3}×\n",
        text::policy(rules),
        outcome.requests,
        added(50),
        added(99),
    )
}
