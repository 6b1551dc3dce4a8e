//! Finds what a policy's author will not have meant.

use std::fmt;
use std::time::Duration;

use super::decision::{GiveUpReason, RetryDecision, decide_with};
use super::policy::{HintRule, Jitter, RetryPolicy};

/// What the policy has to live with, as far as it is known.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::retry::Surroundings;
///
/// let surroundings = Surroundings { wait_bound: Some(Duration::from_secs(600)), ..Surroundings::default() };
/// assert_eq!(surroundings.longest_hint, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The longest hint that the server gives.
    pub longest_hint: Option<Duration>,
    /// How long the server lets a request wait before it refuses it.
    pub wait_bound: Option<Duration>,
}

/// One doubtful property of a policy. Its `Display` says what happens and what to change.
///
/// Every policy is usable all the same; these are warnings. Each is about a mistake that users of other retry libraries
/// have made and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lint {
    /// `max_backoff` is below `initial_backoff`.
    CapBelowBase {
        /// `max_backoff`.
        cap: Duration,
        /// `initial_backoff`.
        base: Duration,
    },
    /// Retries follow without a delay.
    HotLoop,
    /// The first delay may not end before the deadline.
    FirstDelayBeyondDeadline {
        /// `initial_backoff`.
        base: Duration,
        /// `total_deadline`.
        deadline: Duration,
    },
    /// Even attempts that fail at once do not all fit before the deadline.
    AttemptsUnreachable {
        /// Attempts that fit if each delay is drawn from the middle of its window.
        reachable: u32,
        /// `max_attempts`.
        max_attempts: u32,
    },
    /// Nothing but `max_attempts` ends a sequence.
    NoDeadline,
    /// Delays are not spread at all.
    NoJitter,
    /// Delays are spread, but no more when they have reached the cap.
    JitterLostAtCap,
    /// A hint may be cut short by the jitter.
    HintJitteredAway,
    /// The server's hints may be longer than the policy waits for.
    HintLimitBelowServerHint {
        /// The longest hint that is waited for in full.
        limit: Duration,
        /// The longest hint that the server gives.
        hint: Duration,
    },
    /// The server may keep a request waiting until the client has no time for a retry.
    WaitBoundBeyondDeadline {
        /// How long the server lets a request wait.
        wait_bound: Duration,
        /// `total_deadline`.
        deadline: Duration,
    },
}

/// What is doubtful in `policy`, for its surroundings; nothing if retries are off.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::retry::{RetryPolicy, Surroundings, lint};
///
/// let nothing = Surroundings::default();
/// assert!(lint(&RetryPolicy::default(), &nothing).is_empty());
///
/// let hasty = RetryPolicy { total_deadline: Duration::from_secs(1), ..RetryPolicy::default() };
/// let lints: Vec<_> = lint(&hasty, &nothing).iter().map(|lint| lint.to_string()).collect();
/// assert_eq!(lints, [
///     "first-delay-beyond-deadline: with initial_backoff of 1s the first delay may reach the deadline of 1s; \
///      lengthen total_deadline or shorten initial_backoff",
///     "attempts-unreachable: only 2 of 4 attempts fit into the deadline; lengthen total_deadline, or lower \
///      max_attempts to 2",
/// ]);
/// ```
pub fn lint(policy: &RetryPolicy, surroundings: &Surroundings) -> Vec<Lint> {
    if policy.max_attempts <= 1 {
        return Vec::new();
    }
    let checks = [
        cap_below_base(policy),
        hot_loop(policy),
        first_delay_beyond_deadline(policy),
        attempts_unreachable(policy),
        no_deadline(policy),
        no_jitter(policy),
        jitter_lost_at_cap(policy),
        hint_jittered_away(policy),
        hint_limit_below_server_hint(policy, surroundings),
        wait_bound_beyond_deadline(policy, surroundings),
    ];
    checks.into_iter().flatten().collect()
}

