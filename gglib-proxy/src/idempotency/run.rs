//! One run, and those who are attached to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use gglib_core::admission::Outlook;
use gglib_core::api::error::{ApiError, Code, ErrorCode};
use gglib_core::idempotency::{ReaderId, Replay, RunId};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{Idempotency, Piece};
use crate::account::Account;
use crate::exchange::{Recovery, Rejected, Sink};
use crate::stream::Item;

/// How much of one answer is held for whoever joins late, in bytes: some 15,000 tokens of a stream.
const REPLAY: usize = 4 << 20;

/// What one run has given so far, and its end.
pub(crate) struct Run {
    state: Mutex<State>,
    /// Sent to whenever there is something new: to read, or room to write.
    changed: watch::Sender<()>,
    /// How its wait for an engine stood at the last word, since its last recovery.
    outlook: watch::Sender<Option<Outlook>>,
    /// What becomes known of it.
    account: Account,
}

struct State {
    replay: Replay<Piece>,
    end: Option<Result<(), ApiError>>,
    task: Option<AbortHandle>,
}

impl Run {
    /// The run of the request with this `account`. It has given nothing yet.
    pub(super) fn new(account: Account) -> Self {
        let state = State { replay: Replay::new(REPLAY), end: None, task: None };
        let (changed, outlook) = (watch::Sender::new(()), watch::Sender::new(None));
        Self { state: Mutex::new(state), changed, outlook, account }
    }

    /// The task that carries it out, to be ended with the last client.
    pub(super) fn started(&self, task: AbortHandle) {
        self.state().task = Some(task);
    }

    /// Hands a piece to all who are attached, once there is room for it. When it is dropped before it resolves, nobody
    /// has got the piece.
    pub(super) async fn push(&self, piece: Piece) {
        let mut changes = self.changed.subscribe();
        while self.state().replay.is_full() {
            // The sender is ours.
            let _ = changes.changed().await;
        }
        let size = piece.size();
        self.state().replay.push(piece, size);
        self.changed.send_replace(());
    }

    /// The bytes that it takes to keep its answer; `None` if that would not be whole with this end.
    pub(super) fn keeps(&self, outcome: &Result<(), ApiError>) -> Option<usize> {
        let state = self.state();
        (outcome.is_ok() && state.replay.is_whole()).then(|| state.replay.bytes())
    }

    /// Tells its end to all who are attached.
    pub(super) fn end(&self, outcome: Result<(), ApiError>) {
        self.state().end = Some(outcome);
        self.changed.send_replace(());
    }

    /// Held for moments only.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the chunks of a streamed run.
pub(super) struct Recorder(pub(super) Arc<Run>);

impl Sink for Recorder {
    fn hands_on(&self) -> bool {
        true
    }

    fn waits(&mut self, outlook: Outlook) {
        self.0.outlook.send_replace(Some(outlook));
    }

    async fn chunk(&mut self, data: Bytes) -> Result<(), Rejected> {
        self.0.push(Piece::Part(Item::Chunk(data))).await;
        Ok(())
    }

    async fn recovered(&mut self, recovery: Recovery) -> Result<(), Rejected> {
        // A wait that follows is another one.
        self.0.outlook.send_replace(None);
        self.0.push(Piece::Part(Item::Recovered(recovery))).await;
        Ok(())
    }
}

/// One client's part in a run. When it is dropped the client has left, and when it was the last one the run is cancelled.
pub(crate) struct Attachment {
    all: Arc<Idempotency>,
    id: RunId,
    run: Arc<Run>,
    reader: Option<ReaderId>,
    account: Account,
    /// When the time of the client's own request is over.
    deadline: Instant,
}

impl Attachment {
    /// Counts from here on as one who has arrived at `all`, and reads `run` from its beginning.
    pub(super) fn new(
        all: Arc<Idempotency>,
        id: RunId,
        run: Arc<Run>,
        deadline: Instant,
    ) -> Result<Self, ApiError> {
        let reader = run.state().replay.join();
        let account = run.account.shared();
        let attached = Self { all, id, run, reader, account, deadline };
        if reader.is_none() {
            let message = format!(
                "the request with this Idempotency-Key still runs, and more than {} MiB of its answer have been given: it \
                 cannot be given again from its beginning",
                REPLAY >> 20
            );
            return Err(ApiError::new(ErrorCode::IdempotencyKeyInUse, message).not_worth_retrying());
        }
        Ok(attached)
    }

