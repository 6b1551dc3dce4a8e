//! The right of one request to use one engine.

use std::sync::Arc;

use gglib_core::admission::{Generation, LeaseId};
use gglib_core::ports::{BoxFuture, Lease, Liveness, Upstream};
use tokio::sync::mpsc;

use super::owner::Message;
use crate::engine::Engine;

/// A lease on an engine of this machine.
pub(super) struct EngineLease {
    pub(super) id: LeaseId,
    pub(super) engine: Arc<Engine>,
    pub(super) owner: mpsc::UnboundedSender<Message>,
}

impl Lease for EngineLease {
    fn generation(&self) -> Generation {
        self.id.generation
    }

    fn upstream(&self) -> &dyn Upstream {
        self.engine.upstream()
    }

    fn confirm(&self) -> BoxFuture<'_, Liveness> {
        Box::pin(async move {
            if self.engine.is_alive().await {
                return Liveness::Alive;
            }
            self.condemn().await;
            Liveness::Dead
        })
    }

    fn condemn(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.owner.send(Message::Condemn(self.id.generation));
            self.engine.wait_ended().await;
        })
    }

    fn failed(&self) -> BoxFuture<'_, Liveness> {
        Box::pin(async move {
            if self.engine.fails_again().await {
                tracing::warn!(
                    generation = self.id.generation.0,
                    "the engine is healthy and fails at everything"
                );
                self.condemn().await;
                return Liveness::Dead;
            }
            Liveness::Alive
        })
    }

    fn worked(&self) {
        if self.engine.worked() {
            let _ = self.owner.send(Message::Answered(self.id.generation));
        }
    }
}

impl Drop for EngineLease {
    fn drop(&mut self) {
        let _ = self.owner.send(Message::Release(self.id));
    }
}
