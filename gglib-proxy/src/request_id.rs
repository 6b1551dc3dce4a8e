//! `x-request-id`: the client's, or one of ours, on every response.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use tracing::Instrument;
use tracing::field::Empty;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken over from a client.
const LONGEST: usize = 128;

/// The id of a request, as one of its extensions.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) Box<str>);

/// Gives the request its id, in the log and in the response.
pub(crate) async fn layer(mut request: Request, next: Next) -> Response {
    let given = request.headers().get(&REQUEST_ID).filter(|id| is_usable(id)).cloned();
    let id = given.unwrap_or_else(fresh);
    let span = tracing::info_span!(
        "request",
        id = id.to_str().unwrap_or_default(),
        path = request.uri().path(),
        model = Empty,
        retries_above = Empty,
    );
    request.extensions_mut().insert(RequestId(id.to_str().unwrap_or_default().into()));
    let mut response = next.run(request).instrument(span).await;
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Short and printable: it ends up in logs.
fn is_usable(id: &HeaderValue) -> bool {
    (1..=LONGEST).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn fresh() -> HeaderValue {
    let id = format!("req_{:016x}", rand::random::<u64>());
    HeaderValue::from_str(&id).expect("hexadecimal digits fit in a header")
}
