//! Layers that each retry: how attempts multiply, and what bounds them.
//!
//! A request passes through layers, each of which repeats what the one below it refuses. If all calls at the bottom
//! fail, `k` attempts at each of `n` layers are `k^n` calls: Google's book on site reliability engineering, chapter
//! "Addressing Cascading Failures", counts 64 for 4 attempts at 3 layers. Delays play no part, so there are none; the
//! requests come one every millisecond.

use std::time::Duration;

use gglib_core::moment::Moment;
use gglib_core::retry::{
    ATTEMPT_HEADER, Advice, Backoff, BudgetSettings, Cause, Failure, HintRule, Jitter, Next, RetriesAbove,
    RetryBudget, RetryPolicy, RetryRules, RetrySequence, Target, preset,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::random::Random;

const PAUSE: Duration = Duration::from_millis(1);

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Layers that retry, at least 1.
    pub layers: u32,
    /// Attempts of each, at least 1.
    pub attempts: u32,
    /// Original requests.
    pub requests: u32,
    /// Of 100 calls at the bottom, how many fail.
    pub failing_percent: u32,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// What keeps attempts from multiplying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Restraint {
    /// Nothing.
    None,
    /// A layer that gives up says so (`x-should-retry: false`), and those above it do not repeat: only the layer
    /// directly above the one that refuses retries.
    OneLayer,
    /// Each layer has a [`RetryBudget`] of 10 % of its original requests, and is told which requests are retries of
    /// the layers above (`x-gglib-attempt`).
    Budgets,
    /// Both.
    Both,
}

impl Restraint {
    /// Every restraint, from none to both.
    pub const ALL: [Self; 4] = [Self::None, Self::OneLayer, Self::Budgets, Self::Both];

    /// The restraint as a name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OneLayer => "one layer retries",
            Self::Budgets => "budgets of 10 %",
            Self::Both => "both",
        }
    }

    const fn has_budgets(self) -> bool {
        matches!(self, Self::Budgets | Self::Both)
    }

    const fn has_advice(self) -> bool {
        matches!(self, Self::OneLayer | Self::Both)
    }
}

/// What arrived at the bottom, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Calls at the bottom.
    pub calls: u64,
    /// Original requests that succeeded.
    pub succeeded: u32,
}

/// Sends the requests through the layers.
///
/// ```
/// use gglib_cli::simulate::layers::{self, Restraint, Settings};
///
/// let settings = Settings { layers: 3, attempts: 4, requests: 1_000, failing_percent: 100, seed: 1 };
/// assert_eq!(layers::run(settings, Restraint::None).calls, 64_000);
/// assert_eq!(layers::run(settings, Restraint::OneLayer).calls, 4_000);
/// ```
pub fn run(settings: Settings, restraint: Restraint) -> Outcome {
    let requests = each(settings, restraint);
    Outcome {
        calls: requests.iter().map(|request| request.calls).sum(),
        succeeded: requests.iter().map(|request| request.succeeded).sum(),
    }
}

/// As [`run`], request by request, in their order.
pub fn each(settings: Settings, restraint: Restraint) -> Vec<Outcome> {
    let rules = rules(settings.attempts);
    let target = || Target {
        budget: restraint.has_budgets().then(|| RetryBudget::new(budget(&rules.policy))),
        breaker: None,
    };
    let mut targets: Vec<Target> = (0..settings.layers.max(1)).map(|_| target()).collect();
    let mut bottom = Bottom {
        failing: f64::from(settings.failing_percent) / 100.0,
        random: Random::new(settings.seed),
        calls: 0,
    };
    let mut outcomes = Vec::new();
    let mut now = Moment::ORIGIN;
    for _ in 0..settings.requests {
        let before = bottom.calls;
        let mut request = Request { rules: &rules, restraint, now, bottom: &mut bottom };
        let succeeded = request.pass(&mut targets, RetriesAbove::NONE).is_ok();
        outcomes.push(Outcome { calls: bottom.calls - before, succeeded: u32::from(succeeded) });
        now = now.saturating_add(PAUSE);
    }
    outcomes
}

/// Without delays and limits of time.
fn rules(attempts: u32) -> RetryRules {
    let policy = RetryPolicy {
        max_attempts: attempts,
        initial_backoff: Duration::ZERO,
        max_backoff: Duration::ZERO,
        total_deadline: Duration::MAX,
        backoff: Backoff::Fixed,
        jitter: Jitter::None,
        hint_rule: HintRule::Floor,
    };
    RetryRules { policy, ..preset::gglib() }
}

/// The usual budget without the allowance for lone clients, which a crowd does not notice.
fn budget(policy: &RetryPolicy) -> BudgetSettings {
    BudgetSettings { min_per_window: 0, ..BudgetSettings::for_policy(policy) }
}

struct Bottom {
    failing: f64,
    random: Random,
    calls: u64,
}

struct Request<'a> {
    rules: &'a RetryRules,
    restraint: Restraint,
    now: Moment,
    bottom: &'a mut Bottom,
}

impl Request<'_> {
    /// Through the first of the layers to those below it.
    fn pass(&mut self, layers: &mut [Target], above: RetriesAbove) -> Result<(), Failure<'static>> {
        let refused = Failure::new(Cause::Status(StatusCode::SERVICE_UNAVAILABLE));
        let Some((target, below)) = layers.split_first_mut() else {
            self.bottom.calls += 1;
            return if self.bottom.random.unit() < self.bottom.failing { Err(refused) } else { Ok(()) };
        };
        let (mut sequence, mut step) = RetrySequence::begin(self.rules, above, self.now, target);
        loop {
            step = match step.next {
                Next::Attempt => match self.pass(below, retries_so_far(above, sequence.attempts())) {
                    Ok(()) => {
                        let _ = sequence.on_success(self.now, target);
                        return Ok(());
                    }
                    Err(failure) => sequence.on_failure(&failure, self.now, 0.0, target),
                },
                Next::Wait { .. } => sequence.on_wake(self.now, target),
                Next::GiveUp { .. } => {
                    let advice = self.restraint.has_advice().then_some(Advice::GiveUp);
                    return Err(Failure { advice, ..refused });
                }
            };
        }
    }
}

/// What the layer below is told: this layer's retries, and those of the layers above it.
fn retries_so_far(above: RetriesAbove, attempt: u32) -> RetriesAbove {
    let number = above.count().saturating_add(attempt);
    RetriesAbove::parse(&HeaderMap::from_iter([(
        http::HeaderName::from_static(ATTEMPT_HEADER),
        HeaderValue::from(number),
    )]))
}
