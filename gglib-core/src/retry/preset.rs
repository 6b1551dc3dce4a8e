//! Rules that others have written down, by name, each checked against its formula in the tests.
//!
//! | preset | delay after the n-th failure, `u` in [0, 1) | attempts | hint |
//! |---|---|---|---|
//! | [`gglib`] | `u × min(15 s, 2^(n-1) s)` | 4, within 60 s | floor, up to 15 s, and up to 1 s more |
//! | [`fixed`] | 1 s | 5 | floor, up to 30 s, and up to 1 s more |
//! | [`linear`] | `min(30 s, n × 1 s)` | 5 | as above |
//! | [`exponential`] | `min(30 s, 2^(n-1) s)` | 5 | as above |
//! | [`exponential_jitter`] | `u × min(30 s, 2^(n-1) s)` | 5 | as above |
//! | [`decorrelated_jitter`] | from 1 s up to `min(30 s, 3 × previous)` | 5 | as above |
//! | [`llm_conductor`] | `min(30 s, retry_delay × 2^(n-1)) × (1 + 0.25 u)` | `max_retries + 1` | replaces, up to 60 s, and up to 25 % more |
//! | [`openai_sdk`] | `min(8 s, 0.5 s × 2^(n-1)) × (0.75 + 0.25 u)` | 3 | obeyed, up to 120 s |
//!
//! The five in the middle are the strategies of a general description of the retry pattern, with its defaults.
//! Its prose and its code differ in places; the readings taken here are: the exponent is `n - 1`; decorrelated
//! jitter looks at the *previous* delay, and its bound is clamped before the draw
//! ([`Jitter::DecorrelatedUnclamped`] is the other reading); the cap bounds a fixed delay too; a hint, which the
//! prose asks to honour and the code ignores, is gglib's floor. They carry no deadline, and repeat nothing that might
//! do its work twice. The other three are for completions, and do.
//!
//! Its examples of use are these rules with other numbers:
//!
//! ```
//! use std::time::Duration;
//! use gglib_core::retry::{RetryPolicy, RetryRules, preset};
//!
//! // Inference on the same machine: 3 attempts from 500 ms to at most 5 s.
//! let local_inference = RetryPolicy {
//!     max_attempts: 3,
//!     initial_backoff: Duration::from_millis(500),
//!     max_backoff: Duration::from_secs(5),
//!     ..preset::exponential_jitter().policy
//! };
//! let rules = RetryRules { name: "local_inference", policy: local_inference, ..preset::exponential_jitter() };
//! assert!(rules.statuses.contains(http::StatusCode::SERVICE_UNAVAILABLE));
//!
//! // Indexing documents: a single writer, 3 retries in even steps.
//! let indexing = RetryPolicy { max_attempts: 4, ..preset::linear().policy };
//! assert_eq!(indexing.initial_backoff, Duration::from_secs(1));
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use super::policy::{Backoff, HintRule, Jitter, RetryPolicy};
use super::rules::{RetryRules, UnsafeRepeats};
use super::status::StatusSet;

/// gglib's own rules: [`RetryPolicy::default`] on 408, 429, 500, 502, 503, 504 and 529.
///
/// 529 is what Anthropic's services answer when they are overloaded.
pub fn gglib() -> RetryRules {
    RetryRules {
        name: "gglib",
        policy: RetryPolicy::default(),
        per_class: BTreeMap::new(),
        statuses: StatusSet::of(&[408, 429, 500, 502, 503, 504, 529]),
        unsafe_repeats: UnsafeRepeats::Allow,
    }
}

/// The same delay after every failure. For a caller who has nobody to be spread from.
pub fn fixed() -> RetryRules {
    pattern("fixed", Backoff::Fixed, Jitter::None)
}

/// A delay that grows by the first one after every failure.
pub fn linear() -> RetryRules {
    pattern("linear", Backoff::Linear, Jitter::None)
}

/// A delay that doubles after every failure.
pub fn exponential() -> RetryRules {
    pattern("exponential", Backoff::Exponential, Jitter::None)
}

