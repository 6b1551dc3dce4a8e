//! Why a request was not admitted.

use std::time::Duration;

use thiserror::Error;

use crate::api::error::ErrorCode;

/// The honest end of a wait that did not lead to a lease.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// As many requests wait for the model as may.
    #[error("as many requests as may (admission.queue = {limit}) are waiting for this model already")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// The model's engine did not come up; every waiter of that load gets this.
    #[error("the model could not be loaded: {reason}")]
    LoadFailed {
        /// What happened, with the engine's last words.
        reason: String,
    },
    /// The queue did not move for too long.
    #[error("the queue did not move for {} s", after.as_secs())]
    Stalled {
        /// The configured bound.
        after: Duration,
    },
    /// The wait took too long altogether.
    #[error("no engine became free within {} s", after.as_secs())]
    WaitedTooLong {
        /// The configured bound.
        after: Duration,
    },
    /// gglib is shutting down.
    #[error("gglib is shutting down")]
    Draining,
}

impl Refusal {
    /// The code by which a client is told of it, and with it the status.
    ///
    /// ```
    /// use gglib_core::admission::Refusal;
    /// use http::StatusCode;
    ///
    /// assert_eq!(Refusal::QueueFull { limit: 256 }.code().status(), StatusCode::TOO_MANY_REQUESTS);
    /// ```
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::QueueFull { .. } => ErrorCode::QueueFull,
            Self::LoadFailed { .. } => ErrorCode::ModelLoadFailed,
            Self::Stalled { .. } => ErrorCode::WaitStalled,
            Self::WaitedTooLong { .. } => ErrorCode::WaitTooLong,
            Self::Draining => ErrorCode::Draining,
        }
    }
}
