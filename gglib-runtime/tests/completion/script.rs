//! An upstream that answers from a script, and an observer that keeps what it is told.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use gglib_core::ports::{BoxFuture, ByteStream, Phase, Upstream, UpstreamError};
use gglib_core::retry::{ATTEMPT_HEADER, GiveUpReason, RetryEvent, RetryPolicy};
use gglib_runtime::completion::{CompletionClient, CompletionError, Delta, Notice, Observer};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::time::{Instant, sleep};

pub(crate) const BODY: &[u8] = br#"{"model":"m","messages":[]}"#;

/// The answer to one attempt.
#[derive(Clone)]
pub(crate) struct Reply {
    delay: Duration,
    head: Option<Head>,
    pieces: Vec<Piece>,
}

#[derive(Clone)]
struct Head {
    status: u16,
    headers: Vec<(&'static str, String)>,
}

/// A step of a response's body.
#[derive(Clone)]
pub(crate) enum Piece {
    Bytes(String),
    Quiet(Duration),
    Broken(Phase),
    Hanging,
}

impl Reply {
    /// A failure before the response's head.
    pub(crate) fn fails() -> Self {
        Self { delay: Duration::ZERO, head: None, pieces: Vec::new() }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { head: Some(Head { status, headers: Vec::new() }), ..Self::fails() }
    }

    /// An error response as our proxy gives it.
    pub(crate) fn error(status: u16, code: &str) -> Self {
        Self::status(status).body(&error(code))
    }

    pub(crate) fn stream(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let reply = Self::status(200).header("content-type", "text/event-stream");
        Self { pieces: pieces.into_iter().collect(), ..reply }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.head.as_mut().expect("a failure has no headers").headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, text: &str) -> Self {
        self.pieces.push(Piece::Bytes(text.to_owned()));
        self
    }

    pub(crate) fn piece(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
        self
    }

    /// The head comes after `delay`.
    pub(crate) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

pub(crate) fn error(code: &str) -> String {
    format!(r#"{{"error":{{"message":"it is so","type":"server_error","code":"{code}","param":null}}}}"#)
}

/// One event of a stream.
pub(crate) fn event(data: &str) -> Piece {
    Piece::Bytes(format!("data: {data}\n\n"))
}

/// A chunk whose delta is `delta`, JSON.
pub(crate) fn chunk(delta: &str) -> Piece {
    event(&format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#))
}

pub(crate) fn text(text: &str) -> Piece {
    chunk(&format!(r#"{{"content":"{text}"}}"#))
}

pub(crate) fn finish() -> Piece {
    event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#)
}

pub(crate) fn whole() -> Reply {
    Reply::stream([text("Hello"), finish(), event("[DONE]")])
}

/// Gives the replies in turn, and the last one for ever.
#[derive(Default)]
pub(crate) struct Scripted {
    replies: Mutex<VecDeque<Reply>>,
    sent: Mutex<Vec<Request<Bytes>>>,
    pieces: Arc<AtomicUsize>,
    /// Sends and bodies that are alive hold one reference each.
    alive: Arc<()>,
}

impl Scripted {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(replies.into_iter().collect()), ..Self::default() })
    }

    pub(crate) fn attempts(&self) -> usize {
        self.sent.lock().unwrap().len()
    }

    pub(crate) fn in_flight(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }

    /// The attempt header of each attempt.
    pub(crate) fn numbers(&self) -> Vec<String> {
        self.headers(ATTEMPT_HEADER)
    }

    /// A header of each attempt.
    pub(crate) fn headers(&self, name: &str) -> Vec<String> {
        let sent = self.sent.lock().unwrap();
        sent.iter().map(|request| request.headers()[name].to_str().unwrap().to_owned()).collect()
    }

    /// Pieces with bytes that were asked for.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.load(Ordering::Relaxed)
    }

    /// The body of the first attempt.
    pub(crate) fn body(&self) -> String {
        String::from_utf8(self.sent.lock().unwrap()[0].body().to_vec()).unwrap()
    }
}

impl Upstream for Scripted {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<ByteStream>, UpstreamError>> {
        self.sent.lock().unwrap().push(request);
        let mut replies = self.replies.lock().unwrap();
        let reply = if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() };
        let (reply, alive) = (reply.expect("a script has a reply"), Arc::clone(&self.alive));
        let count = Arc::clone(&self.pieces);
        Box::pin(async move {
            sleep(reply.delay).await;
            let head =
                reply.head.ok_or_else(|| UpstreamError::new(Phase::BeforeHeaders, "connection reset"))?;
            let mut response = Response::new(body(reply.pieces, count, alive));
            *response.status_mut() = StatusCode::from_u16(head.status).unwrap();
            for (name, value) in head.headers {
                let value = HeaderValue::from_str(&value).unwrap();
                response.headers_mut().append(HeaderName::from_static(name), value);
            }
            Ok(response)
        })
    }
}

fn body(pieces: Vec<Piece>, count: Arc<AtomicUsize>, alive: Arc<()>) -> ByteStream {
    let state = (pieces.into_iter(), count, alive);
    Box::pin(stream::unfold(state, |(mut pieces, count, alive)| async move {
        loop {
            let item = match pieces.next()? {
                Piece::Bytes(bytes) => {
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(Bytes::from(bytes))
                }
                Piece::Broken(phase) => Err(UpstreamError::new(phase, "connection reset")),
                Piece::Quiet(time) => {
                    sleep(time).await;
                    continue;
                }
                Piece::Hanging => std::future::pending().await,
            };
            return Some((item, (pieces, count, alive)));
        }
    })) as Pin<Box<_>>
}

/// Keeps what it is told.
#[derive(Default)]
pub(crate) struct Told(Mutex<Record>);

#[derive(Default)]
struct Record {
    start: Option<Instant>,
    notices: Vec<String>,
    events: Vec<RetryEvent>,
}

impl Told {
    /// Waits, successes after one, and give-ups that are no rejections, as text.
    pub(crate) fn notices(&self) -> Vec<String> {
        self.0.lock().unwrap().notices.clone()
    }

