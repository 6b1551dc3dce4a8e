//! The retry rules that the sections of a configuration come to.
//!
//! A value is taken from the most special section that gives it: `[retry.class.CLASS]` over
//! `[models.NAME.retry]` over `[retry]` over the preset. The two variables of the policy win over all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::typed::Reader;
use super::value::{self, ABOVE_ZERO};
use crate::model::ModelName;
use crate::retry::{
    Class, DEADLINE_ENV_VAR, Lint, MAX_ATTEMPTS_ENV_VAR, RetryPolicy, RetryRules, Surroundings, Warning,
    hint, lint, preset,
};

/// The retry rules of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// For every model without a section of its own.
    pub rules: RetryRules,
    /// For models with a section `[models.NAME.retry]`.
    pub models: BTreeMap<ModelName, RetryRules>,
}

/// A doubtful property of the rules, and the sections that it is in.
///
/// Shown like `[models.smollm2.retry]: no-deadline: nothing bounds the time of a sequence; …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryLint {
    /// The section, such as `[retry]`; where only their combination is doubtful, both.
    pub section: String,
    /// What is doubtful.
    pub lint: Lint,
}

impl Retry {
    /// The rules for requests to the model of this name.
    pub(super) fn rules_for(&self, model: &str) -> &RetryRules {
        self.models.get(model).unwrap_or(&self.rules)
    }

    /// What is doubtful, for a client of an endpoint with the same configuration. A section is not blamed for what
    /// it has from a more general one.
    pub(super) fn lints(&self) -> Vec<RetryLint> {
        // The longest hint of such an endpoint is the one it gives without an estimate.
        let longest_hint = Some(hint::advertise(&self.rules.policy, None));
        let lints = |policy| lint(policy, &Surroundings { longest_hint, wait_bound: None });
        let general = lints(&self.rules.policy);
        let mut found = vec![("[retry]".to_owned(), general.clone())];
        let class_section = |class: &Class| format!("[retry.class.{class}]");
        for (class, policy) in &self.rules.per_class {
            found.push((class_section(class), without(lints(policy), &general)));
        }
        for (model, rules) in &self.models {
            let section = format!("[models.{model}.retry]");
            let special = lints(&rules.policy);
            found.push((section.clone(), without(special.clone(), &general)));
            for (class, policy) in &rules.per_class {
                let both = format!("{section} with {}", class_section(class));
                let of_class = self.rules.per_class.get(class).map(lints).unwrap_or_default();
                let lints = without(without(without(lints(policy), &special), &of_class), &general);
                found.push((both, lints));
            }
        }
        found
            .into_iter()
            .flat_map(|(section, lints)| {
                lints.into_iter().map(move |lint| RetryLint { section: section.clone(), lint })
            })
            .collect()
    }
}

impl fmt::Display for RetryLint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.section, self.lint)
    }
}

fn without(mut lints: Vec<Lint>, known: &[Lint]) -> Vec<Lint> {
    lints.retain(|lint| !known.contains(lint));
    lints
}

/// Reads all sections; the variables that were left aside are the warnings.
pub(super) fn read(read: &mut Reader<'_>, env: &dyn Fn(&str) -> Option<String>) -> (Retry, Vec<Warning>) {
    let general = Section::read(read, &["retry"]);
    let classes: Vec<_> = Class::ALL
        .into_iter()
        .map(|class| (class, Section::read(read, &["retry", "class", class.as_str()])))
        .filter(|(_, section)| *section != Section::default())
        .collect();
    let models: Vec<_> = read
        .models()
        .into_iter()
        .map(|model| (ModelName::new(&*model), Section::read(read, &["models", &model, "retry"])))
        .filter(|(_, section)| *section != Section::default())
        .collect();
    let rules = |section: &Section| {
        let per_class =
            classes.iter().map(|(class, special)| (*class, special.over(section).rules(env).policy));
        RetryRules { per_class: per_class.collect(), ..section.rules(env) }
    };
    let of_models = models.iter().map(|(model, section)| (model.clone(), rules(&section.over(&general))));
    let retry = Retry { rules: rules(&general), models: of_models.collect() };
    let (_, warnings) = from_env(RetryPolicy::default(), env);
    (retry, warnings)
}

/// What one section says, or several over each other.
#[derive(Clone, Debug, Default, PartialEq)]
struct Section {
    preset: Option<RetryRules>,
    max_attempts: Option<u32>,
    initial_backoff: Option<Duration>,
    max_backoff: Option<Duration>,
    total_deadline: Option<Duration>,
}