impl Lint {
    /// The name of the warning; the text is stable.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CapBelowBase { .. } => "cap-below-base",
            Self::HotLoop => "hot-loop",
            Self::FirstDelayBeyondDeadline { .. } => "first-delay-beyond-deadline",
            Self::AttemptsUnreachable { .. } => "attempts-unreachable",
            Self::NoDeadline => "no-deadline",
            Self::NoJitter => "no-jitter",
            Self::JitterLostAtCap => "jitter-lost-at-cap",
            Self::HintJitteredAway => "hint-jittered-away",
            Self::HintLimitBelowServerHint { .. } => "hint-limit-below-server-hint",
            Self::WaitBoundBeyondDeadline { .. } => "wait-bound-beyond-deadline",
        }
    }
}

/// Like `hot-loop: retries follow without a delay; set initial_backoff and max_backoff above zero`.
impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        match self {
            Self::CapBelowBase { cap, base } => write!(
                f,
                "max_backoff of {cap:?} is below initial_backoff of {base:?}, so that every delay is bounded by \
                 the former; raise max_backoff"
            ),
            Self::HotLoop => f.write_str(
                "retries follow without a delay; set initial_backoff and max_backoff above zero",
            ),
            Self::FirstDelayBeyondDeadline { base, deadline } => write!(
                f,
                "with initial_backoff of {base:?} the first delay may reach the deadline of {deadline:?}; lengthen \
                 total_deadline or shorten initial_backoff"
            ),
            Self::AttemptsUnreachable { reachable, max_attempts } => write!(
                f,
                "only {reachable} of {max_attempts} attempts fit into the deadline; lengthen total_deadline, or \
                 lower max_attempts to {reachable}"
            ),
            Self::NoDeadline => f.write_str(
                "nothing bounds the time of a sequence; set total_deadline to what its caller will wait",
            ),
            Self::NoJitter => f.write_str(
                "callers that fail together return together; choose a jitter, unless there is one caller only",
            ),
            Self::JitterLostAtCap => f.write_str(
                "callers that have reached max_backoff return together; raise max_backoff, or choose a jitter that \
                 spreads below it",
            ),
            Self::HintJitteredAway => f.write_str(
                "the jitter may shorten the server's hint, and an attempt before it is wasted; choose additive \
                 jitter, or a hint rule that keeps the hint",
            ),
            Self::HintLimitBelowServerHint { limit, hint } => write!(
                f,
                "hints are waited for up to {limit:?}, and the server gives up to {hint:?}; raise the limit of the \
                 hint rule (for a floor, max_backoff)"
            ),
            Self::WaitBoundBeyondDeadline { wait_bound, deadline } => write!(
                f,
                "a request may wait {wait_bound:?} before it is refused, and by then a deadline of {deadline:?} \
                 leaves no time to retry; shorten the wait bound or lengthen total_deadline"
            ),
        }
    }
}

fn cap_below_base(policy: &RetryPolicy) -> Option<Lint> {
    let (cap, base) = (policy.max_backoff, policy.initial_backoff);
    (cap < base).then_some(Lint::CapBelowBase { cap, base })
}

fn hot_loop(policy: &RetryPolicy) -> Option<Lint> {
    (longest_delay(policy, 1).is_zero()).then_some(Lint::HotLoop)
}

fn first_delay_beyond_deadline(policy: &RetryPolicy) -> Option<Lint> {
    let (base, deadline) = (policy.initial_backoff, policy.total_deadline);
    // What is drawn stays just below the end of its window.
    let end_of_window = longest_delay(policy, 1).saturating_add(Duration::from_nanos(1));
    (has_deadline(policy) && end_of_window >= deadline)
        .then_some(Lint::FirstDelayBeyondDeadline { base, deadline })
}

