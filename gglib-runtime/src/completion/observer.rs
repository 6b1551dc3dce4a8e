//! What a call tells of its backoff sequence while it runs.

use gglib_core::moment::Moment;
use gglib_core::retry::{Class, EventSource, RetryEvent, RetryObserver};
use tracing::{debug, info};

use super::Failure;

/// Is told what the client does between a call and its result.
pub trait Observer: Send + Sync {
    /// Takes one notice. Called by the task that waits for the answer: it should be quick, and its panic ends
    /// the call.
    fn notice(&self, notice: &Notice<'_>);
}

/// An event of the policy, and what a person may want to know beside it.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    /// The upstream and the rules.
    pub source: EventSource<'a>,
    /// What has happened.
    pub event: &'a RetryEvent,
    /// What a wait or a give-up is about: code and status, where the event has the class.
    pub last: Option<&'a Failure>,
}

/// Writes each event to the log.
pub(super) struct Logged {
    pub(super) now: Moment,
}

impl RetryObserver for Logged {
    fn observe(&self, source: &EventSource<'_>, event: &RetryEvent) {
        let EventSource { target: upstream, rules } = *source;
        let until = |at: Option<Moment>| at.map(|at| at.saturating_since(self.now));
        let name = event.name();
        match *event {
            RetryEvent::AttemptStarted { attempt } => debug!(upstream, rules, attempt, "{name}"),
            RetryEvent::RetryScheduled { attempt, max_attempts, class, hint, delay } => {
                debug!(upstream, rules, attempt, max_attempts, %class, ?hint, ?delay, "{name}");
            }
            RetryEvent::Succeeded { attempts, total_delay } => {
                debug!(upstream, rules, attempts, ?total_delay, "{name}");
            }
            RetryEvent::GaveUp { reason, attempts, total_delay, class, retry_at } => {
                let (class, retry_after) = (class.map(Class::as_str), until(retry_at));
                debug!(upstream, rules, %reason, attempts, ?total_delay, class, ?retry_after, "{name}");
            }
            RetryEvent::BudgetExceeded { percent, usage, window } => {
                let (originals, retries) = (usage.originals, usage.retries);
                info!(upstream, rules, percent, originals, retries, ?window, "{name}");
            }
            RetryEvent::BreakerChanged { from, to, retry_at } => {
                info!(upstream, rules, %from, %to, retry_after = ?until(retry_at), "{name}");
            }
            RetryEvent::Cancelled { attempts, total_delay } => {
                debug!(upstream, rules, attempts, ?total_delay, "{name}");
            }
        }
    }
}
