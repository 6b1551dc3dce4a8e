//! A streamed answer: headers soon, a sign of life always, and an end that cannot be mistaken.

use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::sse::encode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::app::App;
use crate::exchange::{self, Recovery, Rejected, Sink};
use crate::request::ChatRequest;
use crate::routes::RECOVERY_HEADER;

/// Chunks that may wait for a slow reader before the engine has to.
const CHUNKS: usize = 32;

/// Starts the exchange and answers with its stream, or with its error while there is still a status to choose.
pub(crate) async fn answer(app: &App, request: ChatRequest) -> Result<Response<Body>, ApiError> {
    let (to_client, mut items) = mpsc::channel(CHUNKS);
    let exchange = Running(tokio::spawn(feed(app.clone(), request, to_client)));
    // Most errors are known at once and deserve a status of their own. After the grace, clients and proxies
    // between must see that the request lives.
    let grace = Instant::now() + app.settings.head_grace;
    let mut recovery = None;
    let mut first = timeout_at(grace, items.recv()).await.ok().flatten();
    if let Some(Item::Recovered(known)) = first {
        recovery = Some(known);
        first = timeout_at(grace, items.recv()).await.ok().flatten();
    }
    if let Some(Item::Failed(error)) = first {
        return Err(error);
    }
    let relay = Relay { first, items, exchange, keep_alive: app.settings.keep_alive, end: End::Open };
    Ok(response(relay.into_body(), recovery))
}

/// What the exchange hands to the response's body.
enum Item {
    Event(Bytes),
    Recovered(Recovery),
    Failed(ApiError),
    Done,
}

/// The exchange's task, ended when the body that reads from it is dropped.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn feed(app: App, request: ChatRequest, to_client: mpsc::Sender<Item>) {
    let mut sink = Channel(to_client);
    let end = match exchange::run(&app, &request, &mut sink).await {
        Ok(()) => Item::Done,
        Err(error) => {
            app.counters.failed.increment();
            Item::Failed(error)
        }
    };
    // A client that has left needs no end.
    let _ = sink.0.send(end).await;
}

struct Channel(mpsc::Sender<Item>);

impl Sink for Channel {
    async fn chunk(&mut self, data: Bytes) -> Result<(), Rejected> {
        self.0.send(Item::Event(encode::data(&data))).await.map_err(|_| Rejected::ClientGone)
    }

    async fn recovered(&mut self, recovery: Recovery) -> Result<(), Rejected> {
        self.0.send(Item::Recovered(recovery)).await.map_err(|_| Rejected::ClientGone)
    }
}

fn response(body: Body, recovery: Option<Recovery>) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Keeps nginx from collecting the stream.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    if let Some(recovery) = recovery {
        headers.insert(RECOVERY_HEADER, HeaderValue::from_static(recovery.as_str()));
    }
    response
}

/// The response's body.
struct Relay {
    first: Option<Item>,
    items: mpsc::Receiver<Item>,
    #[expect(dead_code, reason = "held for its Drop")]
    exchange: Running,
    keep_alive: Duration,
    end: End,
}

/// How far the end of the body has come.
enum End {
    Open,
    /// The error event is out; what is left is to cut the connection.
    Cut,
    Over,
}

impl Relay {
    fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut relay| async move {
            let frame = relay.next().await?;
            Some((frame, relay))
        }))
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        match self.end {
            End::Over => return None,
            End::Cut => {
                self.end = End::Over;
                // One turn for the connection to write the error event out before it is torn down.
                tokio::task::yield_now().await;
                return Some(Err(io::Error::other("the stream failed; its error event has been sent")));
            }
            End::Open => {}
        }
        let item = match self.first.take() {
            Some(item) => Ok(Some(item)),
            None => timeout(self.keep_alive, self.items.recv()).await,
        };
        Some(Ok(match item {
            Err(_) => Bytes::from_static(encode::KEEP_ALIVE),
            Ok(Some(Item::Event(event))) => event,
            Ok(Some(Item::Recovered(recovery))) => {
                Bytes::from(format!(": gglib-recovery {}\n\n", recovery.as_str()))
            }
            Ok(Some(Item::Done)) => {
                self.end = End::Over;
                Bytes::from_static(encode::DONE)
            }
            Ok(Some(Item::Failed(error))) => {
                self.end = End::Cut;
                error.to_sse()
            }
            // The exchange's task panicked or was aborted: never a clean-looking end.
            Ok(None) => {
                self.end = End::Cut;
                ApiError::new(ErrorCode::Internal, "the request ended without an outcome").to_sse()
            }
        }))
    }
}
