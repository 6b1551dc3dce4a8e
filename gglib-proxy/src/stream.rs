//! A streamed answer: headers soon, and its error as a status if it is known by then.

use axum::body::Body;
use bytes::Bytes;
use gglib_core::admission::Outlook;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::model::ModelName;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use self::relay::Relay;
use crate::app::App;
use crate::connection::Outlet;
use crate::exchange::{self, Recovery, Rejected, Sink};
use crate::panics;
use crate::request::ModelRequest;
use crate::route::Route;
use crate::routes::RECOVERY_HEADER;
use crate::tally::Tally;

mod relay;

/// Chunks that may wait for a slow reader before the engine has to.
const CHUNKS: usize = 32;

/// An exchange whose answer goes to a stream. It ends when this is dropped.
pub(crate) struct Exchange {
    app: App,
    route: Route,
    model: ModelName,
    accepted: Instant,
    /// What arrived before the response's head, the last of its kind.
    first: Option<Item>,
    recovery: Option<Recovery>,
    items: mpsc::Receiver<Item>,
    task: Running,
}

/// What the exchange hands to the response's body.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// The data of a chunk.
    Chunk(Bytes),
    Recovered(Recovery),
    /// The wait for an engine goes on.
    Waits(Outlook),
}

impl Exchange {
    /// Starts the exchange and gives it a moment: most errors are known at once and deserve a status of their
    /// own. After that, the client and proxies between must see that the request lives.
    pub(crate) async fn begin(app: &App, request: ModelRequest, deadline: Instant) -> Result<Self, ApiError> {
        let (model, own) = (request.model.clone(), app.clone());
        Self::of(app, request.route, model, |to_client| async move {
            exchange::run(&own, &request, deadline, &mut Channel(to_client)).await
        })
        .await
    }

    /// Like [`begin`](Self::begin), of whatever `run` hands to the channel.
    pub(crate) async fn of<F>(
        app: &App,
        route: Route,
        model: ModelName,
        run: impl FnOnce(mpsc::Sender<Item>) -> F,
    ) -> Result<Self, ApiError>
    where
        F: Future<Output = Result<(), ApiError>> + Send + 'static,
    {
        let accepted = Instant::now();
        let (to_client, items) = mpsc::channel(CHUNKS);
        let task = Running::start(run(to_client));
        let mut exchange =
            Self { app: app.clone(), route, model, accepted, first: None, recovery: None, items, task };
        let grace = accepted + app.settings.head_grace;
        timeout_at(grace, exchange.first_chunk()).await.unwrap_or(Ok(()))?;
        Ok(exchange)
    }

    async fn first_chunk(&mut self) -> Result<(), ApiError> {
        loop {
            match self.items.recv().await {
                Some(Item::Recovered(recovery)) => self.recovery = Some(recovery),
                Some(item @ Item::Waits(_)) => self.first = Some(item),
                Some(item @ Item::Chunk(_)) => {
                    self.first = Some(item);
                    return Ok(());
                }
                None => return self.task.outcome().await,
            }
        }
    }

    /// The response, whose end is what `tally` counts.
    pub(crate) fn into_response(self, tally: Tally, outlet: Outlet) -> Response<Body> {
        let recovery = self.recovery;
        let mut response = Response::new(Relay::new(self, tally, outlet).into_body());
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
}

/// The exchange's task, ended when this is dropped.
struct Running(JoinHandle<Result<(), ApiError>>);

impl Running {
    fn start(run: impl Future<Output = Result<(), ApiError>> + Send + 'static) -> Self {
        Self(tokio::spawn(run.in_current_span()))
    }

    /// How the exchange ended, when it has. To be asked once.
    async fn outcome(&mut self) -> Result<(), ApiError> {
        match (&mut self.0).await {
            Ok(outcome) => outcome,
            Err(ended) => Err(ended.try_into_panic().map_or_else(
                |_| ApiError::new(ErrorCode::Draining, "gglib is shutting down"),
                |panic| panics::to_error(&*panic),
            )),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Channel(mpsc::Sender<Item>);

impl Sink for Channel {
    fn hands_on(&self) -> bool {
        true
    }

    async fn chunk(&mut self, data: Bytes) -> Result<(), Rejected> {
        self.0.send(Item::Chunk(data)).await.map_err(|_| Rejected::ClientGone)
    }

    /// A client that does not read is not told; the next time is soon.
    fn waits(&mut self, outlook: Outlook) {
        let _ = self.0.try_send(Item::Waits(outlook));
    }

    async fn recovered(&mut self, recovery: Recovery) -> Result<(), Rejected> {
        self.0.send(Item::Recovered(recovery)).await.map_err(|_| Rejected::ClientGone)
    }
}
