//! A client that asks once, repeats nothing, and keeps all that comes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::ports::Upstream;
use gglib_core::sse::{Decoder, SseEvent};
use gglib_runtime::http::{HttpError, HttpUpstream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::outcome::{Asked, End, Head, Seen, is_content};

/// A client of one endpoint.
#[derive(Clone, Debug)]
pub struct Client {
    upstream: HttpUpstream,
    patience: Duration,
    headers: HeaderMap,
}

/// A request on its way, read as fast as its answer comes. Dropping it hangs up.
#[derive(Debug)]
pub struct Call {
    progress: watch::Receiver<Progress>,
    sent: Instant,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Progress {
    seen: Seen,
    contents: usize,
    ended: bool,
}

impl Client {
    /// A client of the endpoint at `base_url`, with or without `/v1`, that waits for an end for `patience` at most: to
    /// be above the bound that is promised, so that an end that comes too late is told from none.
    pub fn new(base_url: &str, patience: Duration) -> Result<Self, HttpError> {
        Ok(Self { upstream: HttpUpstream::new(base_url, None)?, patience, headers: HeaderMap::new() })
    }

    /// The same client, which sends a further header with each request.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sends `body` to `/v1/chat/completions`, its `stream` set as `asked`. Needs a runtime.
    pub fn send(&self, asked: Asked, mut body: Value) -> Call {
        body["stream"] = (asked == Asked::Stream).into();
        let sent = Instant::now();
        let (report, progress) = watch::channel(Progress {
            seen: Seen {
                asked,
                head: None,
                body: Vec::new(),
                end: End::Cut,
                first_content: None,
                took: Duration::ZERO,
            },
            contents: 0,
            ended: false,
        });
        let Self { upstream, patience, headers } = self.clone();
        let task = tokio::spawn(async move {
            let reading = Reading { report: &report, sent, decoder: Decoder::default() };
            let end = timeout(patience, reading.run(&upstream, request(&body, headers))).await;
            report.send_modify(|progress| {
                progress.seen.end = end.unwrap_or(End::Open);
                progress.seen.took = sent.elapsed();
                progress.ended = true;
            });
        });
        Call { progress, sent, task }
    }

    /// Sends a request like [`send`](Self::send) and waits for its end.
    pub async fn ask(&self, asked: Asked, body: Value) -> Seen {
        self.send(asked, body).end().await
    }

    /// The endpoint itself, for other clients of it.
    pub(crate) fn upstream(&self) -> Arc<dyn Upstream> {
        Arc::new(self.upstream.clone())
    }

    /// `GET` of a path as JSON, such as `/status`; `None` if that is not what comes.
    pub async fn get(&self, path: &str) -> Option<Value> {
        let (_, body) = self.upstream.get(path).await.ok()?;
        serde_json::from_slice(&body).ok()
    }
}

impl Call {
    /// Waits until `count` events of the stream have carried content; `false` if it ended before.
    pub async fn contents(&mut self, count: usize) -> bool {
        let reached = self.progress.wait_for(|progress| progress.contents >= count || progress.ended).await;
        reached.is_ok_and(|progress| progress.contents >= count)
    }

    /// Whether nothing has come of the answer yet: no content, and no end.
    pub fn is_open(&self) -> bool {
        let progress = self.progress.borrow();
        progress.contents == 0 && !progress.ended
    }

    /// Whether the request has ended.
    pub fn has_ended(&self) -> bool {
        self.progress.borrow().ended
    }

    /// Waits for the end, by answer or by patience.
    pub async fn end(mut self) -> Seen {
        // The only other end of the channel is the task's, which reports before it ends.
        let _ = self.progress.wait_for(|progress| progress.ended).await;
        self.progress.borrow().seen.clone()
    }

    /// Hangs up, unless the request has ended already, and waits until the connection is closed.
    pub async fn hang_up(mut self) -> Seen {
        self.task.abort();
        let _ = (&mut self.task).await;
        let progress = self.progress.borrow();
        let seen = progress.seen.clone();
        if progress.ended { seen } else { Seen { end: End::Left, took: self.sent.elapsed(), ..seen } }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Reading<'a> {
    report: &'a watch::Sender<Progress>,
    sent: Instant,
    decoder: Decoder,
}

impl Reading<'_> {
    async fn run(mut self, upstream: &HttpUpstream, request: Request<Bytes>) -> End {
        let Ok(response) = upstream.send(request).await else { return End::Cut };
        let (head, mut body) = response.into_parts();
        let head = Head { status: head.status, headers: head.headers };
        self.report.send_modify(|progress| progress.seen.head = Some(head));
        while let Some(chunk) = body.next().await {
            let Ok(chunk) = chunk else { return End::Cut };
            self.take(&chunk);
        }
        End::Clean
    }

    fn take(&mut self, chunk: &Bytes) {
        self.decoder.push(chunk.clone());
        let mut contents = 0;
        while let Some(Ok(event)) = self.decoder.next_event() {
            contents += usize::from(matches!(event, SseEvent::Message { data, .. } if is_content(&data)));
        }
        let at = self.sent.elapsed();
        self.report.send_modify(|progress| {
            progress.seen.body.extend_from_slice(chunk);
            progress.contents += contents;
            if contents > 0 {
                progress.seen.first_content.get_or_insert(at);
            }
        });
    }
}

fn request(body: &Value, headers: HeaderMap) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from(body.to_string()));
    *request.headers_mut() = headers;
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static("/v1/chat/completions");
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;

    use super::*;

    const HEAD: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    const LONG: Duration = Duration::from_secs(20);

    /// A client, and a server that takes one connection, reads one request and answers by `serve`; what it read.
    async fn serving<F: Future<Output = ()> + Send>(
        patience: Duration,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> (Client, oneshot::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}/v1", listener.local_addr().unwrap()), patience).unwrap();
        let (tell, read) = oneshot::channel();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            let _ = tell.send(String::from_utf8(request).unwrap());
            serve(stream).await;
        });
        (client, read)
    }

    fn chunk(data: &str) -> String {
        format!("{:x}\r\n{data}\r\n", data.len())
    }

    async fn send(stream: &mut TcpStream, parts: &[&str]) {
        stream.write_all(parts.concat().as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_is_kept_to_its_end_and_asked_for_as_said() {
        let (client, read) = serving(LONG, async |mut stream| {
            send(&mut stream, &[HEAD, &chunk(TEXT), &chunk(TEXT), "0\r\n\r\n"]).await;
        })
        .await;
        let client = client.with_header(HeaderName::from_static("x-key"), HeaderValue::from_static("7"));
        let seen = client.ask(Asked::Stream, json!({ "model": "m", "stream": false })).await;
        assert_eq!((seen.end, &*seen.content()), (End::Clean, "aa"));
        assert_eq!(seen.head.as_ref().map(|head| head.status.as_u16()), Some(200));
        assert!(seen.first_content.is_some_and(|first| first <= seen.took));
        let request = read.await.unwrap();
        assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nx-key: 7\r\n"), "{request}");
        assert!(request.ends_with(r#"{"model":"m","stream":true}"#), "{request}");
    }

    #[tokio::test]
    async fn a_cut_is_told_from_an_end_and_nothing_is_sent_again() {
        let (client, _) = serving(LONG, async |mut stream| {
            send(&mut stream, &[HEAD, &chunk(TEXT)]).await;
        })
        .await;
        let seen = client.ask(Asked::Stream, json!({})).await;
        assert_eq!((seen.end, &*seen.content()), (End::Cut, "a"));
        // The server takes no second connection.
        let (client, read) = serving(LONG, async |_| {}).await;
        let seen = client.ask(Asked::Plain, json!({})).await;
        assert!(seen.end == End::Cut && seen.head.is_none() && read.await.is_ok());
    }

    #[tokio::test]
    async fn a_client_hangs_up_after_the_contents_that_it_waited_for() {
        let (tell, closed) = oneshot::channel();
        let (client, _) = serving(LONG, async |mut stream| {
            send(&mut stream, &[HEAD, &chunk(TEXT), &chunk(": keep-alive\n\n"), &chunk(TEXT)]).await;
            let _ = tell.send(stream.read(&mut [0]).await.is_ok_and(|read| read == 0));
        })
        .await;
        let mut call = client.send(Asked::Stream, json!({}));
        assert!(call.is_open());
        assert!(call.contents(2).await && !call.has_ended() && !call.is_open());
        let seen = call.hang_up().await;
        assert_eq!((seen.end, &*seen.content()), (End::Left, "aa"));
        assert!(closed.await.unwrap(), "the connection is closed");
    }

    #[tokio::test]
    async fn contents_that_do_not_come_are_not_waited_for_after_the_end() {
        let (client, _) = serving(LONG, async |mut stream| {
            send(&mut stream, &[HEAD, &chunk(TEXT), "0\r\n\r\n"]).await;
        })
        .await;
        let mut call = client.send(Asked::Stream, json!({}));
        assert!(!call.contents(2).await && call.has_ended());
        assert_eq!(call.hang_up().await.end, End::Clean, "it had ended before");
    }

    #[tokio::test]
    async fn patience_has_an_end() {
        let (client, _) = serving(Duration::from_millis(50), async |stream| {
            std::future::pending::<()>().await;
            drop(stream);
        })
        .await;
        let seen = client.ask(Asked::Plain, json!({})).await;
        assert!(seen.end == End::Open && seen.took >= Duration::from_millis(50));
    }
}
