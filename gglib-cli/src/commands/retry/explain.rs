//! `gglib retry explain`: one decision, rule by rule, and when the sequence would end.

use std::time::Duration;

use gglib_core::retry::{Backoff, GiveUpReason, HintRule, Jitter, RetryDecision, RetryPolicy, decide_with};
use serde_json::json;

use super::args::Explain;
use super::text::{self, seconds};

pub(super) fn show(args: &Explain) -> String {
    let case = Case::new(args);
    let end = case.end();
    if args.output.json {
        return format!("{}\n", json(args, &case, &end));
    }
    let mut lines = vec![text::policy(&args.preset.rules)];
    lines.extend(case.steps().iter().map(|(rule, says)| format!("{rule:<10}{says}")));
    lines.push(match case.decision() {
        RetryDecision::Retry { after } => format!("\nRetry after {}.", seconds(after)),
        RetryDecision::GiveUp(reason) => format!("\nGive up: {reason}."),
    });
    if !end.attempts.is_empty() {
        lines.push("If all further attempts fail at once, with the same hint and unit:".to_owned());
        lines.extend(
            end.attempts.iter().map(|(attempt, at)| format!("  attempt {attempt} at {}", seconds(*at))),
        );
        lines.push(format!("  then give up: {}", end.reason));
    }
    lines.join("\n") + "\n"
}

fn json(args: &Explain, case: &Case<'_>, end: &End) -> serde_json::Value {
    let (after, give_up) = match case.decision() {
        RetryDecision::Retry { after } => (Some(after.as_secs_f64()), None),
        RetryDecision::GiveUp(reason) => (None, Some(reason.as_str())),
    };
    let steps = case.steps();
    json!({
        "policy": text::policy_json(&args.preset.rules),
        "steps": steps.iter().map(|(rule, says)| json!({ "rule": rule, "says": says })).collect::<Vec<_>>(),
        "retry_after_s": after,
        "give_up": give_up,
        "then": {
            "attempts": end.attempts.iter()
                .map(|(attempt, at)| json!({ "attempt": attempt, "at_s": at.as_secs_f64() }))
                .collect::<Vec<_>>(),
            "give_up": end.reason.as_str(),
        },
    })
}

/// The arguments of one decision.
#[derive(Clone, Copy, Debug)]
struct Case<'p> {
    policy: &'p RetryPolicy,
    attempt: u32,
    hint: Option<Duration>,
    elapsed: Duration,
    unit: f64,
    previous: Duration,
}

/// How a sequence goes on if nothing changes.
#[derive(Debug)]
struct End {
    /// The number of each further attempt, and when it starts.
    attempts: Vec<(u32, Duration)>,
    reason: GiveUpReason,
}

impl<'p> Case<'p> {
    /// The previous delay is the one that the same unit has led to.
    fn new(args: &'p Explain) -> Self {
        let policy = &args.preset.rules.policy;
        let first = Case {
            policy,
            attempt: 1,
            hint: None,
            elapsed: Duration::ZERO,
            unit: args.unit,
            previous: policy.initial_backoff,
        };
        let before = args.attempt.min(policy.max_attempts);
        let previous = (1..before).fold(first.previous, |previous, attempt| {
            Case { attempt, previous, ..first }.unbounded_delay(args.unit).unwrap_or(previous)
        });
        Case { attempt: args.attempt, hint: args.retry_after, elapsed: args.elapsed, previous, ..first }
    }

    fn decision(&self) -> RetryDecision {
        self.answer(self.policy, self.unit)
    }

    /// The delay if neither attempts nor time were limited; `None` if the hint is too long.
    fn unbounded_delay(&self, unit: f64) -> Option<Duration> {
        let unbounded = RetryPolicy { max_attempts: u32::MAX, total_deadline: Duration::MAX, ..*self.policy };
        match self.answer(&unbounded, unit) {
            RetryDecision::Retry { after } => Some(after),
            RetryDecision::GiveUp(_) => None,
        }
    }

    fn answer(&self, policy: &RetryPolicy, unit: f64) -> RetryDecision {
        decide_with(policy, self.attempt, self.hint, self.elapsed, unit, self.previous)
    }

