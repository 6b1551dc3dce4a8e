//! Budgets and breakers, one of each for every target.

use std::collections::BTreeMap;

use super::breaker::{BreakerSettings, BreakerState, CircuitBreaker};
use super::budget::{BudgetSettings, RetryBudget};
use crate::moment::Moment;

/// What stands between the sequences of all callers and one target: an upstream, or the loads of one model.
///
/// The default is a target without either, which stops nobody.
#[derive(Debug, Default)]
pub struct Target {
    /// Bounds the share of retries.
    pub budget: Option<RetryBudget>,
    /// Refuses what is known to fail.
    pub breaker: Option<CircuitBreaker>,
}

/// What every target of a registry has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSettings {
    /// The settings of the budgets; `None` for targets without one.
    pub budget: Option<BudgetSettings>,
    /// The settings of the breakers; `None` for targets without one.
    pub breaker: Option<BreakerSettings>,
    /// The most targets that are remembered. 0 means 1.
    pub capacity: usize,
}

/// The targets of a process by name, a bounded number of them.
///
/// Without threads and locks: the driver keeps it behind a lock of its own, takes that for one step of a
/// [sequence](super::RetrySequence), and publishes the step's events when it has given the lock back. Each target
/// has its own budget and breaker, so that one which does not answer cannot use up the retries of the others.
///
/// When a new target finds no place, the one that was asked for longest ago is forgotten, and one whose breaker is
/// not closed only if all are like that. Permits and withdrawals of a forgotten target are void.
///
/// ```
/// use gglib_core::moment::Moment;
/// use gglib_core::retry::{BreakerSettings, TargetSettings, Targets};
///
/// let loads = TargetSettings { budget: None, breaker: Some(BreakerSettings::MODEL_LOAD), capacity: 64 };
/// let mut targets = Targets::new(loads);
/// let breaker = targets.target("smollm2", Moment::ORIGIN).breaker.as_mut().expect("by the settings");
/// assert!(breaker.admit(Moment::ORIGIN).is_ok());
/// ```
#[derive(Debug)]
pub struct Targets {
    settings: TargetSettings,
    entries: BTreeMap<Box<str>, Entry>,
    created: u64,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    used: Moment,
}

impl Targets {
    /// A registry without targets.
    pub fn new(settings: TargetSettings) -> Self {
        Self { settings, entries: BTreeMap::new(), created: 0 }
    }

    /// The target of this name, a new one if there is none.
    #[expect(clippy::missing_panics_doc, reason = "what is taken out was put in just before")]
    pub fn target(&mut self, name: &str, now: Moment) -> &mut Target {
        if !self.entries.contains_key(name) {
            self.make_room();
            let target = self.create();
            self.entries.insert(name.into(), Entry { target, used: now });
        }
        let entry = self.entries.get_mut(name).expect("put in just before, if it was not there");
        entry.used = now;
        &mut entry.target
    }

    /// Every target with its name, in alphabetical order, for metrics and status.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Target)> {
        self.entries.iter_mut().map(|(name, entry)| (&**name, &mut entry.target))
    }

    fn make_room(&mut self) {
        while self.entries.len() >= self.settings.capacity.max(1) {
            let least_missed =
                self.entries.iter().min_by_key(|(_, entry)| (entry.target.is_barred(), entry.used));
            let Some(name) = least_missed.map(|(name, _)| name.clone()) else { return };
            self.entries.remove(&name);
        }
    }

    /// No two targets share generations or accounts, so that none honours what another has given out.
    fn create(&mut self) -> Target {
        self.created += 1;
        let first_generation = self.created << 32;
        Target {
            budget: self.settings.budget.map(|settings| RetryBudget::with_account(settings, self.created)),
            breaker: self
                .settings
                .breaker
                .map(|settings| CircuitBreaker::in_generation(settings, first_generation)),
        }
    }
}

impl Target {
    fn is_barred(&self) -> bool {
        self.breaker.as_ref().is_some_and(|breaker| breaker.state() != BreakerState::Closed)
    }
}
