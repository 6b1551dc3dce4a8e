//! The decision table of a policy, for people: it stands in the documentation and in snapshot tests.

use std::time::Duration;

use super::decision::{RetryDecision, decide_with};
use super::policy::RetryPolicy;

/// No hint; "at once"; one that most policies wait for; the longest that a gglib server sends.
const HINTS: [Option<Duration>; 4] =
    [None, Some(Duration::ZERO), Some(Duration::from_secs(5)), Some(Duration::from_mins(1))];

/// Sums of powers of two, so that the delays are round numbers.
const UNITS: [f64; 3] = [0.0, 0.5, 0.875];

/// The rows of the longest table; a policy with more attempts repeats itself by then.
const MOST_ATTEMPTS: u32 = 8;

/// What [`decide_with`] answers under `policy`, as a Markdown table.
///
/// A row for each number of failed attempts and each hint, a column for each elapsed time (none, half of the
/// deadline, the deadline less `initial_backoff`, the deadline). A cell shows the answers for the jitter units
/// 0, 0.5 and 0.875, or only one where they are equal: a delay, or the reason for giving up. Where the previous
/// delay matters (decorrelated jitter), it is the one that the same unit gave in the row above, without a hint.
///
/// ```
/// use gglib_core::retry::{RetryPolicy, table};
///
/// let table = table::render(&RetryPolicy::disabled());
/// assert!(table.contains("| 1 | none | attempts exhausted |"), "{table}");
/// ```
pub fn render(policy: &RetryPolicy) -> String {
    let columns = elapsed_times(policy);
    let headings = columns.iter().map(|&elapsed| format!("at {}", seconds(elapsed)));
    let mut table = row(["failed attempts", "hint"].map(str::to_owned).into_iter().chain(headings));
    table += &"|---".repeat(columns.len() + 2);
    table += "|\n";
    for attempt in 1..=policy.max_attempts.clamp(1, MOST_ATTEMPTS) {
        for hint in HINTS {
            let head = [attempt.to_string(), hint.map_or("none".to_owned(), seconds)];
            let cells = columns.iter().map(|&elapsed| cell(policy, attempt, hint, elapsed));
            table += &row(head.into_iter().chain(cells));
        }
    }
    table
}

fn elapsed_times(policy: &RetryPolicy) -> Vec<Duration> {
    let deadline = policy.total_deadline;
    if deadline == Duration::MAX {
        return vec![Duration::ZERO];
    }
    let mut times =
        vec![Duration::ZERO, deadline / 2, deadline.saturating_sub(policy.initial_backoff), deadline];
    times.sort_unstable();
    times.dedup();
    times
}

fn row(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn cell(policy: &RetryPolicy, attempt: u32, hint: Option<Duration>, elapsed: Duration) -> String {
    let mut answers = UNITS
        .map(|unit| {
            let previous = previous_delay(policy, attempt, unit);
            answer(decide_with(policy, attempt, hint, elapsed, unit, previous))
        })
        .to_vec();
    if answers.iter().all(|answer| *answer == answers[0]) {
        answers.truncate(1);
    }
    answers.join(", ")
}

/// The delay before the attempt that is the `attempt`-th to fail, if all before it were drawn by `unit`.
fn previous_delay(policy: &RetryPolicy, attempt: u32, unit: f64) -> Duration {
    let mut previous = policy.initial_backoff;
    for earlier in 1..attempt {
        if let RetryDecision::Retry { after } =
            decide_with(policy, earlier, None, Duration::ZERO, unit, previous)
        {
            previous = after;
        }
    }
    previous
}

fn answer(decision: RetryDecision) -> String {
    match decision {
        RetryDecision::Retry { after } => seconds(after),
        RetryDecision::GiveUp(reason) => reason.to_string(),
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
