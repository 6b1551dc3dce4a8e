//! A policy against what a server has answered: a recorded trace instead of a model.
//!
//! The n-th attempt gets the n-th recorded answer, whoever makes it: a request takes an answer, if that is a failure
//! its retry takes the next one, and the next request begins when this one has ended. So a policy that gives up
//! early spends more requests on the same outage. What a policy would have changed about the server is not in a trace.

use std::time::Duration;

use gglib_core::moment::Moment;
use gglib_core::retry::{
    BudgetSettings, Cause, Failure, Next, RetriesAbove, RetryBudget, RetryRules, RetrySequence, Target,
};
use http::StatusCode;
use serde_json::Value;
use thiserror::Error;

use super::random::Random;

/// One recorded answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status; from 400 on it is a failure.
    pub status: StatusCode,
    /// From the request to the answer.
    pub latency: Duration,
    /// Its `Retry-After`.
    pub hint: Option<Duration>,
}

/// A line of a trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "line {line}: {problem}; a line is such as {{\"status\": 503, \"latency_ms\": 20, \"retry_after\": 3}}"
)]
pub struct TraceError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// Reads JSON lines of `status`, `latency_ms` and, in seconds, `retry_after`; empty lines are skipped.
///
/// ```
/// use gglib_cli::simulate::replay;
///
/// let trace = replay::parse("{\"status\": 503, \"latency_ms\": 20, \"retry_after\": 3}\n")?;
/// assert_eq!(trace[0].hint, Some(std::time::Duration::from_secs(3)));
/// # Ok::<(), replay::TraceError>(())
/// ```
pub fn parse(text: &str) -> Result<Vec<Answer>, TraceError> {
    (1..)
        .zip(text.lines())
        .filter(|(_, text)| !text.trim().is_empty())
        .map(|(line, text)| answer(text).map_err(|problem| TraceError { line, problem }))
        .collect()
}

fn answer(text: &str) -> Result<Answer, &'static str> {
    let value: Value = serde_json::from_str(text).map_err(|_| "not JSON")?;
    let status = value["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let status = status.and_then(|status| StatusCode::from_u16(status).ok()).ok_or("no HTTP status")?;
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
    let latency = value["latency_ms"].as_f64().and_then(|latency| seconds(latency / 1_000.0));
    let latency = latency.ok_or("no latency in milliseconds")?;
    let hint = match &value["retry_after"] {
        Value::Null => None,
        hint => Some(hint.as_f64().and_then(seconds).ok_or("`retry_after` is not a number of seconds")?),
    };
    Ok(Answer { status, latency, hint })
}

/// What became of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests that ended before the trace did.
    pub requests: u32,
    /// Attempts of these.
    pub attempts: u32,
    /// For each request that succeeded, the time before its last attempt, in order of length.
    pub added: Vec<Duration>,
}

/// Replays `trace` to clients that retry by `rules`, and share a budget.
pub fn run(rules: &RetryRules, trace: &[Answer], seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let budget = RetryBudget::new(BudgetSettings::for_policy(&rules.policy));
    let mut target = Target { budget: Some(budget), breaker: None };
    let mut answers = trace.iter().copied();
    let mut now = Moment::ORIGIN;
    let mut outcome = Outcome::default();
    while let Some(end) = request(rules, &mut answers, &mut now, &mut target, &mut random) {
        outcome.requests += 1;
        outcome.attempts += end.attempts;
        outcome.added.extend(end.added);
    }
    outcome.added.sort_unstable();
    outcome
}

struct End {
    attempts: u32,
    /// If it succeeded.
    added: Option<Duration>,
}

/// One request; `None` if the trace ends before it does.
fn request(
    rules: &RetryRules,
    answers: &mut impl Iterator<Item = Answer>,
    now: &mut Moment,
    target: &mut Target,
    random: &mut Random,
) -> Option<End> {
    let began = *now;
    let (mut sequence, mut step) = RetrySequence::begin(rules, RetriesAbove::NONE, began, target);
    loop {
        step = match step.next {
            Next::Attempt => {
                let added = now.saturating_since(began);
                let answer = answers.next()?;
                *now = now.saturating_add(answer.latency);
                if answer.status.as_u16() < 400 {
                    let attempts = sequence.attempts();
                    let _ = sequence.on_success(*now, target);
                    return Some(End { attempts, added: Some(added) });
                }
                let failure = Failure { hint: answer.hint, ..Failure::new(Cause::Status(answer.status)) };
                sequence.on_failure(&failure, *now, random.unit(), target)
            }
            Next::Wait { delay } => {
                *now = now.saturating_add(delay);
                sequence.on_wake(*now, target)
            }
            Next::GiveUp { .. } => return Some(End { attempts: sequence.attempts(), added: None }),
        };
    }
}

#[cfg(test)]
mod tests {
    use gglib_core::retry::preset;

    use super::*;

    fn trace(statuses: &[u16]) -> Vec<Answer> {
        let answer = |&status: &u16| Answer {
            status: StatusCode::from_u16(status).expect("a status"),
            latency: Duration::from_millis(100),
            hint: None,
        };
        statuses.iter().map(answer).collect()
    }

    #[test]
    fn retries_take_the_answers_in_order() {
        let mut trace = trace(&[200, 503, 503, 200, 400, 200]);
        trace[1].hint = Some(Duration::from_secs(5));
        let outcome = run(&preset::fixed(), &trace, 1);
        // A bad request is not repeated.
        assert_eq!((outcome.requests, outcome.attempts), (4, 6));
        let [first, second, third] = outcome.added[..] else { panic!("{outcome:?}") };
        assert_eq!((first, second), (Duration::ZERO, Duration::ZERO));
        // Two failures of 100 ms each, a hint of 5 s with up to 1 s more, and a fixed second.
        assert!((6_200..7_200).contains(&third.as_millis()), "{third:?}");
    }

    #[test]
    fn attempts_end_with_the_policy_and_requests_with_the_trace() {
        let replay = |statuses: &[u16]| {
            let outcome = run(&preset::openai_sdk(), &trace(statuses), 1);
            (outcome.requests, outcome.attempts, outcome.added.len())
        };
        assert_eq!(replay(&[503; 3]), (1, 3, 0));
        // The third answer is missing, so that nobody knows how the request would have ended.
        assert_eq!(replay(&[503; 2]), (0, 0, 0));
        // The first request has used up the budget of its window.
        assert_eq!(replay(&[503; 8]), (6, 8, 0));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let good = "{\"status\": 200, \"latency_ms\": 1.5}\n\n";
        assert_eq!(parse(good).map(|trace| trace[0].latency), Ok(Duration::from_micros(1_500)));
        for (bad, problem) in [
            ("status 200", "not JSON"),
            ("{\"status\": 2000, \"latency_ms\": 1}", "no HTTP status"),
            ("{\"status\": 200}", "no latency in milliseconds"),
            ("{\"status\": 503, \"latency_ms\": -1}", "no latency in milliseconds"),
            (
                "{\"status\": 503, \"latency_ms\": 1, \"retry_after\": \"soon\"}",
                "`retry_after` is not a number of seconds",
            ),
        ] {
            assert_eq!(parse(&format!("{good}{bad}")), Err(TraceError { line: 3, problem }), "{bad}");
        }
    }
}
