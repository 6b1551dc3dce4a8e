//! The circuit breaker: stop asking what has failed for good, and find out when it is back.

use std::fmt;
use std::time::Duration;

use crate::moment::Moment;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BreakerSettings {
    /// Consecutive failures that open the breaker. 0 means 1.
    pub threshold: u32,
    /// How long the breaker stays open before the first probe.
    pub open_for: Duration,
    /// That time doubles with each probe that fails, up to this. Below `open_for` it never grows.
    pub max_open_for: Duration,
    /// How long a probe may take. One that has not been settled by then is given up, and another may start.
    pub probe_timeout: Duration,
}

impl BreakerSettings {
    /// For upstreams: 3 consecutive failures, 60 s.
    pub const TARGET: Self = Self {
        threshold: 3,
        open_for: Duration::from_secs(60),
        max_open_for: Duration::from_secs(60),
        probe_timeout: Duration::from_secs(60),
    };

    /// For loads of a model: 1 failure, 10 s that double up to 5 min.
    ///
    /// A load costs minutes and gigabytes, and rarely fails by chance.
    pub const MODEL_LOAD: Self = Self {
        threshold: 1,
        open_for: Duration::from_secs(10),
        max_open_for: Duration::from_secs(300),
        probe_timeout: Duration::from_secs(300),
    };
}

/// Refuses work on a target while it is known to fail, and lets single probes find out when that is over.
///
/// *Closed*, everything is admitted; [`threshold`](BreakerSettings::threshold) failures in a row open it. *Open*,
/// everything is refused, with the moment at which that ends. Then it is *half open*: one probe at a time is
/// admitted, and its outcome closes the breaker or opens it again, for longer.
///
/// The pattern and its states are those of Michael Nygard, "Release It!", 2007; what is leased and numbered here is what
/// implementations of it have got wrong.
///
/// Whoever is admitted holds a [`Permit`] and settles it with an [`Outcome`]. What is counted are the *final*
/// outcomes of backoff sequences, not attempts: attempts that fail are what retries are for. A permit belongs to
/// the period in which it was given, and a result that comes in after that period is ignored: a late success must
/// not close a breaker that has opened since, nor a late failure lengthen the pause. A permit that is lost does no
/// harm: while closed nothing waits for it, and a probe's place is free again after
/// [`probe_timeout`](BreakerSettings::probe_timeout).
///
/// ```
/// use std::time::Duration;
/// use gglib_core::moment::Moment;
/// use gglib_core::retry::{BreakerSettings, BreakerState, CircuitBreaker, Outcome};
///
/// let mut breaker = CircuitBreaker::new(BreakerSettings::MODEL_LOAD);
/// let start = Moment::ORIGIN;
/// let permit = breaker.admit(start).expect("it starts closed");
/// breaker.settle(permit, Outcome::Failure, start);
/// assert_eq!(breaker.state(), BreakerState::Open);
///
/// // Refused, with the time until the probe.
/// let later = start.saturating_add(Duration::from_secs(4));
/// assert_eq!(breaker.admit(later).unwrap_err().retry_at.saturating_since(later), Duration::from_secs(6));
///
/// // One probe, and nobody else meanwhile.
/// let later = start.saturating_add(Duration::from_secs(10));
/// let probe = breaker.admit(later).expect("the pause is over");
/// assert!(breaker.admit(later).is_err());
/// breaker.settle(probe, Outcome::Success, later);
/// assert_eq!(breaker.state(), BreakerState::Closed);
/// ```
#[derive(Debug)]
pub struct CircuitBreaker {
    settings: BreakerSettings,
    period: Period,
    /// The number of the period; permits of another one are void.
    generation: u64,
}

#[derive(Clone, Copy, Debug)]
enum Period {
    Closed { failures: u32 },
    Open { until: Moment, open_for: Duration },
    HalfOpen { lease_until: Moment, open_for: Duration },
}

/// The right to one piece of work, to be [settled](CircuitBreaker::settle) with its outcome.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an outcome that is not settled is not counted"]
pub struct Permit {
    generation: u64,
    kind: PermitKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PermitKind {
    Regular,
    Probe,
}

impl Permit {
    /// Whether this is the probe of a half-open breaker: a single attempt, without retries.
    pub const fn is_probe(&self) -> bool {
        matches!(self.kind, PermitKind::Probe)
    }
}

/// What a piece of work says about the health of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The target does its work, even if its answer is a refusal such as 400.
    Success,
    /// The target does not work.
    Failure,
    /// Nothing can be concluded: cancelled, or turned away by a target that is merely busy.
    Neutral,
}

