//! Events as clients get them.

use bytes::{BufMut, Bytes, BytesMut};

/// The comment that keeps a waiting connection alive. Never `: ping`, which one client's reader takes for an
/// event and loses what shares a read with it.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The last event of a stream that ended well.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// One event that carries `payload`; a payload of several lines becomes several `data` fields.
///
/// ```
/// assert_eq!(gglib_core::sse::encode::data(b"{}"), "data: {}\n\n");
/// ```
pub fn data(payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(payload.len() + 8);
    let mut rest = payload;
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
        let (line, tail) = rest.split_at(end);
        out.put_slice(b"data: ");
        out.put_slice(line);
        out.put_u8(b'\n');
        rest = match tail {
            [] => break,
            [b'\r', b'\n', tail @ ..] | [_, tail @ ..] => tail,
        };
    }
    out.put_u8(b'\n');
    out.freeze()
}