impl Section {
    fn read(read: &mut Reader<'_>, path: &[&str]) -> Self {
        let names = preset::all().map(|rules| format!("\"{}\"", rules.name)).join(", ");
        Self {
            preset: read
                .given(path, "preset", &format!("one of {names}"), |value| preset::by_name(value.as_str()?)),
            max_attempts: read.given(path, "max_attempts", "a whole number of at least 1", |value| {
                u32::try_from(value.as_integer()?).ok().filter(|attempts| *attempts > 0)
            }),
            initial_backoff: duration(read, path, "initial_backoff"),
            max_backoff: duration(read, path, "max_backoff"),
            total_deadline: duration(read, path, "total_deadline"),
        }
    }

    fn over(&self, general: &Self) -> Self {
        Self {
            preset: self.preset.clone().or_else(|| general.preset.clone()),
            max_attempts: self.max_attempts.or(general.max_attempts),
            initial_backoff: self.initial_backoff.or(general.initial_backoff),
            max_backoff: self.max_backoff.or(general.max_backoff),
            total_deadline: self.total_deadline.or(general.total_deadline),
        }
    }

    /// The numbers that are given over those of the preset, and the variables over both.
    fn rules(&self, env: &dyn Fn(&str) -> Option<String>) -> RetryRules {
        let rules = self.preset.clone().unwrap_or_else(preset::gglib);
        let mut policy = rules.policy;
        policy.max_attempts = self.max_attempts.unwrap_or(policy.max_attempts);
        policy.initial_backoff = self.initial_backoff.unwrap_or(policy.initial_backoff);
        policy.max_backoff = self.max_backoff.unwrap_or(policy.max_backoff);
        if let Some(deadline) = self.total_deadline {
            // Through the same function as the variable, since shortening it pulls the backoffs along.
            let seconds = format!("{}.{:09}", deadline.as_secs(), deadline.subsec_nanos());
            (policy, _) =
                RetryPolicy::layered(policy, |name| (name == DEADLINE_ENV_VAR).then(|| seconds.clone()));
        }
        (policy, _) = from_env(policy, env);
        RetryRules { policy, ..rules }
    }
}

fn duration(read: &mut Reader<'_>, path: &[&str], key: &str) -> Option<Duration> {
    read.given(path, key, ABOVE_ZERO, |value| value::above_zero(value.as_str()?))
}

