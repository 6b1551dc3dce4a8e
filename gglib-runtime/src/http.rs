//! Requests that leave this process over TCP: the one place that builds a client for them.
//!
//! HTTP clients like to help. They repeat a request when a pooled connection turns out closed, follow
//! redirects, and take proxies from the environment. Here none of that happens unseen: one call of
//! [`HttpUpstream::send`](Upstream::send) puts at most one request on the wire.

use std::time::Duration;

use ::http::header::{AUTHORIZATION, HOST};
use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::ports::{BoxFuture, ByteStream, Phase, Upstream, UpstreamError};
use reqwest::{Client, redirect, retry};
use thiserror::Error;

use base_url::BaseUrl;

mod base_url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Of a plain [`get`](HttpUpstream::get), from connecting to the last byte.
const GET_TIMEOUT: Duration = Duration::from_secs(10);

/// An OpenAI-compatible endpoint, ours or anybody's, by its base URL.
///
/// Every request gets a connection of its own. There is no pool, because an idle connection may be closed by
/// the other end at any moment, and the HTTP library answers that by sending the request again; it has no
/// switch against it. What is given up is one handshake per completion.
///
/// ```
/// use gglib_runtime::http::HttpUpstream;
///
/// let ours = HttpUpstream::new("http://127.0.0.1:8080", None)?;
/// let theirs = HttpUpstream::new("https://openrouter.ai/api/v1", Some("sk-or-1234"))?;
/// # Ok::<(), gglib_runtime::http::HttpError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HttpUpstream {
    client: Client,
    base: BaseUrl,
    /// The value of `authorization`.
    key: Option<HeaderValue>,
}

/// Why an endpoint cannot be talked to, before anything was sent.
#[derive(Debug, Error)]
pub enum HttpError {
    /// No URL at all.
    #[error("`{url}` is not a URL; give one like http://127.0.0.1:8080/v1")]
    NotAUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A URL, but not the base of an API.
    #[error("`{url}` cannot be a base URL: {problem}; give one like http://127.0.0.1:8080/v1")]
    NotABase {
        /// What was given, without a password.
        url: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The API key cannot be a bearer token. It is not repeated here.
    #[error("the API key must consist of visible ASCII characters without spaces")]
    ApiKey,
    /// The HTTP client could not be built: TLS found no certificates, say.
    #[error("no HTTP client could be set up")]
    Client(#[source] reqwest::Error),
}

impl HttpUpstream {
    /// The endpoint at `base_url`, with or without `/v1` at its end; `api_key` is sent as a bearer token.
    ///
    /// Proxies of the environment (`HTTPS_PROXY` and its kin) are used, except for a loopback address.
    pub fn new(base_url: &str, api_key: Option<&str>) -> Result<Self, HttpError> {
        let base = BaseUrl::parse(base_url)?;
        let key = api_key.map(bearer).transpose()?;
        let client = client(&base).map_err(HttpError::Client)?;
        Ok(Self { client, base, key })
    }

    /// Host and port as in the base URL, such as `127.0.0.1:8080`: a short name for people.
    pub fn authority(&self) -> &str {
        self.base.authority()
    }

    /// Asks for `path` (`/status`, `/v1/models`) and waits for the whole answer, whatever its status: 10 s at
    /// most, the connection included.
    pub async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), UpstreamError> {
        let mut request = reqwest::Request::new(Method::GET, self.base.join(path)?);
        request.headers_mut().extend(self.key.clone().map(|key| (AUTHORIZATION, key)));
        *request.timeout_mut() = Some(GET_TIMEOUT);
        let response = self.client.execute(request).await.map_err(before_headers)?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| UpstreamError::new(Phase::AfterHeaders, error))?;
        Ok((status, body))
    }

    fn addressed(&self, request: Request<Bytes>) -> Result<reqwest::Request, UpstreamError> {
        let (head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = reqwest::Request::new(head.method, self.base.join(path)?);
        let headers = request.headers_mut();
        *headers = head.headers;
        headers.remove(HOST);
        if let Some(key) = &self.key {
            headers.insert(AUTHORIZATION, key.clone());
        }
        *request.body_mut() = Some(body.into());
        Ok(request)
    }
}

impl Upstream for HttpUpstream {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<ByteStream>, UpstreamError>> {
        Box::pin(async move {
            let response = self.client.execute(self.addressed(request)?).await.map_err(before_headers)?;
            let mut answer = Response::builder().status(response.status()).version(response.version());
            answer.headers_mut().expect("nothing has failed yet").clone_from(response.headers());
            let mut phase = Phase::AfterHeaders;
            let stream = response.bytes_stream().map(move |chunk| {
                let chunk = chunk.map_err(|error| UpstreamError::new(phase, error));
                phase = Phase::MidBody;
                chunk
            });
            Ok(answer.body(Box::pin(stream) as ByteStream).expect("status and headers are a response's own"))
        })
    }
}

fn bearer(key: &str) -> Result<HeaderValue, HttpError> {
    let key = key.trim();
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(HttpError::ApiKey);
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {key}")).expect("visible ASCII fits in a header");
    value.set_sensitive(true);
    Ok(value)
}

fn client(base: &BaseUrl) -> Result<Client, reqwest::Error> {
    let mut builder = Client::builder()
        .retry(retry::never())
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        // reqwest cannot switch off the re-sends of `hyper_util`'s client, which concern reused connections only.
        .pool_max_idle_per_host(0)
        .user_agent(concat!("gglib/", env!("CARGO_PKG_VERSION")));
    if base.is_loopback() {
        builder = builder.no_proxy();
    }
    if !base.is_https() {
        // A machine without certificates can still talk to itself.
        builder = builder.tls_certs_only([]);
    }
    builder.build()
}

fn before_headers(error: reqwest::Error) -> UpstreamError {
    let phase = if error.is_connect() { Phase::Connect } else { Phase::BeforeHeaders };
    UpstreamError::new(phase, error)
}
