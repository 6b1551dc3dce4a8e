//! How times and policies are written.

use std::time::Duration;

use gglib_core::retry::{Backoff, HintRule, Jitter, RetryPolicy, RetryRules};
use serde_json::{Value, json};

/// `duration` in seconds, rounded to milliseconds, without needless digits: `1.5 s`.
pub(super) fn seconds(duration: Duration) -> String {
    if duration == Duration::MAX {
        return "for ever".to_owned();
    }
    let digits = format!("{:.3}", duration.as_secs_f64());
    format!("{} s", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A policy in three lines of text.
pub(super) fn policy(rules: &RetryRules) -> String {
    let policy = &rules.policy;
    let within = match policy.total_deadline {
        Duration::MAX => "without a deadline".to_owned(),
        deadline => format!("within {}", seconds(deadline)),
    };
    format!(
        "{}: {} attempts {within}\ndelays    {} from {} to {}, {}\nhints     {}\n",
        rules.name,
        policy.max_attempts,
        backoff(policy),
        seconds(policy.initial_backoff),
        seconds(policy.max_backoff),
        jitter(policy.jitter),
        hint_rule(policy),
    )
}

/// The same for programs; times in seconds.
pub(super) fn policy_json(rules: &RetryRules) -> Value {
    let policy = &rules.policy;
    json!({
        "name": rules.name,
        "max_attempts": policy.max_attempts,
        "initial_backoff_s": policy.initial_backoff.as_secs_f64(),
        "max_backoff_s": policy.max_backoff.as_secs_f64(),
        "total_deadline_s": deadline_json(policy),
    })
}

fn deadline_json(policy: &RetryPolicy) -> Option<f64> {
    (policy.total_deadline != Duration::MAX).then_some(policy.total_deadline.as_secs_f64())
}

fn backoff(policy: &RetryPolicy) -> &'static str {
    match (policy.jitter, policy.backoff) {
        (Jitter::Decorrelated | Jitter::DecorrelatedUnclamped, _) => "random",
        (_, Backoff::Fixed) => "fixed,",
        (_, Backoff::Linear) => "linear,",
        (_, Backoff::Exponential) => "exponential,",
    }
}

fn jitter(jitter: Jitter) -> String {
    match jitter {
        Jitter::None => "no jitter".to_owned(),
        Jitter::Full => "full jitter".to_owned(),
        Jitter::Equal => "equal jitter".to_owned(),
        Jitter::Additive { percent } => format!("up to {percent} % more"),
        Jitter::AdditiveOverCap { percent } => format!("up to {percent} % more, also beyond the cap"),
        Jitter::Subtractive { percent } => format!("up to {percent} % less"),
        Jitter::Decorrelated => "decorrelated jitter".to_owned(),
        Jitter::DecorrelatedUnclamped => "decorrelated jitter (cut after the draw)".to_owned(),
    }
}

fn hint_rule(policy: &RetryPolicy) -> String {
    let spread = policy.initial_backoff.min(policy.max_backoff);
    match policy.hint_rule {
        HintRule::Floor => format!(
            "a floor: up to {} of it, and up to {} more",
            seconds(policy.max_backoff),
            seconds(policy.initial_backoff)
        ),
        HintRule::Replace { max_hint } => format!("take the place of the delay, up to {}", seconds(max_hint)),
        HintRule::Obey { max_hint } => {
            format!("obeyed exactly; one beyond {} ends the sequence", seconds(max_hint))
        }
        HintRule::AtLeast { max_hint } => format!(
            "a floor, and up to {} more; one beyond {} ends the sequence",
            seconds(spread),
            seconds(max_hint)
        ),
    }
}

#[cfg(test)]
mod tests {
    use gglib_core::retry::preset;

    use super::*;

    #[test]
    fn seconds_are_rounded_to_milliseconds() {
        for (duration, text) in [
            (Duration::ZERO, "0 s"),
            (Duration::from_millis(1_500), "1.5 s"),
            (Duration::from_secs(60), "60 s"),
            (Duration::from_nanos(1_999_999_999), "2 s"),
            (Duration::MAX, "for ever"),
        ] {
            assert_eq!(seconds(duration), text);
        }
    }

    #[test]
    fn every_preset_fits_on_lines_of_80_columns() {
        for rules in preset::all() {
            let text = policy(&rules);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
}
