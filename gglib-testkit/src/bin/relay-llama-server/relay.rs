//! What passes as it is, and what does not.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::stream;
use gglib_core::sse::{Decoder, SseEvent};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::chat::{Answer, freed, untaught};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The way to one engine.
pub(crate) struct Relay {
    pub(crate) socket: PathBuf,
    /// Whether the template is to look as if it knew no tools.
    pub(crate) untaught: bool,
}

impl Relay {
    /// Passes one request on. While the engine does not listen, the connection just ends.
    pub(crate) async fn pass(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<BoxBody<Bytes, Error>>, Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let rewritten_body = if head.uri.path() == "/v1/chat/completions" { freed(&body) } else { None };
        let is_freed = rewritten_body.is_some();
        let is_props = head.uri.path() == "/props";
        let mut request = Request::from_parts(head, Full::new(rewritten_body.unwrap_or(body)));
        request.headers_mut().remove("content-length");

        let (mut sender, connection) =
            handshake(TokioIo::new(UnixStream::connect(&self.socket).await?)).await?;
        tokio::spawn(connection);
        let (mut head, body) = sender.send_request(request).await?.into_parts();
        let body: BoxBody<Bytes, Error> = if is_freed && head.status == 200 {
            rewritten(body)
        } else if is_props && self.untaught {
            head.headers.remove("content-length");
            whole(untaught(&body.collect().await?.to_bytes()))
        } else {
            body.map_err(Error::from).boxed()
        };
        Ok(Response::from_parts(head, body))
    }
}

fn whole(bytes: Bytes) -> BoxBody<Bytes, Error> {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed()
}

/// The stream with calls where the model wrote some. Dropped, it leaves the engine.
fn rewritten(body: Incoming) -> BoxBody<Bytes, Error> {
    let state = (body, Decoder::default(), Answer::default());
    let stream = stream::try_unfold(state, |(mut body, mut decoder, mut answer)| async move {
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame?.into_data() else { continue };
            decoder.push(bytes);
            let mut out = String::new();
            while let Some(event) = decoder.next_event() {
                let SseEvent::Message { data, .. } = event? else { continue };
                for payload in payloads(&mut answer, &data) {
                    out.extend(["data: ", payload.as_str(), "\n\n"]);
                }
            }
            if !out.is_empty() {
                return Ok(Some((Frame::data(Bytes::from(out)), (body, decoder, answer))));
            }
        }
        Ok::<_, Error>(None)
    });
    BodyExt::boxed(StreamBody::new(stream))
}

/// What becomes of one event.
fn payloads(answer: &mut Answer, data: &[u8]) -> Vec<String> {
    match serde_json::from_slice(data) {
        Ok(chunk) => answer.take(chunk).iter().map(Value::to_string).collect(),
        Err(_) => vec![String::from_utf8_lossy(data).into_owned()],
    }
}
