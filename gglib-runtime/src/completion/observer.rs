//! What a backoff sequence tells of itself while it runs.

use std::time::Duration;

use gglib_core::retry::GiveUpReason;

use super::Failure;

/// Is told what the client does between a call and its result.
pub trait Observer: Send + Sync {
    /// Takes one notice. Called by the task that waits for the answer: it should be quick, and its panic ends
    /// the call.
    fn notice(&self, notice: &Notice<'_>);
}

/// One thing that a backoff sequence does. A call that succeeds at once, and a permanent failure, give none.
#[derive(Debug)]
pub enum Notice<'a> {
    /// An attempt has failed; the next follows after a delay.
    Waiting {
        /// Which attempt has failed, counted from 1.
        attempt: u32,
        /// Attempts that the policy allows in all.
        max_attempts: u32,
        /// Until the next attempt.
        delay: Duration,
        /// Why it has failed.
        cause: &'a Failure,
    },
    /// An attempt after the first has succeeded: a plain answer is whole, or a stream's first content is there.
    Recovered {
        /// Attempts made, the successful one included.
        attempts: u32,
        /// The delays before them, summed up.
        waited: Duration,
    },
    /// The last attempt has failed, and there is no time or no attempt left for another.
    GaveUp {
        /// What is spent.
        reason: GiveUpReason,
        /// Attempts made.
        attempts: u32,
        /// Since the first attempt began.
        elapsed: Duration,
        /// Why the last one has failed.
        last: &'a Failure,
    },
}
