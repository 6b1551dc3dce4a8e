//! A place in the queue.

use gglib_core::admission::{Outlook, Refusal, Ticket};
use gglib_core::ports::{BoxFuture, Lease, Refused, Waiting};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::lease::EngineLease;
use super::owner::Message;
use super::pool::PROBE;

/// One request's place, given up when it is dropped before the wait is over.
pub(super) struct Place {
    pub(super) ticket: Ticket,
    pub(super) owner: mpsc::UnboundedSender<Message>,
    /// Until the wait is over.
    pub(super) answer: Option<oneshot::Receiver<Result<EngineLease, Refused>>>,
}

impl Waiting for Place {
    fn granted(&mut self) -> BoxFuture<'_, Result<Box<dyn Lease>, Refused>> {
        Box::pin(async move {
            let Some(answer) = &mut self.answer else { return Err(Refusal::Draining.into()) };
            // An owner that is gone has shut down.
            let answered = answer.await.unwrap_or_else(|_| Err(Refusal::Draining.into()));
            self.answer = None;
            answered.map(|lease| Box::new(lease) as Box<dyn Lease>)
        })
    }

    fn outlook(&self) -> BoxFuture<'_, Option<Outlook>> {
        Box::pin(async move {
            let (reply, outlook) = oneshot::channel();
            self.owner.send(Message::Outlook { ticket: self.ticket, reply }).ok()?;
            timeout(PROBE, outlook).await.ok()?.ok()?
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.answer.is_some() {
            let _ = self.owner.send(Message::Leave(self.ticket));
        }
    }
}
