//! A policy together with what it is applied to.

use std::collections::BTreeMap;

use super::failure::Class;
use super::policy::RetryPolicy;
use super::preset;
use super::status::StatusSet;

/// Everything that decides over a backoff sequence: which failures are retried, and how.
///
/// The [presets](super::preset) are such rules; change one as any other value:
///
/// ```
/// use std::time::Duration;
/// use gglib_core::retry::{Class, HintRule, RetryPolicy, RetryRules, preset};
///
/// // A hosted service whose 429 names the moment at which its quota is renewed.
/// let quota = RetryPolicy {
///     max_backoff: Duration::from_secs(60),
///     total_deadline: Duration::from_secs(300),
///     hint_rule: HintRule::AtLeast { max_hint: Duration::from_secs(120) },
///     ..RetryPolicy::default()
/// };
/// let rules = RetryRules { per_class: [(Class::RateLimited, quota)].into(), ..preset::gglib() };
/// assert_eq!(rules.policy_for(Class::RateLimited), &quota);
/// assert_eq!(rules.policy_for(Class::Transport), &RetryPolicy::default());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// What the rules are called in events and tables.
    pub name: &'static str,
    /// How often and after what delays.
    pub policy: RetryPolicy,
    /// The same for single classes of failures. Attempts and elapsed time are those of the whole sequence,
    /// whatever classes its earlier failures had.
    pub per_class: BTreeMap<Class, RetryPolicy>,
    /// The statuses that are retried. Failures without a status always are.
    pub statuses: StatusSet,
    /// What is done where work may be done twice.
    pub unsafe_repeats: UnsafeRepeats,
}

/// Whether a request that is not idempotent is repeated after a failure that may have come after its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnsafeRepeats {
    /// No: a payment must not be made twice.
    Refuse,
    /// Yes: a completion that nobody has seen costs time, and changes nothing.
    Allow,
}

impl RetryRules {
    /// The policy for failures of `class`.
    pub fn policy_for(&self, class: Class) -> &RetryPolicy {
        self.per_class.get(&class).unwrap_or(&self.policy)
    }
}

/// gglib's own rules, with the numbers of `policy`.
impl From<RetryPolicy> for RetryRules {
    fn from(policy: RetryPolicy) -> Self {
        Self { policy, ..preset::gglib() }
    }
}
