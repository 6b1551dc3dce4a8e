//! `gglib retry table`: the decision table of a policy.

use std::time::Duration;

use gglib_core::retry::{RetryDecision, RetryPolicy, decide_with, table};
use serde_json::{Value, json};

use super::args::Table;
use super::text;

/// No hint, and hints in seconds.
const HINTS: [Option<u64>; 4] = [None, Some(0), Some(5), Some(60)];
const UNITS: [f64; 3] = [0.0, 0.5, 0.875];

pub(super) fn show(args: &Table) -> String {
    let rules = &args.preset.rules;
    if args.output.json {
        let decisions = decisions(&rules.policy);
        return format!("{}\n", json!({ "policy": text::policy_json(rules), "decisions": decisions }));
    }
    format!("{}\n{}", text::policy(rules), table::render(&rules.policy))
}

/// What is decided at the start of the sequence, one object per case; times in seconds.
fn decisions(policy: &RetryPolicy) -> Vec<Value> {
    let mut decisions = Vec::new();
    for unit in UNITS {
        let mut previous = policy.initial_backoff;
        for attempt in 1..=policy.max_attempts {
            let decide = |hint: Option<u64>| {
                decide_with(policy, attempt, hint.map(Duration::from_secs), Duration::ZERO, unit, previous)
            };
            for hint in HINTS {
                let (after, give_up) = match decide(hint) {
                    RetryDecision::Retry { after } => (Some(after.as_secs_f64()), None),
                    RetryDecision::GiveUp(reason) => (None, Some(reason.as_str())),
                };
                decisions.push(json!({
                    "failed_attempts": attempt, "hint_s": hint, "unit": unit,
                    "retry_after_s": after, "give_up": give_up,
                }));
            }
            if let RetryDecision::Retry { after } = decide(None) {
                previous = after;
            }
        }
    }
    decisions
}

#[cfg(test)]
mod tests {
    use gglib_core::retry::preset;

    use super::*;

    #[test]
    fn every_case_is_an_object_of_its_own() {
        let decisions = decisions(&preset::gglib().policy);
        assert_eq!(decisions.len(), UNITS.len() * 4 * HINTS.len());
        let case = |attempt: u32, hint: Option<u64>| {
            decisions
                .iter()
                .find(|row| {
                    row["failed_attempts"] == attempt && row["hint_s"] == json!(hint) && row["unit"] == 0.5
                })
                .expect("listed")
        };
        assert_eq!(case(3, None)["retry_after_s"], 2.0);
        assert_eq!(case(1, Some(60))["retry_after_s"], 15.5);
        assert_eq!(case(4, None)["give_up"], "attempts exhausted");
    }

    #[test]
    fn decorrelated_delays_grow_from_the_one_before() {
        let decisions = decisions(&preset::decorrelated_jitter().policy);
        let delays: Vec<&Value> = decisions
            .iter()
            .filter(|row| row["unit"] == 0.5 && row["hint_s"].is_null())
            .map(|row| &row["retry_after_s"])
            .collect();
        // Half of the way from 1 s to three times the previous delay.
        assert_eq!(delays, [&json!(2.0), &json!(3.5), &json!(5.75), &json!(9.125), &Value::Null]);
    }
}