    /// The rules that were looked at, in order, up to the one that decided.
    fn steps(&self) -> Vec<(&'static str, String)> {
        let policy = self.policy;
        let gave_up = match self.decision() {
            RetryDecision::Retry { .. } => None,
            RetryDecision::GiveUp(reason) => Some(reason),
        };
        let mut steps =
            vec![("attempts", format!("{} of {} have failed", self.attempt, policy.max_attempts))];
        if gave_up == Some(GiveUpReason::AttemptsExhausted) {
            return steps;
        }
        let deadline = (policy.total_deadline != Duration::MAX).then_some(policy.total_deadline);
        steps.push((
            "deadline",
            deadline.map_or("none".to_owned(), |deadline| {
                format!("{} of {} have passed", seconds(self.elapsed), seconds(deadline))
            }),
        ));
        if deadline.is_some_and(|deadline| self.elapsed >= deadline) {
            return steps;
        }
        if let Some(hint) = self.hint {
            steps.push(("hint", format!("{}: {}", seconds(hint), self.hint_formula(hint))));
        }
        let Some(delay) = self.unbounded_delay(self.unit) else {
            return steps;
        };
        if self.hint.is_none_or(|hint| self.is_own_delay(hint)) {
            steps.push(("delay", self.own_formula()));
        }
        let window = [0.0, 1.0].map(|unit| self.unbounded_delay(unit).unwrap_or(delay));
        steps.push((
            "window",
            if window[0] == window[1] {
                format!("always {}", seconds(delay))
            } else {
                let [low, high] = window.map(seconds);
                format!("from {low} up to {high}; at u = {}: {}", self.unit, seconds(delay))
            },
        ));
        if let Some(deadline) = deadline {
            let start = self.elapsed.saturating_add(delay);
            let fits = if start < deadline { "before" } else { "not before" };
            steps.push(("next", format!("would start at {}, {fits} {}", seconds(start), seconds(deadline))));
        }
        steps
    }

    /// Whether the policy's own delay counts in spite of the hint.
    fn is_own_delay(&self, hint: Duration) -> bool {
        match self.policy.hint_rule {
            HintRule::Floor => false,
            HintRule::Replace { .. } | HintRule::Obey { .. } => hint.is_zero(),
            HintRule::AtLeast { .. } => true,
        }
    }

    fn hint_formula(&self, hint: Duration) -> String {
        let policy = self.policy;
        let (initial, max) = (seconds(policy.initial_backoff), seconds(policy.max_backoff));
        match policy.hint_rule {
            HintRule::Floor => format!("min(hint, {max}) + u × {initial}"),
            HintRule::Replace { .. } | HintRule::Obey { .. } if hint.is_zero() => "counts as none".to_owned(),
            HintRule::Replace { max_hint } => format!("min(hint, {}), then jitter", seconds(max_hint)),
            HintRule::Obey { max_hint } | HintRule::AtLeast { max_hint } if hint > max_hint => {
                format!("beyond {}, the longest that is waited for", seconds(max_hint))
            }
            HintRule::Obey { .. } => "exactly".to_owned(),
            HintRule::AtLeast { .. } => format!("at least hint + u × min({initial}, {max})"),
        }
    }

    fn own_formula(&self) -> String {
        let policy = self.policy;
        let (initial, max) = (seconds(policy.initial_backoff), seconds(policy.max_backoff));
        let grown = match policy.backoff {
            Backoff::Fixed => format!("min({max}, {initial})"),
            Backoff::Linear => format!("min({max}, {initial} × {})", self.attempt),
            Backoff::Exponential => format!("min({max}, {initial} × 2^{})", self.attempt.saturating_sub(1)),
        };
        let previous = seconds(self.previous);
        match policy.jitter {
            Jitter::None => grown,
            Jitter::Full => format!("u × {grown}"),
            Jitter::Equal => format!("(1 + u)/2 × {grown}"),
            Jitter::Additive { percent } => format!("{grown} × (1 + u × {percent} %), within the cap"),
            Jitter::AdditiveOverCap { percent } => format!("{grown} × (1 + u × {percent} %)"),
            Jitter::Subtractive { percent } => format!("{grown} × (1 - (1 - u) × {percent} %)"),
            Jitter::Decorrelated => format!("between {initial} and min({max}, 3 × {previous})"),
            Jitter::DecorrelatedUnclamped => format!("min({max}, between {initial} and 3 × {previous})"),
        }
    }

    fn end(&self) -> End {
        let mut attempts = Vec::new();
        let mut case = *self;
        loop {
            match case.decision() {
                RetryDecision::Retry { after } => {
                    case.attempt += 1;
                    case.elapsed = case.elapsed.saturating_add(after);
                    case.previous = after;
                    attempts.push((case.attempt, case.elapsed));
                }
                RetryDecision::GiveUp(reason) => return End { attempts, reason },
            }
        }
    }
}
