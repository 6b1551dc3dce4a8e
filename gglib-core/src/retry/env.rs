//! Overrides of the policy by name, from the environment or any other source of texts.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use super::decimal;
use super::policy::RetryPolicy;

/// The variable that sets [`RetryPolicy::max_attempts`]: a whole number; 0 means 1.
pub const MAX_ATTEMPTS_ENV_VAR: &str = "GGLIB_LLM_RETRY_MAX_ATTEMPTS";

/// The variable that sets [`RetryPolicy::total_deadline`]: a number of seconds, such as `30` or `0.5`.
pub const DEADLINE_ENV_VAR: &str = "GGLIB_LLM_RETRY_DEADLINE_SECS";

/// An override that could not be read and was ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    variable: &'static str,
    value: String,
    expected: &'static str,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variable, value, expected } = self;
        write!(f, "ignoring {variable}={value:?}: expected {expected}")
    }
}

impl RetryPolicy {
    /// The default policy with the overrides of the process's environment.
    ///
    /// The environment is read once per process, at the first call. Core logs nothing: whoever starts the
    /// process reports [`env_warnings`](Self::env_warnings).
    pub fn from_env() -> Self {
        from_env().0
    }

    /// What [`from_env`](Self::from_env) had to ignore, in the order of the variables.
    pub fn env_warnings() -> &'static [Warning] {
        &from_env().1
    }

    /// `base` with the overrides that `lookup` finds under [`MAX_ATTEMPTS_ENV_VAR`] and [`DEADLINE_ENV_VAR`].
    ///
    /// A missing value leaves its field as it was; so does an unreadable one, with a warning: a typo must not
    /// switch retrying off. A deadline shorter than that of `base` bounds `max_backoff` by its half and
    /// `initial_backoff` by its quarter. Otherwise the first delay might not fit, and whoever meant to tighten
    /// the policy would have disabled it: now the first delay fits, with a hint under
    /// [`HintRule::Floor`](super::HintRule::Floor) too, while at most a quarter of the deadline has passed.
    /// A deadline of 0 leaves no time for any retry; one too long for a [`Duration`] is none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gglib_core::retry::{DEADLINE_ENV_VAR, RetryPolicy};
    ///
    /// let lookup = |name: &str| (name == DEADLINE_ENV_VAR).then(|| "10".to_owned());
    /// let (policy, warnings) = RetryPolicy::layered(RetryPolicy::default(), lookup);
    /// assert_eq!(policy.total_deadline, Duration::from_secs(10));
    /// assert_eq!(policy.max_backoff, Duration::from_secs(5)); // it was 15 s
    /// assert_eq!(policy.initial_backoff, Duration::from_secs(1)); // short enough as it was
    /// assert!(warnings.is_empty());
    ///
    /// let (policy, warnings) = RetryPolicy::layered(policy, |_| Some("ten".to_owned()));
    /// assert_eq!(policy.total_deadline, Duration::from_secs(10));
    /// assert_eq!(
    ///     warnings[0].to_string(),
    ///     r#"ignoring GGLIB_LLM_RETRY_MAX_ATTEMPTS="ten": expected a whole number such as 4"#,
    /// );
    /// ```
    pub fn layered(base: Self, lookup: impl Fn(&str) -> Option<String>) -> (Self, Vec<Warning>) {
        let mut policy = base;
        let mut warnings = Vec::new();
        if let Some(value) = lookup(MAX_ATTEMPTS_ENV_VAR) {
            match value.trim().parse::<u32>() {
                Ok(attempts) => policy.max_attempts = attempts.max(1),
                Err(_) => warnings.push(Warning {
                    variable: MAX_ATTEMPTS_ENV_VAR,
                    value,
                    expected: "a whole number such as 4",
                }),
            }
        }
        if let Some(value) = lookup(DEADLINE_ENV_VAR) {
            match decimal::parse(value.trim(), Duration::from_secs(1)) {
                Some(deadline) => policy = policy.with_deadline(deadline),
                None => warnings.push(Warning {
                    variable: DEADLINE_ENV_VAR,
                    value,
                    expected: "a number of seconds such as 60",
                }),
            }
        }
        (policy, warnings)
    }

    fn with_deadline(mut self, deadline: Duration) -> Self {
        if deadline < self.total_deadline {
            self.max_backoff = self.max_backoff.min(deadline / 2);
            self.initial_backoff = self.initial_backoff.min(deadline / 4);
        }
        self.total_deadline = deadline;
        self
    }
}

fn from_env() -> &'static (RetryPolicy, Vec<Warning>) {
    static FROM_ENV: OnceLock<(RetryPolicy, Vec<Warning>)> = OnceLock::new();
    FROM_ENV.get_or_init(|| {
        // Lossy, so that a value that is no Unicode is warned about like any other typo.
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        RetryPolicy::layered(RetryPolicy::default(), variable)
    })
}
