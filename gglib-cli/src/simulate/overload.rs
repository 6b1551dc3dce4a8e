//! A server that is offered more than it can do, and whose refusals come back.
//!
//! A fluid model in steps of one second: the server does `capacity` of what arrives and refuses the rest, of new
//! requests and of retries alike. What is refused returns when the policy says. Google's book on site reliability
//! engineering, chapter "Addressing Cascading Failures": 1 % too much, retried for ever after a second, adds 100
//! failures in each second to those of the one before.

use std::collections::BTreeMap;
use std::time::Duration;

use gglib_core::retry::{Backoff, HintRule, Jitter, RetryDecision, RetryPolicy, decide};

/// One second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    /// Requests that arrived, retries included.
    pub load: f64,
    /// Requests that were refused.
    pub refused: f64,
}

/// The policy of the book's example: a second between attempts, and no other limit than their number.
pub const fn every_second(max_attempts: u32) -> RetryPolicy {
    RetryPolicy {
        max_attempts,
        initial_backoff: Duration::from_secs(1),
        max_backoff: Duration::from_secs(1),
        total_deadline: Duration::MAX,
        backoff: Backoff::Fixed,
        jitter: Jitter::None,
        hint_rule: HintRule::Floor,
    }
}

/// Simulates a second for each item of `offered`, which are the new requests in it.
///
/// Delays are counted in whole seconds, rounded up, at least one; those with jitter are taken at half of their window.
///
/// ```
/// use gglib_cli::simulate::overload;
///
/// let for_ever = overload::every_second(u32::MAX);
/// let seconds = overload::run(&for_ever, 10_000.0, [10_100.0; 3]);
/// assert!((seconds[2].load - 10_300.0).abs() < 1e-6);
/// ```
pub fn run(policy: &RetryPolicy, capacity: f64, offered: impl IntoIterator<Item = f64>) -> Vec<Second> {
    // What returns in a second: the number of requests by failed attempts and the second in which they began.
    let mut returning: BTreeMap<u64, BTreeMap<(u32, u64), f64>> = BTreeMap::new();
    let mut seconds = Vec::new();
    for (now, new) in (0..).zip(offered) {
        let mut arriving = returning.remove(&now).unwrap_or_default();
        arriving.insert((0, now), new);
        let load: f64 = arriving.values().sum();
        let refused = (load - capacity).max(0.0);
        seconds.push(Second { load, refused });
        if refused == 0.0 {
            continue;
        }
        for ((failed, began), count) in arriving {
            let failed = failed.saturating_add(1);
            let elapsed = Duration::from_secs(now - began);
            if let RetryDecision::Retry { after } = decide(policy, failed, None, elapsed, 0.5) {
                let at = now + (after.as_secs() + u64::from(after.subsec_nanos() > 0)).max(1);
                *returning.entry(at).or_default().entry((failed, began)).or_default() +=
                    count * refused / load;
            }
        }
    }
    seconds
}
