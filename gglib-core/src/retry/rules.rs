//! A policy together with the statuses that it is applied to.

use super::policy::RetryPolicy;
use super::status::StatusSet;

/// Everything that decides over a backoff sequence: which statuses are retried, and how.
///
/// The [presets](super::preset) are such rules; change one as any other value:
///
/// ```
/// use gglib_core::retry::{RetryRules, StatusSet, preset};
///
/// // An upstream whose 500 is never worth a second attempt.
/// let statuses = StatusSet::of(&[408, 429, 502, 503, 504, 529]);
/// let rules = RetryRules { name: "cautious", statuses, ..preset::gglib() };
/// assert_eq!(rules.policy, preset::gglib().policy);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// What the rules are called in events and tables.
    pub name: &'static str,
    /// How often and after what delays.
    pub policy: RetryPolicy,
    /// The statuses that are retried.
    pub statuses: StatusSet,
}
