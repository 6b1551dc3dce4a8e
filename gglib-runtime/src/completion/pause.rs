//! Sleeping between attempts, as something that a test can replace.

use std::time::Duration;

use gglib_core::ports::BoxFuture;

/// Lets time pass.
pub trait Pause: Send + Sync {
    /// Resolves after `delay`. Dropping the future ends the wait.
    fn pause(&self, delay: Duration) -> BoxFuture<'_, ()>;
}

/// Sleeps on tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct Sleep;

impl Pause for Sleep {
    fn pause(&self, delay: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(delay))
    }
}
