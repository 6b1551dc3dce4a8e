//! The HTTP connection to one engine.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::ports::{BoxFuture, ByteStream, Phase, Upstream, UpstreamError};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tower_service::Service;

use super::address::Address;

/// The upstream of the engine at `address`.
pub(super) fn connect(address: &Address, connect_timeout: Duration) -> Box<dyn Upstream> {
    match address {
        Address::Unix(path) => {
            let connector = UnixConnector { path: path.clone(), timeout: connect_timeout };
            Box::new(EngineUpstream::new(&connector, "http://engine".to_owned(), None))
        }
        Address::Tcp { address, key } => {
            let key =
                HeaderValue::from_str(&format!("Bearer {key}")).expect("a hexadecimal key fits in a header");
            over_tcp(*address, connect_timeout, Some(key))
        }
    }
}

/// The same engine asked without its key; `None` where there is none.
pub(super) fn without_key(address: &Address, connect_timeout: Duration) -> Option<Box<dyn Upstream>> {
    match address {
        Address::Unix(_) => None,
        Address::Tcp { address, .. } => Some(over_tcp(*address, connect_timeout, None)),
    }
}

fn over_tcp(address: SocketAddr, connect_timeout: Duration, key: Option<HeaderValue>) -> Box<dyn Upstream> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(connect_timeout));
    connector.set_nodelay(true);
    Box::new(EngineUpstream::new(&connector, format!("http://{address}"), key))
}

struct EngineUpstream<C> {
    client: Client<C, Full<Bytes>>,
    origin: String,
    key: Option<HeaderValue>,
}

impl<C: Connect + Clone + Send + Sync + 'static> EngineUpstream<C> {
    fn new(connector: &C, origin: String, key: Option<HeaderValue>) -> Self {
        let client = Client::builder(TokioExecutor::new())
            // The engine closes its connection after each stream.
            .pool_max_idle_per_host(0)
            // The client would repeat a request by itself when its connection turns out closed.
            .retry_canceled_requests(false)
            .build(connector.clone());
        Self { client, origin, key }
    }

    fn addressed(&self, mut request: Request<Bytes>) -> Result<Request<Full<Bytes>>, http::Error> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = Uri::try_from(format!("{}{path}", self.origin))?;
        request.headers_mut().remove(HOST);
        if let Some(key) = &self.key {
            request.headers_mut().insert(AUTHORIZATION, key.clone());
        }
        Ok(request.map(Full::new))
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Upstream for EngineUpstream<C> {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<ByteStream>, UpstreamError>> {
        Box::pin(async move {
            let request =
                self.addressed(request).map_err(|error| UpstreamError::new(Phase::Connect, error))?;
            let response = self.client.request(request).await.map_err(|error| {
                let phase = if error.is_connect() { Phase::Connect } else { Phase::BeforeHeaders };
                UpstreamError::new(phase, error)
            })?;
            Ok(response.map(|body| {
                let mut phase = Phase::AfterHeaders;
                let stream = body.into_data_stream().map(move |chunk| {
                    let chunk = chunk.map_err(|error| UpstreamError::new(phase, error));
                    phase = Phase::MidBody;
                    chunk
                });
                Box::pin(stream) as ByteStream
            }))
        })
    }
}

/// Connects to one socket, whatever the URI says.
#[derive(Clone)]
struct UnixConnector {
    path: PathBuf,
    timeout: Duration,
}

impl Service<Uri> for UnixConnector {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { path, timeout: limit } = self.clone();
        Box::pin(async move {
            let stream = timeout(limit, UnixStream::connect(path)).await.map_err(|_| {
                io::Error::new(io::ErrorKind::TimedOut, "the engine did not take the connection")
            })??;
            Ok(TokioIo::new(stream))
        })
    }
}
