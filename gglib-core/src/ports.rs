//! The few traits through which the proxy and the runtime meet.
//!
//! `gglib-proxy` does not depend on `gglib-runtime`, nor the other way round; `gglib-cli` hands the one's
//! implementations to the other.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use thiserror::Error;

pub use crate::slots::SlotWitness;

use crate::admission::{Generation, Outlook, Refusal, Snapshot};
use crate::model::ModelName;

/// A boxed future, so that the ports can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The body of an upstream's response, as it arrives.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, UpstreamError>> + Send>>;

/// Whatever answers requests: a local engine, a remote endpoint, a script in a test.
///
/// An implementation issues the request exactly once, on a connection of its own. It never repeats one by
/// itself, on no kind of failure: repetition belongs to the registered sites alone. And it keeps no pool:
/// `llama-server` closes its connection after each stream, so a pooled one would be stale more often than not.
pub trait Upstream: Send + Sync {
    /// Issues `request` once and resolves when the response's head has arrived.
    ///
    /// Only path and query of the request's URI matter; the implementation knows its own address.
    /// Dropping the future, or the body, cancels the upstream's work.
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<http::Response<ByteStream>, UpstreamError>>;
}

/// A failure below HTTP: there is no status, or the body broke off.
#[derive(Debug)]
pub struct UpstreamError {
    phase: Phase,
    source: Box<dyn Error + Send + Sync>,
}

/// How far an attempt had come when the transport failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No connection: refused, unreachable, name not resolved, TLS failed.
    Connect,
    /// Connected, but no response head came.
    BeforeHeaders,
    /// The head had come, no byte of the body.
    AfterHeaders,
    /// Some of the body had come.
    MidBody,
}

impl UpstreamError {
    /// A transport failure in `phase`, caused by `source`.
    pub fn new(phase: Phase, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { phase, source: source.into() }
    }

    /// How far the attempt had come.
    pub fn phase(&self) -> Phase {
        self.phase
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.phase {
            Phase::Connect => "could not connect to the upstream",
            Phase::BeforeHeaders => "the upstream closed the connection before it answered",
            Phase::AfterHeaders => "the upstream closed the connection before the first byte of its answer",
            Phase::MidBody => "the upstream broke off in the middle of its answer",
        })
    }
}

impl Error for UpstreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// The runtime's side of admission, as the proxy sees it.
pub trait Residency: Send + Sync {
    /// Takes a place in the queue for `model`, which launches or swaps as needed. Needs no waiting itself.
    fn enter(&self, model: ModelName) -> Box<dyn Waiting>;

    /// What is loaded, what waits, and the totals; `None` when the owner of the queue did not answer in
    /// time, which is what `/healthz` reports.
    fn snapshot(&self) -> BoxFuture<'_, Option<Snapshot>>;
}

/// A place in the queue; dropping it gives it up.
pub trait Waiting: Send {
    /// Resolves with the right to use an engine, or with the refusal. To be awaited to its end once; it may be dropped
    /// and called again before that.
    fn granted(&mut self) -> BoxFuture<'_, Result<Box<dyn Lease>, Refused>>;

    /// How the wait stands; `None` when it is over, or when the owner of the queue did not answer in time.
    fn outlook(&self) -> BoxFuture<'_, Option<Outlook>>;
}

/// The end of a wait without a lease.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{refusal}")]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// When it is worth asking again, from live facts; `None` when they do not tell.
    pub retry_after: Option<Duration>,
}

impl From<Refusal> for Refused {
    /// A refusal about which nothing more is known.
    fn from(refusal: Refusal) -> Self {
        Self { refusal, retry_after: None }
    }
}

/// The right of one request to use a resident engine; dropping it gives the place back.
pub trait Lease: Send + Sync {
    /// The launch that this lease belongs to.
    fn generation(&self) -> Generation;

    /// The leased engine.
    fn upstream(&self) -> &dyn Upstream;

    /// Checks a suspicion that the engine of this generation is dead: by its process's exit, or else by a
    /// health probe. A dead engine is stopped for good before this resolves; a newer one is never touched.
    fn confirm(&self) -> BoxFuture<'_, Liveness>;

    /// Retires the engine of this generation, which has got on with nothing for too long: it hangs, whatever its
    /// health probe says. It is killed, and gone when this resolves; a newer one is never touched.
    fn condemn(&self) -> BoxFuture<'_, ()>;

    /// Takes note that the engine has failed at a request with an error of its own, such as 500.
    ///
    /// One may be the request's fault. Several in a row, with nothing that [worked](Self::worked) between them, are a
    /// suspicion, which is checked by a piece of work of our own; an engine that fails at that too is dead.
    fn failed(&self) -> BoxFuture<'_, Liveness>;

    /// Takes note that the engine has done its work, which ends a row of failures.
    fn worked(&self);
}

/// What a checked suspicion came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The engine runs and answers.
    Alive,
    /// The engine has ended, or does not answer, or does no work any more; it has been retired.
    Dead,
}
