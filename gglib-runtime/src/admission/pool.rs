//! The front door: asking the owner task for a lease.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gglib_core::admission::{Settings, Snapshot, Ticket};
use gglib_core::model::{Catalog, ModelName};
use gglib_core::ports::{BoxFuture, Residency, Waiting};
use gglib_core::retry::RetryObserver;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::owner::{Message, Owner, Reply};
use super::place::Place;
use crate::engine::Launcher;

/// An owner task that does not answer within this time counts as stuck.
pub(super) const PROBE: Duration = Duration::from_secs(5);

/// The engines of this machine behind one queue.
///
/// When it is dropped every engine is stopped as soon as its leases are back; [`shut_down`](Self::shut_down)
/// also waits for that, and bounds it.
pub struct Pool {
    owner: mpsc::UnboundedSender<Message>,
    /// The last ticket. Held while one is taken and sent, so that they arrive in their order.
    tickets: Mutex<Ticket>,
}

impl Pool {
    /// Starts the owner task; needs a tokio runtime.
    pub fn start(launcher: Launcher, catalog: Catalog, settings: Settings) -> Self {
        let (owner, inbox) = mpsc::unbounded_channel();
        tokio::spawn(Owner::new(Arc::new(launcher), catalog, settings, owner.clone()).run(inbox));
        Self { owner, tickets: Mutex::default() }
    }

    /// Publishes the changes of the models' breakers, which failed loads open, to `observer` from now on. A target is
    /// known by the name of its model.
    pub fn publish_breakers(&self, observer: Arc<dyn RetryObserver>) {
        let _ = self.owner.send(Message::Observe(observer));
    }

    /// Takes over a configuration by what is different, and resolves when that is done: the files of models that are new
    /// or other than before are looked at first, for 2 s at most. A model that is started the same way as before keeps
    /// its engine; that of any other ends when its leases are back. Who waits for a model that is gone is refused.
    pub async fn configure(&self, catalog: Catalog, settings: Settings) {
        let (done, taken_over) = oneshot::channel();
        let _ = self.owner.send(Message::Configure { catalog, settings, done });
        // An error says that it is done, or that the owner has shut down.
        let _: Result<(), _> = taken_over.await;
    }

    /// Admits nobody any more and resolves when every lease is back and every engine has been stopped;
    /// after `bound`, engines are killed whatever they are doing.
    pub async fn shut_down(&self, bound: Duration) {
        let _ = self.owner.send(Message::Drain);
        // The owner's task ends, and closes the channel, when its last engine has.
        if timeout(bound, self.owner.closed()).await.is_err() {
            let _ = self.owner.send(Message::Abandon);
            // Every engine's task is killing its process now, each within a bound of its own.
            self.owner.closed().await;
        }
    }

    /// Joins the queue.
    fn arrive(&self, model: ModelName, reply: Reply) -> Ticket {
        let mut last = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        last.0 += 1;
        // An owner that is gone has shut down, and so has the reply's other end.
        let _ = self.owner.send(Message::Arrive { ticket: *last, model, reply });
        *last
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.owner.send(Message::Drain);
    }
}

impl Residency for Pool {
    fn enter(&self, model: ModelName) -> Box<dyn Waiting> {
        let (reply, answer) = oneshot::channel();
        let ticket = self.arrive(model, reply);
        Box::new(Place { ticket, owner: self.owner.clone(), answer: Some(answer) })
    }

    fn snapshot(&self) -> BoxFuture<'_, Option<Snapshot>> {
        Box::pin(async move {
            let (reply, snapshot) = oneshot::channel();
            self.owner.send(Message::Snapshot(reply)).ok()?;
            timeout(PROBE, snapshot).await.ok()?.ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_does_not_answer_is_given_up_after_five_seconds() {
        let (owner, stuck) = mpsc::unbounded_channel();
        let pool = Pool { owner, tickets: Mutex::default() };
        let asked = Instant::now();
        assert_eq!(pool.snapshot().await, None);
        assert_eq!(asked.elapsed(), Duration::from_secs(5));
        // One that is gone is no question of time.
        drop(stuck);
        assert_eq!(pool.snapshot().await, None);
        assert_eq!(asked.elapsed(), Duration::from_secs(5));
    }
}
