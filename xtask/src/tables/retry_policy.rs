//! The page on the retry policy: every preset's rules and decisions, and what switches the default down or off.

use std::time::Duration;

use gglib_core::retry::{
    DEADLINE_ENV_VAR, MAX_ATTEMPTS_ENV_VAR, RetryPolicy, RetryRules, UnsafeRepeats, preset, table,
};

use super::markdown::{self, Page};

/// The deadline of the tightened policy, in seconds.
const TIGHTENED: &str = "10";

/// Renders the policies.
pub fn render() -> String {
    let mut page = Page::new("Retry policy", "gglib-core/src/retry");
    page.add(intro());
    page.add(markdown::table(
        [
            "policy",
            "`max_attempts`",
            "`initial_backoff`",
            "`max_backoff`",
            "`total_deadline`",
            "statuses",
            "repeats",
        ],
        sections().iter().map(bounds),
    ));
    page.add(markdown::table(
        ["policy", "`backoff`", "`jitter`", "`hint_rule`"],
        sections().iter().map(|(heading, RetryRules { policy, .. })| {
            let debug = |value: &dyn std::fmt::Debug| markdown::code(&format!("{value:?}"));
            [heading.clone(), debug(&policy.backoff), debug(&policy.jitter), debug(&policy.hint_rule)]
        }),
    ));
    for (heading, rules) in sections() {
        page.add(format!("## {heading}"));
        page.add(table::render(&rules.policy));
    }
    page.finish()
}

/// What there is a table of, under its heading.
fn sections() -> Vec<(String, RetryRules)> {
    let (tightened, _) = RetryPolicy::layered(RetryPolicy::default(), |name| {
        (name == DEADLINE_ENV_VAR).then(|| TIGHTENED.to_owned())
    });
    let variants = [
        (format!("Tightened by a deadline of {TIGHTENED} s"), tightened.into()),
        ("Disabled (`--no-retry`)".to_owned(), RetryPolicy::disabled().into()),
    ];
    let presets = preset::all().map(|rules| (markdown::code(rules.name), rules));
    presets.into_iter().chain(variants).collect()
}

fn bounds((heading, rules): &(String, RetryRules)) -> [String; 7] {
    let policy = &rules.policy;
    [
        heading.clone(),
        policy.max_attempts.to_string(),
        seconds(policy.initial_backoff),
        seconds(policy.max_backoff),
        seconds(policy.total_deadline),
        rules.statuses.to_string(),
        match rules.unsafe_repeats {
            UnsafeRepeats::Allow => "also what may be done twice",
            UnsafeRepeats::Refuse => "only what is safe",
        }
        .to_owned(),
    ]
}

fn intro() -> String {
    format!(
        "What the policy decides, computed by the code that decides it. `gglib` is the default; `retry.preset` chooses\n\
         another one, here with the numbers that it has by itself (`llm_conductor`: 3 retries from 1 s).\n\
         [The concept](../concepts/retry.md) says why it is like this; [the configuration](configuration.md#retry)\n\
         changes it, and so do two environment variables, `{MAX_ATTEMPTS_ENV_VAR}` and\n\
         `{DEADLINE_ENV_VAR}`. A shortened deadline bounds `max_backoff` by half of itself and\n\
         `initial_backoff` by a quarter.\n\n\
         A row stands for a number of attempts that have failed and a hint of the server (`Retry-After`), a column\n\
         for the time since the first attempt began. A cell shows the delay for the random numbers 0, 0.5 and\n\
         0.875 out of [0, 1), or one answer where they agree. Where the previous delay matters (decorrelated jitter),\n\
         it is the one that the same number gave in the row above, without a hint."
    )
}

fn seconds(duration: Duration) -> String {
    if duration == Duration::MAX { "none".to_owned() } else { format!("{} s", duration.as_secs_f64()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_its_table() {
        let page = render();
        for rules in preset::all() {
            let section = format!("## `{}`\n\n{}", rules.name, table::render(&rules.policy));
            assert!(page.contains(section.trim_end()), "{}", rules.name);
        }
    }
}
