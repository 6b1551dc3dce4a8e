//! Events as clients get them.

use bytes::{BufMut, Bytes, BytesMut};

use crate::admission::Outlook;

/// The comment that keeps a waiting connection alive. Never `: ping`, which one client's reader takes for an
/// event and loses what shares a read with it.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The last event of a stream that ended well.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// The comment for a client whose request waits for an engine: [`KEEP_ALIVE`] with its place in the queue, what it waits
/// for, how much of a load is done, and the seconds that the wait still takes, rounded up, if that can be told.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::admission::{Outlook, WaitPhase};
/// use gglib_core::sse::encode;
///
/// let outlook = Outlook {
///     position: 3,
///     estimate: Some(Duration::from_millis(11_200)),
///     phase: WaitPhase::Loading,
///     percent: Some(40),
/// };
/// assert_eq!(
///     encode::waiting(outlook),
///     ": keep-alive waiting position=3 phase=loading percent=40 estimate_s=12\n\n"
/// );
/// let outlook = Outlook { estimate: None, percent: None, ..outlook };
/// assert_eq!(encode::waiting(outlook), ": keep-alive waiting position=3 phase=loading\n\n");
/// ```
pub fn waiting(outlook: Outlook) -> Bytes {
    let Outlook { position, estimate, phase, percent } = outlook;
    let percent = percent.map_or_else(String::new, |percent| format!(" percent={percent}"));
    let estimate = estimate
        .map_or_else(String::new, |estimate| format!(" estimate_s={}", estimate.as_millis().div_ceil(1000)));
    format!(": keep-alive waiting position={position} phase={}{percent}{estimate}\n\n", phase.as_str()).into()
}

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
