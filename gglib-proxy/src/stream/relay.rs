//! The body of a streamed answer: a sign of life always, and an end that cannot be mistaken.

use std::io;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use gglib_core::admission::Outlook;
use gglib_core::api::chunk::Identity;
use gglib_core::sse::encode;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::{Exchange, Item};
use crate::connection::Outlet;
use crate::own_chunk;
use crate::route::Route;
use crate::tally::Tally;

pub(super) struct Relay {
    exchange: Exchange,
    outlet: Outlet,
    end: End,
    /// What the answer goes by, once it has a chunk.
    identity: Option<GoesBy>,
    /// When a chunk was last handed out.
    latest_at: Instant,
}

/// Whose first chunk decided what the answer goes by.
enum GoesBy {
    /// The engine's: its others say the same, and pass as they are.
    Engine(Identity),
    /// Ours, before the engine spoke, or that of another engine, which was replaced: its chunks have to follow.
    Own(Identity),
}

/// How far the end of the body has come.
enum End {
    Open(Tally),
    /// The error event is out; what is left is to cut the connection.
    Cut,
    Over,
}

impl Relay {
    pub(super) fn new(exchange: Exchange, tally: Tally, outlet: Outlet) -> Self {
        let latest_at = exchange.accepted;
        Self { exchange, outlet, end: End::Open(tally), identity: None, latest_at }
    }

    pub(super) fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut relay| async move {
            let frame = relay.next().await?;
            Some((frame, relay))
        }))
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        match std::mem::replace(&mut self.end, End::Over) {
            End::Open(tally) => Some(Ok(self.frame(tally).await)),
            End::Cut => {
                // The connection is torn down at once, and what it still held with it.
                self.outlet.flushed().await;
                Some(Err(io::Error::other("the stream failed; its error event has been sent")))
            }
            End::Over => None,
        }
    }

    async fn frame(&mut self, tally: Tally) -> Bytes {
        let item = match self.exchange.first.take() {
            Some(first) => Ok(Some(first)),
            None => timeout(self.exchange.app.settings.keep_alive, self.exchange.items.recv()).await,
        };
        let frame = match item {
            Err(_) => self.sign_of_life(None),
            Ok(Some(Item::Waits(outlook))) => self.sign_of_life(Some(outlook)),
            Ok(Some(Item::Chunk(data))) => self.chunk(data),
            Ok(Some(Item::Recovered(recovery))) => {
                // What comes now may be another engine's, and the client may have progress of the first one.
                self.identity =
                    self.identity.take().map(|(GoesBy::Engine(of) | GoesBy::Own(of))| GoesBy::Own(of));
                Bytes::from(format!(": gglib-recovery {}\n\n", recovery.as_str()))
            }
            Ok(None) => return self.ending(tally).await,
        };
        self.end = End::Open(tally);
        frame
    }

    fn chunk(&mut self, data: Bytes) -> Bytes {
        self.latest_at = Instant::now();
        let data = match &self.identity {
            Some(GoesBy::Own(identity)) => identity.put_on(data),
            Some(GoesBy::Engine(_)) => data,
            None => {
                let identity = Identity::of(&data).or(own_chunk::identity(&self.exchange.model));
                self.identity = Some(GoesBy::Engine(identity));
                data
            }
        };
        encode::data(&data)
    }

    /// A comment, which says how the wait stands if that is known; or a chunk if none has come in a chat for long.
    fn sign_of_life(&mut self, outlook: Option<Outlook>) -> Bytes {
        let is_chat = self.exchange.route == Route::Chat;
        if !is_chat || self.latest_at.elapsed() < self.exchange.app.settings.empty_delta {
            return outlook.map_or(Bytes::from_static(encode::KEEP_ALIVE), encode::waiting);
        }
        let own = || GoesBy::Own(own_chunk::identity(&self.exchange.model));
        let (GoesBy::Own(identity) | GoesBy::Engine(identity)) = self.identity.get_or_insert_with(own);
        self.latest_at = Instant::now();
        encode::data(&own_chunk::with_delta(&json!({}), identity))
    }

    /// The last event: `[DONE]` after a whole answer, else the error.
    async fn ending(&mut self, tally: Tally) -> Bytes {
        match self.exchange.task.outcome().await {
            Ok(()) => {
                tally.succeed();
                Bytes::from_static(encode::DONE)
            }
            Err(error) => {
                tally.fail(&error);
                self.end = End::Cut;
                error.to_sse()
            }
        }
    }
}