    /// Every event.
    pub(crate) fn events(&self) -> Vec<RetryEvent> {
        self.0.lock().unwrap().events.clone()
    }

    /// The names of the events.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.events().iter().map(RetryEvent::name).collect()
    }
}

impl Observer for Told {
    fn notice(&self, notice: &Notice<'_>) {
        assert_eq!((notice.source.target, notice.source.rules), ("scripted", "gglib"));
        let mut record = self.0.lock().unwrap();
        record.events.push(*notice.event);
        let last = notice.last.map(ToString::to_string).unwrap_or_default();
        let text = match *notice.event {
            RetryEvent::AttemptStarted { attempt: 1 } => {
                record.start = Some(Instant::now());
                return;
            }
            RetryEvent::RetryScheduled { attempt, max_attempts, delay, .. } => {
                format!("attempt {attempt} of {max_attempts} failed, waiting {delay:?}: {last}")
            }
            RetryEvent::Succeeded { attempts: attempts @ 2.., total_delay } => {
                format!("recovered in {attempts} attempts, having waited {total_delay:?}")
            }
            RetryEvent::GaveUp { reason, attempts, .. } if reason != GiveUpReason::NotRetryable => {
                let elapsed = record.start.map(|start| start.elapsed()).unwrap_or_default();
                format!("gave up after {attempts} attempts and {elapsed:?}, {reason}: {last}")
            }
            _ => return,
        };
        record.notices.push(text);
    }
}

/// A client of `upstream` by the default policy, with a jitter unit of one half.
pub(crate) fn client(upstream: &Arc<Scripted>) -> (CompletionClient, Arc<Told>) {
    client_by(upstream, RetryPolicy::default())
}

pub(crate) fn client_by(upstream: &Arc<Scripted>, policy: RetryPolicy) -> (CompletionClient, Arc<Told>) {
    let told = Arc::new(Told::default());
    let client = CompletionClient::new(Arc::clone(upstream) as Arc<dyn Upstream>, policy)
        .with_name("scripted")
        .with_observer(Arc::clone(&told) as Arc<dyn Observer>)
        .with_jitter(|| 0.5);
    (client, told)
}

/// Everything that a streamed answer gives, and the error that ended it.
pub(crate) async fn read(client: &CompletionClient) -> (Vec<Delta>, Option<CompletionError>) {
    let mut pieces = Vec::new();
    let mut deltas = match client.stream(BODY.into()).await {
        Ok(deltas) => deltas,
        Err(error) => return (pieces, Some(error)),
    };
    while let Some(piece) = deltas.next().await {
        match piece {
            Ok(piece) => pieces.push(piece),
            Err(error) => {
                assert!(deltas.next().await.is_none(), "nothing follows an error");
                return (pieces, Some(error));
            }
        }
    }
    (pieces, None)
}

/// What [`whole`] gives.
pub(crate) fn hello() -> Vec<Delta> {
    vec![Delta::Text("Hello".into()), Delta::Finish("stop".into())]
}