fn attempts_unreachable(policy: &RetryPolicy) -> Option<Lint> {
    /// A policy with more attempts than that means "until the deadline".
    const COUNTED: u32 = 1_000;

    let mut elapsed = Duration::ZERO;
    let mut previous = policy.initial_backoff;
    for attempt in 1..policy.max_attempts.min(COUNTED) {
        match decide_with(policy, attempt, None, elapsed, 0.5, previous) {
            RetryDecision::Retry { after } => {
                elapsed = elapsed.saturating_add(after);
                previous = after;
            }
            RetryDecision::GiveUp(GiveUpReason::DeadlineExceeded) => {
                let max_attempts = policy.max_attempts;
                return Some(Lint::AttemptsUnreachable { reachable: attempt, max_attempts });
            }
            RetryDecision::GiveUp(_) => return None,
        }
    }
    None
}

fn no_deadline(policy: &RetryPolicy) -> Option<Lint> {
    (!has_deadline(policy)).then_some(Lint::NoDeadline)
}

fn no_jitter(policy: &RetryPolicy) -> Option<Lint> {
    (!is_spread(policy) && !longest_delay(policy, 1).is_zero()).then_some(Lint::NoJitter)
}

fn jitter_lost_at_cap(policy: &RetryPolicy) -> Option<Lint> {
    let has_width_at_cap = || delay_at_cap(policy, 0.0) != delay_at_cap(policy, 1.0);
    let is_cut_to_cap = policy.jitter == Jitter::DecorrelatedUnclamped;
    (is_spread(policy) && (is_cut_to_cap || !has_width_at_cap())).then_some(Lint::JitterLostAtCap)
}

fn hint_jittered_away(policy: &RetryPolicy) -> Option<Lint> {
    let replaces = matches!(policy.hint_rule, HintRule::Replace { .. });
    let shortens = match policy.jitter {
        Jitter::Full | Jitter::Equal => true,
        Jitter::Subtractive { percent } => percent > 0,
        _ => false,
    };
    (replaces && shortens).then_some(Lint::HintJitteredAway)
}

fn hint_limit_below_server_hint(policy: &RetryPolicy, surroundings: &Surroundings) -> Option<Lint> {
    let hint = surroundings.longest_hint?;
    let limit = match policy.hint_rule {
        HintRule::Floor => policy.max_backoff,
        HintRule::Replace { max_hint } | HintRule::Obey { max_hint } | HintRule::AtLeast { max_hint } => {
            max_hint
        }
    };
    (limit < hint).then_some(Lint::HintLimitBelowServerHint { limit, hint })
}

fn wait_bound_beyond_deadline(policy: &RetryPolicy, surroundings: &Surroundings) -> Option<Lint> {
    let (wait_bound, deadline) = (surroundings.wait_bound?, policy.total_deadline);
    (has_deadline(policy) && wait_bound >= deadline)
        .then_some(Lint::WaitBoundBeyondDeadline { wait_bound, deadline })
}

fn has_deadline(policy: &RetryPolicy) -> bool {
    policy.total_deadline != Duration::MAX
}

/// Whether the jitter is one that spreads anything.
fn is_spread(policy: &RetryPolicy) -> bool {
    match policy.jitter {
        Jitter::None => false,
        Jitter::Additive { percent }
        | Jitter::AdditiveOverCap { percent }
        | Jitter::Subtractive { percent } => percent > 0,
        Jitter::Full | Jitter::Equal | Jitter::Decorrelated | Jitter::DecorrelatedUnclamped => true,
    }
}

fn longest_delay(policy: &RetryPolicy, attempt: u32) -> Duration {
    endless_delay(policy, attempt, 1.0, policy.initial_backoff)
}

fn delay_at_cap(policy: &RetryPolicy, unit: f64) -> Duration {
    endless_delay(policy, u32::MAX - 1, unit, policy.max_backoff)
}

/// The delay, attempts and deadline aside.
fn endless_delay(policy: &RetryPolicy, attempt: u32, unit: f64, previous: Duration) -> Duration {
    let endless = RetryPolicy { max_attempts: u32::MAX, total_deadline: Duration::MAX, ..*policy };
    match decide_with(&endless, attempt, None, Duration::ZERO, unit, previous) {
        RetryDecision::Retry { after } => after,
        RetryDecision::GiveUp(_) => Duration::MAX,
    }
}