/// Anything from nothing to a delay that doubles after every failure: full jitter.
pub fn exponential_jitter() -> RetryRules {
    pattern("exponential_jitter", Backoff::Exponential, Jitter::Full)
}

/// Anything from the first delay to three times the previous one.
pub fn decorrelated_jitter() -> RetryRules {
    pattern("decorrelated_jitter", Backoff::Exponential, Jitter::Decorrelated)
}

/// The rules of the `llm_conductor` Ruby library, with its two knobs.
///
/// Statuses 408, 429, 500, 502, 503 and 504. `retry_delay` doubles up to 30 s, then come up to 25 % on top, hence
/// up to 37.5 s. A hint takes the place of that delay, up to 60 s, and is spread likewise, hence up to 75 s.
pub fn llm_conductor(max_retries: u32, retry_delay: Duration) -> RetryRules {
    RetryRules {
        name: "llm_conductor",
        policy: RetryPolicy {
            max_attempts: max_retries.saturating_add(1),
            initial_backoff: retry_delay,
            max_backoff: Duration::from_secs(30),
            total_deadline: Duration::MAX,
            backoff: Backoff::Exponential,
            jitter: Jitter::AdditiveOverCap { percent: 25 },
            hint_rule: HintRule::Replace { max_hint: Duration::from_secs(60) },
        },
        per_class: BTreeMap::new(),
        statuses: StatusSet::of(&[408, 429, 500, 502, 503, 504]),
        unsafe_repeats: UnsafeRepeats::Allow,
    }
}

/// The rules of OpenAI's and Anthropic's client libraries, with their default of 2 retries.
///
/// Statuses 408, 409, 429 and all of 5xx. 0.5 s doubles up to 8 s, and up to 25 % are taken off. A hint is obeyed
/// as it is; one of zero counts as none, and one beyond 120 s ends the sequence.
pub fn openai_sdk() -> RetryRules {
    RetryRules {
        name: "openai_sdk",
        policy: RetryPolicy {
            max_attempts: 3,
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(8),
            total_deadline: Duration::MAX,
            backoff: Backoff::Exponential,
            jitter: Jitter::Subtractive { percent: 25 },
            hint_rule: HintRule::Obey { max_hint: Duration::from_secs(120) },
        },
        per_class: BTreeMap::new(),
        statuses: StatusSet::of(&[408, 409, 429]) | StatusSet::SERVER_ERRORS,
        unsafe_repeats: UnsafeRepeats::Allow,
    }
}

/// Every preset, in the order of the table; `llm_conductor` with 3 retries from 1 s.
pub fn all() -> [RetryRules; 8] {
    [
        gglib(),
        fixed(),
        linear(),
        exponential(),
        exponential_jitter(),
        decorrelated_jitter(),
        llm_conductor(3, Duration::from_secs(1)),
        openai_sdk(),
    ]
}

/// The preset of this [name](RetryRules::name), as [`all`] lists it.
///
/// ```
/// use gglib_core::retry::preset;
///
/// assert_eq!(preset::by_name("openai_sdk"), Some(preset::openai_sdk()));
/// assert_eq!(preset::by_name("aggressive"), None);
/// ```
pub fn by_name(name: &str) -> Option<RetryRules> {
    all().into_iter().find(|rules| rules.name == name)
}

/// The strategies of the retry pattern: 5 attempts from 1 s to at most 30 s; 429, 500, 502, 503 and 504.
fn pattern(name: &'static str, backoff: Backoff, jitter: Jitter) -> RetryRules {
    RetryRules {
        name,
        policy: RetryPolicy {
            max_attempts: 5,
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(30),
            total_deadline: Duration::MAX,
            backoff,
            jitter,
            hint_rule: HintRule::Floor,
        },
        per_class: BTreeMap::new(),
        statuses: StatusSet::of(&[429, 500, 502, 503, 504]),
        unsafe_repeats: UnsafeRepeats::Refuse,
    }
}
