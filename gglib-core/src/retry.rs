//! The retry policy: whether work that failed is tried again, and after what delay.
//!
//! [`decide`] is a function of its arguments. The caller owns the clock (it passes the time that has
//! `elapsed`), the randomness (it passes a jitter unit in [0, 1), see [`jitter_unit`]) and the sleep. So the
//! same few lines of arithmetic can be tabulated ([`table`]), property-tested, simulated for thousands of
//! clients, and shared by the two sides of a refusal:
//!
//! * the completion client asks `decide` how long to sleep after a failed attempt;
//! * the proxy asks [`hint::advertise`] what to write into `Retry-After` when it refuses a request.
//!
//! As both sides hold the same [`RetryPolicy`], the client comes back when the server meant it to.
//!
//! Around `decide` stands what a caller needs for a whole backoff sequence. [`RetrySequence`] drives one, by
//! [`RetryRules`] of which the [presets](preset) are examples. [`classify`] says whether a [`Failure`] may be
//! repeated at all; [`RetryBudget`] bounds what the retries of all callers add to the load of a target, and
//! [`CircuitBreaker`] stops asking one that fails for good; [`Targets`] holds one of each per target. All of them
//! are values that take events and a [`Moment`](crate::moment::Moment), and all that happens is told by
//! [`RetryEvent`]s.
//!
//! ```
//! use std::time::Duration;
//! use gglib_core::retry::{self, RetryDecision, RetryPolicy};
//!
//! let policy = RetryPolicy::from_env();
//! let (failed_attempts, hint, elapsed) = (1, None, Duration::from_millis(80));
//! match retry::decide(&policy, failed_attempts, hint, elapsed, retry::jitter_unit()) {
//!     RetryDecision::Retry { after } => println!("sleep {after:?}, then send the request again"),
//!     RetryDecision::GiveUp(reason) => println!("report the last failure: {reason}"),
//! }
//! ```
//!
//! # Who uses it, and who deliberately does not
//!
//! The policy models one thing, a *backoff sequence*: the same work repeated after delays, by one of several
//! callers that may collide. Code that looks similar but is something else stays apart from it:
//!
//! | place | uses the policy | why |
//! |---|---|---|
//! | completion client of `gglib-runtime` | yes | many clients can collide on the start-up of one model |
//! | first-content and keep-alive timers of a stream | no | they measure a queue position, not a failure |
//! | polling: readiness, health, the progress of a download | no | waiting for a state; nothing has failed |
//! | relaunch of a dead engine, re-send on a second connection | no | one-shot recoveries: *changed* work, issued exactly once |
//!
//! # Why jitter, and which
//!
//! The failure guarded against is a crowd of clients that were refused at the same instant and would all
//! return at the same instant. [`Jitter::Full`], the default, spreads them over the whole window. None of
//! the strategies is best everywhere: in contention simulations, decorrelated jitter finishes slightly sooner
//! than full jitter for small crowds, at the price of more calls, and loses on both counts for large ones.

mod above;
mod backoff;
mod breaker;
mod budget;
mod classify;
mod decimal;
mod decision;
mod env;
mod event;
mod failure;
pub mod hint;
mod jitter;
mod lint;
mod nanos;
mod policy;
pub mod preset;
mod rules;
mod sequence;
mod status;
pub mod table;
mod target;

pub use above::{ATTEMPT_HEADER, RetriesAbove};
pub use breaker::{BreakerSettings, BreakerState, CircuitBreaker, Outcome, Permit, Rejection};
pub use budget::{BudgetSettings, BudgetUsage, RetryBudget, Withdrawal};
pub use classify::{Verdict, classify};
pub use decision::{GiveUpReason, RetryDecision, decide, decide_with};
pub use env::{DEADLINE_ENV_VAR, MAX_ATTEMPTS_ENV_VAR, Warning};
pub use event::{EventSource, Events, RetryEvent, RetryObserver};
pub use failure::{Advice, Cause, Class, Failure, IdempotencyWindow, Repeatability};
pub use jitter::jitter_unit;
pub use lint::{Lint, Surroundings, lint};
pub use policy::{Backoff, HintRule, Jitter, RetryPolicy};
pub use rules::{RetryRules, UnsafeRepeats};
pub use sequence::{Next, RetrySequence, Step};
pub use status::StatusSet;
pub use target::{Target, TargetSettings, Targets};
