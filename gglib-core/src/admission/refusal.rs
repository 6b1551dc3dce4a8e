//! Why a request was not admitted.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::api::error::ErrorCode;
use crate::memory::Memory;

/// The honest end of a wait that did not lead to a lease.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// As many requests wait for the model as may.
    #[error("as many requests as may (admission.queue = {limit}) are waiting for this model already")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// So many requests wait for the model that one more would wait longer than it may, by the measured time of an answer.
    #[error(
        "the requests that wait for this model already will take {} s, and none may wait longer than {} s \
         (admission.max_wait)",
        wait.as_secs(), limit.as_secs()
    )]
    QueueTooLong {
        /// How long those before it take.
        wait: Duration,
        /// The configured bound.
        limit: Duration,
    },
    /// The model's engine did not come up; every waiter of that load gets this.
    #[error("the model could not be loaded: {reason}")]
    LoadFailed {
        /// What happened, with the engine's last words.
        reason: Arc<str>,
    },
    /// Recent loads of the model failed, or its engines did not last; the next one is tried when the pause is over.
    #[error("the model could not be loaded ({failures} in a row failed), and the next load waits: {reason}")]
    BreakerOpen {
        /// Failed loads, or engines that did not last, in a row.
        failures: u32,
        /// Why the last one failed, with the engine's last words.
        reason: Arc<str>,
    },
    /// The model does not fit: by the numbers, or its load has died of memory twice.
    #[error("{}", insufficient(*needed, *budget, reason.as_deref()))]
    InsufficientMemory {
        /// What its engine takes by estimate or measurement, if that is known.
        needed: Option<Memory>,
        /// What all engines together may take.
        budget: Memory,
        /// The last load's end, if it was tried.
        reason: Option<Arc<str>>,
    },
    /// Pinned models take all the room.
    #[error(
        "pinned models leave no room for this one; raise memory.max_resident or memory.budget, or unpin one"
    )]
    PinnedOut,
    /// The model is not, or no longer, configured.
    #[error("the model is not configured")]
    NotConfigured,
    /// The model has got another name while the request waited, and this one is an alias of it now.
    #[error("the model has another name in the new configuration; ask for it again")]
    Renamed,
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
    /// When a [`Renamed`](Self::Renamed) model may be asked for again: at once, in whole seconds.
    pub const RENAMED_FOR: Duration = Duration::from_secs(1);

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
            Self::QueueFull { .. } | Self::QueueTooLong { .. } => ErrorCode::QueueFull,
            Self::LoadFailed { .. } => ErrorCode::ModelLoadFailed,
            Self::BreakerOpen { .. } => ErrorCode::BreakerOpen,
            Self::InsufficientMemory { .. } | Self::PinnedOut => ErrorCode::InsufficientMemory,
            Self::NotConfigured => ErrorCode::ModelNotFound,
            Self::Renamed => ErrorCode::ModelLoading,
            Self::Stalled { .. } => ErrorCode::WaitStalled,
            Self::WaitedTooLong { .. } => ErrorCode::WaitTooLong,
            Self::Draining => ErrorCode::Draining,
        }
    }
}

fn insufficient(needed: Option<Memory>, budget: Memory, reason: Option<&str>) -> String {
    let mut text = needed.map_or_else(
        || "the model does not fit into memory".to_owned(),
        |needed| format!("the model takes {}", amount(needed)),
    );
    if budget != Memory::UNBOUNDED {
        let _ = write!(text, "; all engines together may take {} (memory.budget)", amount(budget));
    }
    if let Some(reason) = reason {
        let _ = write!(
            text,
            "; two loads ran out of memory, the second one after every engine had been stopped that was neither in use \
             nor pinned: {reason}"
        );
    }
    text
}

fn amount(memory: Memory) -> String {
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    match memory {
        Memory { ram, vram: 0 } => format!("{} MiB of memory", mebibytes(ram)),
        Memory { ram: 0, vram } => format!("{} MiB of GPU memory", mebibytes(vram)),
        Memory { ram, vram } => {
            format!("{} MiB of memory and {} MiB of GPU memory", mebibytes(ram), mebibytes(vram))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_told_in_numbers() {
        let gib = |ram: u64, vram: u64| Memory { ram: ram << 30, vram: vram << 30 };
        let refusal = |needed, budget, reason: Option<&str>| {
            Refusal::InsufficientMemory { needed, budget, reason: reason.map(Into::into) }.to_string()
        };
        assert_eq!(
            refusal(Some(gib(9, 0)), gib(8, 0), None),
            "the model takes 9216 MiB of memory; all engines together may take 8192 MiB of memory (memory.budget)"
        );
        assert_eq!(
            refusal(Some(gib(1, 2)), Memory::UNBOUNDED, Some("killed")),
            "the model takes 1024 MiB of memory and 2048 MiB of GPU memory; two loads ran out of memory, the \
             second one after every engine had been stopped that was neither in use nor pinned: killed"
        );
    }
}
