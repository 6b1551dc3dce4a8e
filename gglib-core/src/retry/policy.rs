//! What a policy consists of.

use std::time::Duration;

/// The bounds of a backoff sequence, and the shape of its delays.
///
/// Every combination of values is usable: [`decide`](super::decide) saturates instead of overflowing, and
/// reads a value that makes no sense in the way that its field says.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::retry::{Backoff, Jitter, RetryPolicy};
///
/// // For a single writer, who has nobody to be spread from.
/// let steady = RetryPolicy { backoff: Backoff::Linear, jitter: Jitter::None, ..RetryPolicy::default() };
/// assert_eq!(steady.max_backoff, Duration::from_secs(15));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// Attempts in all, the first one included. 0 means 1: the work is always tried once.
    pub max_attempts: u32,
    /// The first delay before jitter, and the width of the spread on top of a [hint](HintRule::Floor).
    pub initial_backoff: Duration,
    /// The upper bound of every delay that the policy computes by itself, jitter included (but see
    /// [`Jitter::AdditiveOverCap`]), and of the part of a hint that [`HintRule::Floor`] obeys. Below
    /// `initial_backoff`, it bounds the first delay as well.
    pub max_backoff: Duration,
    /// Time for the whole sequence, from the start of the first attempt; [`Duration::MAX`] means no deadline.
    pub total_deadline: Duration,
    /// How delays grow from one attempt to the next.
    pub backoff: Backoff,
    /// How delays are spread.
    pub jitter: Jitter,
    /// What a server's hint does to a delay.
    pub hint_rule: HintRule,
}

impl Default for RetryPolicy {
    /// 4 attempts within 60 s; exponential from 1 s to at most 15 s, full jitter, a hint is a floor.
    fn default() -> Self {
        Self {
            max_attempts: 4,
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(15),
            total_deadline: Duration::from_mins(1),
            backoff: Backoff::Exponential,
            jitter: Jitter::Full,
            hint_rule: HintRule::Floor,
        }
    }
}

impl RetryPolicy {
    /// The policy that never retries: one attempt.
    ///
    /// It has a name so that nobody has to know which number of attempts means "off".
    pub fn disabled() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }
}

/// How the delay before jitter grows with the number `n` of failed attempts, counted from 1.
///
/// The result never exceeds [`RetryPolicy::max_backoff`], as in the truncated binary exponential backoff of Ethernet
/// (IEEE 802.3). The exponent is `n - 1`, so that the first delay is the initial one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backoff {
    /// `initial_backoff` every time.
    Fixed,
    /// `initial_backoff × n`.
    Linear,
    /// `initial_backoff × 2^(n-1)`.
    Exponential,
}

/// How the delay `d` that [`Backoff`] gives is spread, for a unit `u` in [0, 1).
///
/// Names and formulas of `None`, `Full`, `Equal` and `DecorrelatedUnclamped` are those of Marc Brooker, "Exponential
/// Backoff And Jitter", AWS Architecture Blog, 2015; the others say where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// `d`; the unit is ignored.
    None,
    /// `u × d`: anything from nothing to the whole delay.
    Full,
    /// `d/2 + u × d/2`: at least half of the delay.
    Equal,
    /// `d + u × d × percent/100`: never sooner than the delay.
    ///
    /// `d` is then bounded by `max_backoff × 100/(100 + percent)`, so that there is a window to draw from
    /// at the cap as well, and callers that have reached it do not all return together.
    Additive {
        /// The width of the window in percent of the delay: 25 spreads over [d, 1.25 d).
        percent: u32,
    },
    /// From `initial_backoff` up to three times the previous delay, whatever [`Backoff`] says: Brooker's rule with one
    /// change.
    ///
    /// The upper bound is clamped to `max_backoff` before the draw, not the drawn value after it: the latter
    /// would give the cap itself a probability of a quarter to a half. Needs
    /// [`decide_with`](super::decide_with), which is told the previous delay.
    Decorrelated,
    /// `d + u × d × percent/100`, where only `d` is bounded by `max_backoff`: up to `percent` more than it.
    ///
    /// The one jitter whose delays may exceed the cap, for rules that say so, such as
    /// [`preset::llm_conductor`](super::preset::llm_conductor).
    AdditiveOverCap {
        /// The width of the window in percent of the delay: 25 spreads over [d, 1.25 d).
        percent: u32,
    },
    /// `d - d × percent/100 × (1 - u)`: never later than the delay.
    ///
    /// The rule of OpenAI's and Anthropic's clients, see [`preset::openai_sdk`](super::preset::openai_sdk).
    Subtractive {
        /// The width of the window in percent of the delay: 25 spreads over [0.75 d, d). At most 100 count.
        percent: u32,
    },
    /// From `initial_backoff` up to three times the previous delay, cut to `max_backoff` *after* the draw.
    ///
    /// The rule as it was published. A quarter to a half of all delays are exactly the cap, so that callers who
    /// have reached it come back together; it is here to be compared with [`Decorrelated`](Self::Decorrelated)
    /// in simulations.
    DecorrelatedUnclamped,
}

/// What a server's hint (`Retry-After`) does to the delay.
///
/// RFC 9110 §10.2.3 says what the field means, how long to wait before the next request, and leaves it to the client what
/// becomes of that; so there are several rules.
///
/// To the rules with a limit of their own a hint of zero is none: obeyed, it would make a hot loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HintRule {
    /// `min(hint, max_backoff) + u × initial_backoff`, whatever the attempt and the [`Jitter`].
    ///
    /// To come back sooner than asked would waste an attempt on a server known to be unready. The spread
    /// separates clients that were told the same value; the clamp keeps a faulty server from parking a request. This is
    /// gglib's own rule.
    /// So a hint beyond `max_backoff` is *not* waited for in full.
    Floor,
    /// `min(hint, max_hint)` takes the place of what [`Backoff`] gives, and is then jittered like it.
    ///
    /// The rule of [`preset::llm_conductor`](super::preset::llm_conductor).
    ///
    /// The cap is applied before the jitter. [`Jitter::Full`] and [`Jitter::Equal`] may come back sooner than
    /// the server asked; [`Jitter::Decorrelated`] draws from the hint upwards.
    Replace {
        /// The part of a hint that is obeyed; apart from `max_backoff`, which bounds only own delays.
        max_hint: Duration,
    },
    /// `hint`, exactly and without jitter. A hint beyond `max_hint` ends the sequence.
    ///
    /// The rule of OpenAI's and Anthropic's clients, see [`preset::openai_sdk`](super::preset::openai_sdk). Callers that were told the same value return together.
    Obey {
        /// The longest hint that is waited for.
        max_hint: Duration,
    },
    /// `max(own, hint + u × min(initial_backoff, max_backoff))`, where `own` is the delay without the hint. A
    /// hint beyond `max_hint` ends the sequence. RFC 9110 taken at its word.
    ///
    /// Never earlier than the server asked, however long that is; to come back early by decision, which is what
    /// [`Floor`](Self::Floor) does with a long hint, spends an attempt on an answer that is known. For upstreams
    /// whose hints are quotas, such as the 429 of a hosted service.
    AtLeast {
        /// The longest hint that is waited for.
        max_hint: Duration,
    },
}

impl HintRule {
    /// The longest hint after which the sequence goes on; a longer one ends it. `None` where none does.
    pub(super) const fn limit(self) -> Option<Duration> {
        match self {
            Self::Floor | Self::Replace { .. } => None,
            Self::Obey { max_hint } | Self::AtLeast { max_hint } => Some(max_hint),
        }
    }
}
