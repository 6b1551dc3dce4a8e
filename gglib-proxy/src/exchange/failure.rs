//! Why an attempt did not end in a whole answer, and what may be done about it.

use std::error::Error;
use std::io;

use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::ports::{Lease, Liveness, Phase, UpstreamError};

use super::Rejected;

#[derive(Debug)]
pub(super) enum Failure {
    /// The transport failed: perhaps the engine is dead, perhaps only a connection was.
    Broken { error: UpstreamError, committed: bool },
    /// The stream ended in good order without being whole.
    Incomplete { error: ApiError, committed: bool },
    /// A clock ran out while the engine got on with nothing: it hangs.
    Stalled { error: ApiError, committed: bool },
    /// A clock ran out although the engine works, for this request or another one.
    Slow { error: ApiError, committed: bool },
    /// The engine failed at the request, and this is its answer.
    Failed { error: ApiError, committed: bool },
    /// The engine answered, and this is its answer; or it cannot be understood.
    Answered(ApiError),
    /// Nobody reads any more.
    ClientGone,
}

impl Failure {
    /// Whether the engine may be dead.
    pub(super) fn is_suspicion(&self) -> bool {
        !matches!(self, Self::Answered(_) | Self::ClientGone)
    }

    /// What has become of the leased engine. One that is dead, or hangs, is gone when this resolves.
    pub(super) async fn examine(&self, lease: &dyn Lease) -> Liveness {
        match self {
            Self::Broken { .. } | Self::Incomplete { .. } | Self::Slow { .. } => lease.confirm().await,
            Self::Stalled { .. } => {
                lease.condemn().await;
                Liveness::Dead
            }
            Self::Failed { .. } => lease.failed().await,
            Self::Answered(_) | Self::ClientGone => Liveness::Alive,
        }
    }

    /// Whether nothing has been handed on that a second issue would repeat.
    pub(super) fn window_is_open(&self) -> bool {
        match self {
            Self::Broken { committed, .. }
            | Self::Incomplete { committed, .. }
            | Self::Stalled { committed, .. }
            | Self::Slow { committed, .. }
            | Self::Failed { committed, .. } => !committed,
            Self::Answered(_) | Self::ClientGone => false,
        }
    }

    /// Whether an engine that is alive may be asked again: not when it was merely slow, nor when it has answered.
    pub(super) fn may_be_resent(&self) -> bool {
        self.window_is_open() && matches!(self, Self::Broken { .. } | Self::Incomplete { .. })
    }

    /// What the client is told when nothing more can be done.
    pub(super) fn into_error(self) -> ApiError {
        match self {
            Self::Broken { error, committed } => {
                let what = if committed { "; the answer so far is incomplete" } else { "" };
                ApiError::new(code_of(&error), format!("{error}{what}")).not_worth_retrying()
            }
            Self::Incomplete { error, .. } | Self::Stalled { error, .. } | Self::Slow { error, .. } => {
                error.not_worth_retrying()
            }
            Self::Failed { error, .. } | Self::Answered(error) => error,
            Self::ClientGone => ApiError::new(ErrorCode::Internal, "the client has left"),
        }
    }
}

impl From<Rejected> for Failure {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::ClientGone => Self::ClientGone,
            Rejected::Malformed(error) => Self::Answered(error),
        }
    }
}

fn code_of(error: &UpstreamError) -> ErrorCode {
    match error.phase() {
        Phase::Connect if is_timeout(error) => ErrorCode::TimeoutConnect,
        Phase::Connect => ErrorCode::UpstreamUnreachable,
        Phase::BeforeHeaders | Phase::AfterHeaders | Phase::MidBody => ErrorCode::UpstreamDied,
    }
}

fn is_timeout(error: &UpstreamError) -> bool {
    std::iter::successors(error.source(), |&error| error.source()).any(|error| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_its_code() {
        let code = |phase, kind: io::ErrorKind| {
            let error = UpstreamError::new(phase, io::Error::from(kind));
            let error = Failure::Broken { error, committed: false }.into_error();
            assert_eq!(error.should_retry, Some(false));
            error.code.to_string()
        };
        assert_eq!(code(Phase::Connect, io::ErrorKind::ConnectionRefused), "upstream_unreachable");
        assert_eq!(code(Phase::Connect, io::ErrorKind::TimedOut), "timeout_connect");
        assert_eq!(code(Phase::BeforeHeaders, io::ErrorKind::ConnectionReset), "upstream_died");
        assert_eq!(code(Phase::MidBody, io::ErrorKind::TimedOut), "upstream_died");
    }

    #[test]
    fn a_timeout_is_found_below_other_errors() {
        let nested = UpstreamError::new(Phase::Connect, io::Error::from(io::ErrorKind::TimedOut));
        let error = UpstreamError::new(Phase::Connect, nested);
        assert_eq!(code_of(&error), ErrorCode::TimeoutConnect);
    }
}
