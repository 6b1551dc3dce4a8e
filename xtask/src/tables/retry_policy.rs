//! The page on the retry policy: its fields and its decisions, for three policies.

use std::time::Duration;

use gglib_core::retry::{DEADLINE_ENV_VAR, MAX_ATTEMPTS_ENV_VAR, RetryPolicy, table};

use super::markdown::{self, Page};

/// The deadline of the tightened policy, in seconds.
const TIGHTENED: &str = "10";

/// Renders the policies.
pub fn render() -> String {
    let (tightened, _) = RetryPolicy::layered(RetryPolicy::default(), |name| {
        (name == DEADLINE_ENV_VAR).then(|| TIGHTENED.to_owned())
    });
    let policies = [
        ("Default", RetryPolicy::default()),
        ("Tightened by a deadline of 10 s", tightened),
        ("Disabled (`--no-retry`)", RetryPolicy::disabled()),
    ];
    let mut page = Page::new("Retry policy", "gglib-core/src/retry");
    page.add(intro());
    let rows = policies.iter().map(|(name, policy)| {
        [
            (*name).to_owned(),
            policy.max_attempts.to_string(),
            seconds(policy.initial_backoff),
            seconds(policy.max_backoff),
            seconds(policy.total_deadline),
        ]
    });
    let headings = ["policy", "`max_attempts`", "`initial_backoff`", "`max_backoff`", "`total_deadline`"];
    page.add(markdown::table(headings, rows));
    for (name, policy) in &policies {
        page.add(format!("## {name}"));
        page.add(table::render(policy));
    }
    page.finish()
}

fn intro() -> String {
    format!(
        "What the policy decides, computed by the code that decides it. [The concept](../concepts/retry.md) says\n\
         why it is like this; [the configuration](configuration.md#retry) changes it, and so do two environment\n\
         variables, `{MAX_ATTEMPTS_ENV_VAR}` and `{DEADLINE_ENV_VAR}`. A shortened deadline\n\
         bounds `max_backoff` by half of itself and `initial_backoff` by a quarter.\n\n\
         A row stands for a number of attempts that have failed and a hint of the server (`Retry-After`), a column\n\
         for the time since the first attempt began. A cell shows the delay for the random numbers 0, 0.5 and\n\
         0.875 out of [0, 1), or one answer where they agree."
    )
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