fn from_env(policy: RetryPolicy, env: &dyn Fn(&str) -> Option<String>) -> (RetryPolicy, Vec<Warning>) {
    RetryPolicy::layered(policy, |name| {
        [MAX_ATTEMPTS_ENV_VAR, DEADLINE_ENV_VAR].contains(&name).then(|| env(name)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Sources, load};

    fn from(text: &str, env: &[(&str, &str)]) -> Result<Config, String> {
        let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        load(&Sources { file: Some(("gglib.toml".as_ref(), text)), env: &env, flags: &[] })
            .map_err(|errors| errors.to_string())
    }

    const LAYERED: &str = "
        [retry]
        max_attempts = 5
        max_backoff = \"20s\"
        [retry.class.rate_limited]
        max_backoff = \"50s\"
        total_deadline = \"5m\"
        [models.\"qwen3.5\"]
        path = \"q.gguf\"
        aliases = [\"q\"]
        [models.\"qwen3.5\".retry]
        preset = \"openai_sdk\"
        initial_backoff = \"3s\"
        [models.small]
        path = \"s.gguf\"";

    #[test]
    fn the_most_special_section_that_gives_a_value_wins() {
        let retry = from(LAYERED, &[]).unwrap().retry;
        let seconds = Duration::from_secs;
        let general = RetryPolicy { max_attempts: 5, max_backoff: seconds(20), ..RetryPolicy::default() };
        let limited = RetryPolicy { max_backoff: seconds(50), total_deadline: seconds(300), ..general };
        let rules = RetryRules {
            policy: general,
            per_class: [(Class::RateLimited, limited)].into(),
            ..preset::gglib()
        };
        assert_eq!(retry.rules_for("small"), &rules);
        assert_eq!(retry.rules_for("elsewhere"), &rules);

        let sdk = preset::openai_sdk();
        let policy = RetryPolicy {
            max_attempts: 5,
            initial_backoff: seconds(3),
            max_backoff: seconds(20),
            ..sdk.policy
        };
        let limited = RetryPolicy { max_backoff: seconds(50), total_deadline: seconds(300), ..policy };
        let per_class = [(Class::RateLimited, limited)].into();
        assert_eq!(retry.rules_for("qwen3.5"), &RetryRules { policy, per_class, ..sdk });
    }

    #[test]
    fn rules_are_found_by_alias_too() {
        let config = from(LAYERED, &[]).unwrap();
        assert_eq!(config.retry_rules("q").name, "openai_sdk");
        assert_eq!(config.retry_rules("qwen3.5").name, "openai_sdk");
        assert_eq!(config.retry_rules("small").name, "gglib");
        assert_eq!(config.retry_rules("of another endpoint").name, "gglib");
    }

    #[test]
    fn a_class_may_have_delays_of_its_own_in_all_classes() {
        for class in Class::ALL {
            let text = format!("[retry.class.{class}]\npreset = \"fixed\"\nmax_attempts = 9");
            let rules = from(&text, &[]).unwrap().retry.rules;
            let policy = RetryPolicy { max_attempts: 9, ..preset::fixed().policy };
            assert_eq!(rules, RetryRules { per_class: [(class, policy)].into(), ..preset::gglib() });
        }
    }

    #[test]
    fn the_variables_win_over_every_section_and_are_warned_of_once() {
        let env = [(MAX_ATTEMPTS_ENV_VAR, "1"), (DEADLINE_ENV_VAR, "soon")];
        let config = from(LAYERED, &env).unwrap();
        for rules in [&config.retry.rules, config.retry_rules("q")] {
            assert_eq!(rules.policy.max_attempts, 1);
            assert_eq!(rules.policy_for(Class::RateLimited).max_attempts, 1);
        }
        assert_eq!(config.warnings.len(), 1);
    }

    #[test]
    fn unknown_names_are_told_with_the_nearest_and_bad_values_once() {
        let model = "[models.m]\npath = \"m\"\n";
        for (text, expected) in [
            (
                "[retry.class.rate_limit]\nmax_attempts = 2",
                "unknown key `retry.class.rate_limit` in gglib.toml; did you mean `retry.class.rate_limited`?",
            ),
            (
                "[retry.class.transprt]",
                "unknown key `retry.class.transprt` in gglib.toml; did you mean `retry.class.transport`?",
            ),
            (
                "[retry.class.timeout]\nmax_atempts = 2",
                "unknown key `retry.class.timeout.max_atempts` in gglib.toml; did you mean `retry.class.timeout.max_attempts`?",
            ),
            (
                &format!("{model}[models.m.retry]\ndeadline = \"1m\""),
                "unknown key `models.m.retry.deadline` in gglib.toml; did you mean `models.m.retry.total_deadline`?",
            ),
            (
                &format!("{model}[models.m.retry]\nmax_attempts = 0"),
                "`models.m.retry.max_attempts` in gglib.toml: expected a whole number of at least 1, found 0",
            ),
            (
                &format!(
                    "{model}[models.m.retry]\npreset = \"x\"\n[retry]\nmax_backoff = \"0s\"\n[retry.class.timeout]\nmax_attempts = 1"
                ),
                "`retry.max_backoff` in gglib.toml: expected a duration above zero and of at most 100 years, such as \"30s\", found \"0s\"\n\
                 `models.m.retry.preset` in gglib.toml: expected one of \"gglib\", \"fixed\", \"linear\", \"exponential\", \
                 \"exponential_jitter\", \"decorrelated_jitter\", \"llm_conductor\", \"openai_sdk\", found \"x\"",
            ),
        ] {
            assert_eq!(from(text, &[]).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_lint_names_the_section_that_is_to_blame() {
        let lints = |text: &str| -> Vec<_> {
            let lints = from(text, &[]).unwrap().retry_lints();
            lints.iter().map(|found| format!("{} {}", found.section, found.lint.name())).collect()
        };
        assert_eq!(lints(LAYERED), ["[models.qwen3.5.retry] no-deadline"]);
        assert_eq!(
            lints("[retry]\npreset = \"fixed\"\n[retry.class.timeout]\nmax_attempts = 3"),
            ["[retry] no-deadline", "[retry] no-jitter"]
        );
        assert_eq!(
            lints("[retry.class.rate_limited]\ninitial_backoff = \"20s\""),
            ["[retry.class.rate_limited] cap-below-base"]
        );
        assert_eq!(
            lints(
                "[models.m]\npath = \"m\"\n[models.m.retry]\nmax_backoff = \"9s\"\n\
                 [retry.class.timeout]\ninitial_backoff = \"12s\""
            ),
            [
                "[models.m.retry] hint-limit-below-server-hint",
                "[models.m.retry] with [retry.class.timeout] cap-below-base",
            ]
        );
    }
}
