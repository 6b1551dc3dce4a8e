//! Requests that carry an `Idempotency-Key`: each key has at most one run, and whoever repeats the request joins it.
//!
//! [`Runs`] knows which key has a run, who is attached to it, and which answers are still kept; [`Replay`] holds what
//! one run has given so far, so that a client that comes late reads it from the beginning. Both are pure; a driver
//! carries the runs out.
//!
//! # Rules
//!
//! A key belongs to one client: the same key under other credentials is another one ([`Scope`]). It stands for one
//! request: with another method, path or body it is [`Reused`](Arrival::Reused), as
//! draft-ietf-httpapi-idempotency-key-header §2.7 has it. While the run goes on, whoever comes with the key is attached
//! to it; when the last one has left, it is cancelled. A whole answer is kept for [`Limits::keep`], for a client whose
//! connection broke at the very end. Anything else is forgotten at once: whoever repeats a request that was refused
//! means it to be tried again.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use http::HeaderValue;

use crate::moment::Moment;

pub use replay::{ReaderId, Replay};

mod replay;

/// Whose key it is, and which.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The client's credentials, one per header that may hold any.
    pub client: Vec<Option<HeaderValue>>,
    /// The value of `Idempotency-Key`.
    pub key: HeaderValue,
}

/// What is kept of answers that have been given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For how long after its end.
    pub keep: Duration,
    /// Of how many runs at most.
    pub runs: usize,
    /// Of how many bytes altogether at most.
    pub bytes: usize,
}

impl Default for Limits {
    /// A minute, which is the longest that we ask a client to stay away; 64 answers, 32 MiB.
    fn default() -> Self {
        Self { keep: Duration::from_mins(1), runs: 64, bytes: 32 << 20 }
    }
}

/// The number of one run, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u64);

/// What a request with a key is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    /// Nobody has begun it: begin the run, and attach to it.
    Begin(RunId, T),
    /// It goes on, or its answer is kept: attach to the run.
    Attach(RunId, T),
    /// The key stands for another request.
    Reused,
}

/// The runs by key. `T` is what the driver keeps of each.
#[derive(Debug)]
pub struct Runs<T> {
    limits: Limits,
    by_scope: HashMap<Scope, Run<T>>,
    scopes: HashMap<RunId, Scope>,
    /// Those that have ended and are kept, by their end.
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    last: RunId,
}

#[derive(Debug)]
struct Run<T> {
    id: RunId,
    fingerprint: u64,
    shared: T,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running {
        attached: usize,
    },
    /// Its answer is kept.
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    id: RunId,
    until: Moment,
    bytes: usize,
}

impl<T: Clone> Runs<T> {
    /// None yet.
    pub fn new(limits: Limits) -> Self {
        let (by_scope, scopes, kept) = (HashMap::new(), HashMap::new(), VecDeque::new());
        Self { limits, by_scope, scopes, kept, kept_bytes: 0, last: RunId(0) }
    }

    /// A client comes with a key. `fingerprint` stands for its method, path and body; `begin` makes what the driver keeps
    /// of a new run. A client that is told to begin or to attach counts as attached until it [leaves](Self::leave).
    pub fn arrive(
        &mut self,
        scope: Scope,
        fingerprint: u64,
        now: Moment,
        begin: impl FnOnce() -> T,
    ) -> Arrival<T> {
        self.expire(now);
        if let Some(run) = self.by_scope.get_mut(&scope) {
            if run.fingerprint != fingerprint {
                return Arrival::Reused;
            }
            if let Stage::Running { attached } = &mut run.stage {
                *attached += 1;
            }
            return Arrival::Attach(run.id, run.shared.clone());
        }
        self.last.0 += 1;
        let (id, shared) = (self.last, begin());
        let run = Run { id, fingerprint, shared: shared.clone(), stage: Stage::Running { attached: 1 } };
        self.scopes.insert(id, scope.clone());
        self.by_scope.insert(scope, run);
        Arrival::Begin(id, shared)
    }

    /// A client that was attached has gone, with or without its answer. Whether the run is to be cancelled: it goes on,
    /// and nobody is left. It is forgotten then.
    #[must_use]
    pub fn leave(&mut self, id: RunId) -> bool {
        let Some(Run { stage: Stage::Running { attached }, .. }) = self.run(id) else { return false };
        *attached -= 1;
        let is_last = *attached == 0;
        if is_last {
            self.forget(id);
        }
        is_last
    }

    /// The run has ended: with a whole answer that takes so many `bytes` and can be given again, or with `None`. Unknown
    /// runs, such as cancelled ones, are ignored.
    pub fn end(&mut self, id: RunId, bytes: Option<usize>, now: Moment) {
        self.expire(now);
        let limits = self.limits;
        let Some(run) = self.run(id).filter(|run| run.stage != Stage::Ended) else { return };
        let Some(bytes) = bytes.filter(|bytes| *bytes <= limits.bytes && limits.runs > 0) else {
            return self.forget(id);
        };
        run.stage = Stage::Ended;
        while self.kept.len() >= limits.runs || self.kept_bytes + bytes > limits.bytes {
            self.drop_oldest();
        }
        self.kept.push_back(Kept { id, until: now.saturating_add(limits.keep), bytes });
        self.kept_bytes += bytes;
    }

    fn expire(&mut self, now: Moment) {
        while self.kept.front().is_some_and(|oldest| oldest.until <= now) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.kept.pop_front() {
            self.kept_bytes -= oldest.bytes;
            self.forget(oldest.id);
        }
    }

    fn run(&mut self, id: RunId) -> Option<&mut Run<T>> {
        self.by_scope.get_mut(self.scopes.get(&id)?)
    }

    fn forget(&mut self, id: RunId) {
        if let Some(scope) = self.scopes.remove(&id) {
            self.by_scope.remove(&scope);
        }
    }
}
