//! The retry budget: how many of all requests to a target may be retries.

mod window;

use std::time::Duration;

use self::window::Window;
use super::policy::RetryPolicy;
use crate::moment::Moment;

/// How many retries are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BudgetSettings {
    /// Retries per 100 original requests.
    pub percent: u32,
    /// Retries that are allowed in each window on top of that, so that a lone client can retry at all.
    pub min_per_window: u32,
    /// The length of the sliding window. One of zero remembers nothing.
    pub window: Duration,
}

impl BudgetSettings {
    /// 10 % in 10 s, and as many on top as one sequence by `policy` can use.
    ///
    /// 10 % is what Google's book on site reliability engineering (chapter "Handling Overload") allows a client.
    pub fn for_policy(policy: &RetryPolicy) -> Self {
        Self {
            percent: 10,
            min_per_window: policy.max_attempts.saturating_sub(1),
            window: Duration::from_secs(10),
        }
    }
}

/// Bounds the load that retries add to a target.
///
/// Limits per request do not add up to a limit: when everything fails, 4 attempts are 4 times the load, just when
/// the target can bear it least. With a budget it is 1.1 times the load, however many attempts a policy allows.
///
/// The idea, and the tenth, are from Google's book on site reliability engineering, chapter "Handling Overload"; the
/// minimum for clients with little traffic is from Finagle's retry budgets.
///
/// At each moment at which a retry is allowed, the retries of the last window, this one included, are at most
/// `percent` of the *original* requests of the last window, plus `min_per_window`. Retries do not earn retries.
/// A retry is paid for when it is scheduled, not when it is sent: a thousand sleeping retries are a thousand
/// retries. One that is never sent is [refunded](Self::refund).
///
/// The accounting is exact in integers. Time is kept in a hundred slots per window, and the error is one-sided:
/// an original may be forgotten up to a hundredth of the window too early, a retry up to as much too late.
///
/// ```
/// use gglib_core::moment::Moment;
/// use gglib_core::retry::{BudgetSettings, RetryBudget, RetryPolicy};
///
/// let now = Moment::ORIGIN;
/// let settings = BudgetSettings { min_per_window: 0, ..BudgetSettings::for_policy(&RetryPolicy::default()) };
/// let mut budget = RetryBudget::new(settings);
/// for _ in 0..10 {
///     budget.deposit(now);
/// }
/// let first = budget.withdraw(now).expect("one for ten");
/// assert!(budget.withdraw(now).is_none());
/// // The first retry was cancelled while it slept.
/// budget.refund(first, now);
/// assert!(budget.withdraw(now).is_some());
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    settings: BudgetSettings,
    originals: Window,
    retries: Window,
    account: u64,
}

/// A retry that has been paid for.
///
/// Give it back to [`RetryBudget::refund`] if the retry is not sent. There is nothing else to do with it, and to
/// lose it does no harm: the retry then counts as sent, and is forgotten with its window.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a retry that is not sent has to be refunded"]
pub struct Withdrawal {
    slot: u64,
    account: u64,
}

/// What a budget has counted in its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetUsage {
    /// Original requests.
    pub originals: u64,
    /// Retries: own ones that were scheduled, and those of the layers above.
    pub retries: u64,
    /// Retries that would be allowed now.
    pub available: u64,
}

impl RetryBudget {
    /// A budget that has seen nothing yet.
    pub fn new(settings: BudgetSettings) -> Self {
        Self::with_account(settings, 0)
    }

    /// A budget that takes back only its own withdrawals, if no other has the same `account`.
    pub(super) fn with_account(settings: BudgetSettings, account: u64) -> Self {
        Self {
            settings,
            originals: Window::at_most(settings.window),
            retries: Window::at_least(settings.window),
            account,
        }
    }

    /// What the budget allows.
    pub const fn settings(&self) -> &BudgetSettings {
        &self.settings
    }

    /// Counts an original request.
    pub fn deposit(&mut self, now: Moment) {
        self.originals.add(now);
    }

    /// Counts a retry that somebody above has decided on, and that cannot be refused here.
    ///
    /// It uses up the budget all the same: to the target it makes no difference which layer repeats.
    pub fn charge(&mut self, now: Moment) {
        self.retries.add(now);
    }

    /// Pays for a retry that is being scheduled; `None` if the budget is used up.
    pub fn withdraw(&mut self, now: Moment) -> Option<Withdrawal> {
        (self.usage(now).available > 0)
            .then(|| Withdrawal { slot: self.retries.add(now), account: self.account })
    }

    /// Takes back a retry that was not sent. One of an earlier window has been forgotten already, and one that
    /// another budget has paid for is none of this one's business.
    #[expect(clippy::needless_pass_by_value, reason = "what has been refunded cannot be refunded again")]
    pub fn refund(&mut self, withdrawal: Withdrawal, now: Moment) {
        if withdrawal.account == self.account {
            self.retries.take_back(withdrawal.slot, now);
        }
    }

    /// What has been counted in the window that ends `now`.
    pub fn usage(&mut self, now: Moment) -> BudgetUsage {
        let originals = self.originals.count(now);
        let retries = self.retries.count(now);
        let allowed = u128::from(originals) * u128::from(self.settings.percent) / 100
            + u128::from(self.settings.min_per_window);
        let available = u64::try_from(allowed.saturating_sub(u128::from(retries))).unwrap_or(u64::MAX);
        BudgetUsage { originals, retries, available }
    }
}