    /// What becomes known of the run, as it concerns this client.
    pub(crate) fn account(&self) -> Account {
        self.account.clone()
    }

    /// The next piece; `None` at the end of a whole answer. Nothing is lost when it is dropped before it resolves.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>, ApiError> {
        let mut changes = self.run.changed.subscribe();
        loop {
            if let Some(ended) = self.take() {
                return ended;
            }
            // The run is ours too, and with it the sender.
            let _ = changes.changed().await;
        }
    }

    /// What there is now, if anything.
    fn take(&self) -> Option<Result<Option<Piece>, ApiError>> {
        let mut state = self.run.state();
        let was_full = state.replay.is_full();
        let piece = self.reader.and_then(|reader| state.replay.next(reader));
        let made_room = was_full && !state.replay.is_full();
        let taken = match piece {
            Some(piece) => Some(Ok(Some(piece))),
            None => state.end.clone().map(|end| end.map(|()| None).map_err(|error| self.told(error))),
        };
        drop(state);
        // Only then: whoever waits here would be woken by its own word else, for ever.
        if made_room {
            self.run.changed.send_replace(());
        }
        taken
    }

    /// The error of the run as it concerns this client: a bound that the run has reached is not that of a request which
    /// came later, and which is worth repeating.
    fn told(&self, error: ApiError) -> ApiError {
        if error.code != Code::Known(ErrorCode::TimeoutRequest) || Instant::now() >= self.deadline {
            return error;
        }
        let message = format!("attached to an earlier request with this Idempotency-Key: {}", error.message);
        ApiError { message, should_retry: None, ..error }
    }

    /// All of a plain answer.
    pub(crate) async fn whole(mut self) -> Result<crate::plain::Collected, ApiError> {
        let answer = self.next().await?;
        // And to the end: until then the run goes on, and the last to leave it would cancel it.
        self.next().await?;
        match answer {
            Some(Piece::Whole(answer)) => Ok(answer),
            _ => Err(ApiError::new(ErrorCode::Internal, "a plain request was attached to a stream")),
        }
    }

    /// Hands on everything to `to_client`, to the end, and meanwhile how the run's wait for an engine stands.
    pub(crate) async fn feed(mut self, to_client: tokio::sync::mpsc::Sender<Item>) -> Result<(), ApiError> {
        let run = Arc::clone(&self.run);
        let mut outlooks = run.outlook.subscribe();
        // Also what was told before this client came.
        outlooks.mark_changed();
        loop {
            let piece = tokio::select! {
                biased;
                piece = self.next() => piece?,
                _ = outlooks.changed() => {
                    let outlook = *outlooks.borrow_and_update();
                    // The last word on a wait that is over is no news.
                    if let Some(outlook) = outlook.filter(|_| run.account.is_waiting()) {
                        // A client that does not read is not told; the next time is soon.
                        let _ = to_client.try_send(Item::Waits(outlook));
                    }
                    continue;
                }
            };
            match piece {
                None => return Ok(()),
                Some(Piece::Part(item)) => {
                    if to_client.send(item).await.is_err() {
                        return Err(ApiError::new(ErrorCode::Internal, "the client has left"));
                    }
                }
                Some(Piece::Whole(_)) => {
                    return Err(ApiError::new(
                        ErrorCode::Internal,
                        "a stream was attached to a plain request",
                    ));
                }
            }
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let task = {
            let mut state = self.run.state();
            if let Some(reader) = self.reader {
                state.replay.part(reader);
            }
            state.task.clone()
        };
        self.run.changed.send_replace(());
        if self.all.runs().leave(self.id)
            && let Some(task) = task
        {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
