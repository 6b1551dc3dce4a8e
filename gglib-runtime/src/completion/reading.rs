//! A response's body, read against the clock.

use std::future::Future;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::ports::ByteStream;
use tokio::time::{Instant, timeout};

use super::Failure;

/// Far above any answer, far below what would hurt: 64 MiB.
const LONGEST: usize = 64 * 1024 * 1024;
/// The same for an error: 256 KiB.
const LONGEST_ERROR: usize = 256 * 1024;
/// The longest pause in the body of an error, whose status says the most.
const ERROR_IDLE: Duration = Duration::from_secs(10);

/// The time that one attempt has in all.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    total: Duration,
}

impl Clock {
    pub(super) fn start(total: Duration) -> Self {
        Self { start: Instant::now(), total }
    }

    /// Waits for `work`, for `limit` and the rest of the attempt's time at most; `code` is the verdict when the
    /// limit was the shorter.
    pub(super) async fn bound<T>(
        self,
        work: impl Future<Output = T>,
        limit: Duration,
        code: ErrorCode,
    ) -> Result<T, Failure> {
        let left = self.total.saturating_sub(self.start.elapsed());
        timeout(left.min(limit), work).await.map_err(|_| {
            Failure::Verdict(if limit <= left {
                let what = if code == ErrorCode::TimeoutResponseHeaders { "response head" } else { "byte" };
                ApiError::new(code, format!("the upstream sent no {what} for {} s", limit.as_secs_f64()))
            } else {
                let total = self.total.as_secs_f64();
                ApiError::new(ErrorCode::TimeoutTotal, format!("the attempt was not over after {total} s"))
            })
        })
    }
}

/// A body whose bytes must come in time.
pub(super) struct Body {
    pub(super) stream: ByteStream,
    pub(super) clock: Clock,
    /// The longest pause between two chunks.
    pub(super) idle: Duration,
}

impl Body {
    /// The next chunk; `None` at the end. `code` is the verdict on a pause that is too long.
    pub(super) async fn chunk(&mut self, code: ErrorCode) -> Result<Option<Bytes>, Failure> {
        let chunk = self.clock.bound(self.stream.next(), self.idle, code).await?;
        chunk.transpose().map_err(Failure::Transport)
    }

    /// All of it.
    pub(super) async fn whole(self) -> Result<Bytes, Failure> {
        self.up_to(LONGEST).await
    }

    /// All of it, if it is of a length that errors have, and does not keep its reader waiting.
    pub(super) async fn of_error(mut self) -> Result<Bytes, Failure> {
        self.idle = self.idle.min(ERROR_IDLE);
        self.up_to(LONGEST_ERROR).await
    }

    async fn up_to(mut self, longest: usize) -> Result<Bytes, Failure> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk(ErrorCode::TimeoutIdle).await? {
            whole.extend_from_slice(&chunk);
            if whole.len() > longest {
                let message = format!("the upstream's answer is longer than {longest} bytes");
                return Err(Failure::Verdict(ApiError::new(ErrorCode::UpstreamMalformed, message)));
            }
        }
        Ok(whole.freeze())
    }
}