/// The work is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// From this moment on it is worth asking again: the breaker admits a probe.
    pub retry_at: Moment,
}

/// The three states of a breaker, as they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Everything is admitted.
    Closed,
    /// Nothing is admitted until a certain moment.
    Open,
    /// A probe is under way; nothing else is admitted.
    HalfOpen,
}

impl CircuitBreaker {
    /// A closed breaker.
    pub fn new(settings: BreakerSettings) -> Self {
        Self::in_generation(settings, 0)
    }

    /// A closed breaker that accepts no permit of a lower generation.
    pub(super) fn in_generation(settings: BreakerSettings, generation: u64) -> Self {
        Self { settings, period: Period::Closed { failures: 0 }, generation }
    }

    /// The state as the last call has left it.
    ///
    /// Time alone changes nothing: an open breaker whose pause is over becomes half open when somebody asks.
    pub const fn state(&self) -> BreakerState {
        match self.period {
            Period::Closed { .. } => BreakerState::Closed,
            Period::Open { .. } => BreakerState::Open,
            Period::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// When work will be admitted again; `None` if it is already.
    pub fn retry_at(&self, now: Moment) -> Option<Moment> {
        match self.period {
            Period::Closed { .. } => None,
            Period::Open { until: at, .. } | Period::HalfOpen { lease_until: at, .. } => {
                (now < at).then_some(at)
            }
        }
    }

    /// Asks to begin a piece of work.
    ///
    /// # Errors
    ///
    /// The breaker is open, or another probe is under way.
    pub fn admit(&mut self, now: Moment) -> Result<Permit, Rejection> {
        if let Some(retry_at) = self.retry_at(now) {
            return Err(Rejection { retry_at });
        }
        let kind = match self.period {
            Period::Closed { .. } => PermitKind::Regular,
            Period::Open { open_for, .. } | Period::HalfOpen { open_for, .. } => {
                let lease_until = now.saturating_add(self.settings.probe_timeout);
                self.enter(Period::HalfOpen { lease_until, open_for });
                PermitKind::Probe
            }
        };
        Ok(Permit { generation: self.generation, kind })
    }

    /// Whether `permit` still counts: the breaker has not changed its state since it was given.
    pub const fn honours(&self, permit: &Permit) -> bool {
        self.generation == permit.generation
    }

    /// Ends a piece of work. A permit from an earlier period is ignored.
    #[expect(clippy::needless_pass_by_value, reason = "a permit that has been taken cannot be settled again")]
    pub fn settle(&mut self, permit: Permit, outcome: Outcome, now: Moment) {
        if !self.honours(&permit) {
            return;
        }
        match (&mut self.period, outcome) {
            // No permit is given while open, so that none is of such a period.
            (Period::Closed { .. }, Outcome::Neutral) | (Period::Open { .. }, _) => {}
            (Period::Closed { failures }, Outcome::Success) => *failures = 0,
            (Period::Closed { failures }, Outcome::Failure) => {
                *failures = failures.saturating_add(1);
                if *failures >= self.settings.threshold {
                    self.open(self.settings.open_for, now);
                }
            }
            (Period::HalfOpen { .. }, Outcome::Success) => self.enter(Period::Closed { failures: 0 }),
            (&mut Period::HalfOpen { open_for, .. }, Outcome::Failure) => {
                let longest = self.settings.max_open_for.max(self.settings.open_for);
                self.open(open_for.saturating_mul(2).min(longest), now);
            }
            // The next one to ask is the next probe.
            (&mut Period::HalfOpen { open_for, .. }, Outcome::Neutral) => {
                self.enter(Period::Open { until: now, open_for });
            }
        }
    }

    fn open(&mut self, open_for: Duration, now: Moment) {
        self.enter(Period::Open { until: now.saturating_add(open_for), open_for });
    }

    fn enter(&mut self, period: Period) {
        self.period = period;
        self.generation += 1;
    }
}

impl BreakerState {
    /// The state in lower case; the text is stable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half open",
        }
    }
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
