//! What an engine's task tells the owner, also if the task fails.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use gglib_core::admission::Generation;
use tokio::sync::mpsc;

use super::owner::Message;
use crate::engine::{EngineEvent, LaunchError};

/// The voice of one launch. Dropped before the launch's end was told, it tells that: the task has panicked, and the
/// engine's process goes with it.
pub(super) struct Report {
    generation: Generation,
    inbox: mpsc::UnboundedSender<Message>,
    is_loaded: AtomicBool,
    is_over: AtomicBool,
}

impl Report {
    pub(super) fn new(generation: Generation, inbox: mpsc::UnboundedSender<Message>) -> Self {
        Self { generation, inbox, is_loaded: AtomicBool::new(false), is_over: AtomicBool::new(false) }
    }

    pub(super) fn tell(&self, event: EngineEvent) {
        match event {
            EngineEvent::Loaded { .. } => self.is_loaded.store(true, Ordering::Relaxed),
            EngineEvent::LoadFailed(..) | EngineEvent::Ended(_) => {
                self.is_over.store(true, Ordering::Relaxed);
            }
            EngineEvent::Started { .. } | EngineEvent::Outgrown(_) => {}
        }
        let _ = self.inbox.send(Message::Engine(event));
    }
}

impl Drop for Report {
    // Nothing is logged here: what has panicked may be the log's writer.
    fn drop(&mut self) {
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        self.tell(if self.is_loaded.load(Ordering::Relaxed) {
            EngineEvent::Ended(self.generation)
        } else {
            let error =
                io::Error::other("the task that was loading it has failed; gglib's standard error says why");
            EngineEvent::LoadFailed(self.generation, LaunchError::Start(error))
        });
    }
}
