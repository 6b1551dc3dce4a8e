//! The incremental decoder.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

/// 16 MiB: far above any event of an engine, far below what would hurt.
const DEFAULT_LIMIT: usize = 16 * 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Turns chunks of a byte stream into events, however the stream was cut into chunks.
///
/// An event that lies in one chunk and has one `data` line shares the chunk's memory. The fields `id` and
/// `retry` are ignored: nothing here reconnects.
///
/// ```
/// use bytes::Bytes;
/// use gglib_core::sse::{Decoder, SseEvent};
///
/// let mut decoder = Decoder::default();
/// decoder.push(Bytes::from(": ping\n\ndata: he"));
/// assert_eq!(decoder.next_event(), Some(Ok(SseEvent::Comment(Bytes::from(" ping")))));
/// assert_eq!(decoder.next_event(), None);
/// decoder.push(Bytes::from("llo\n\n"));
/// let hello = SseEvent::Message { name: None, data: Bytes::from("hello") };
/// assert_eq!(decoder.next_event(), Some(Ok(hello)));
/// ```
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    unread: VecDeque<Bytes>,
    /// The beginning of a line whose end has not come.
    partial: BytesMut,
    pending: Pending,
    position: Position,
    ended: bool,
    failed: bool,
}

/// What a stream holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SseEvent {
    /// An event with data.
    Message {
        /// The `event` field, if there was one that is not empty.
        name: Option<Bytes>,
        /// The `data` fields, joined by line feeds.
        data: Bytes,
    },
    /// A comment line without its colon: the connection lives, but nothing has progressed.
    Comment(Bytes),
}

/// Why a stream cannot be decoded further; the decoder yields nothing after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SseError {
    /// One event or comment is longer than the limit.
    #[error("an event of the stream is longer than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
}

/// The fields of the event that is being read.
#[derive(Debug, Default)]
struct Pending {
    name: Option<Bytes>,
    data: Option<Bytes>,
    len: usize,
}

/// What the next byte may be besides the content of a line.
#[derive(Debug, PartialEq, Eq)]
enum Position {
    /// A byte order mark.
    StartOfStream,
    /// The line feed of a CR LF whose halves came in different chunks.
    AfterCarriageReturn,
    /// Nothing else.
    Within,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }
}

impl Decoder {
    /// A decoder that gives up on events of more than `limit` bytes; the default is 16 MiB.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            unread: VecDeque::new(),
            partial: BytesMut::new(),
            pending: Pending::default(),
            position: Position::StartOfStream,
            ended: false,
            failed: false,
        }
    }

    /// Takes the next chunk of the stream.
    pub fn push(&mut self, chunk: Bytes) {
        self.unread.push_back(chunk);
    }

    /// Says that the stream has ended; [`next_event`](Self::next_event) then also yields what lacks its blank
    /// line.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// The next event, or `None` when more of the stream is needed for one.
    pub fn next_event(&mut self) -> Option<Result<SseEvent, SseError>> {
        if self.failed {
            return None;
        }
        let event = self.advance().transpose();
        self.failed = matches!(event, Some(Err(_)));
        event
    }

    fn advance(&mut self) -> Result<Option<SseEvent>, SseError> {
        while let Some(line) = self.next_line() {
            self.check(line.len())?;
            if let Some(event) = self.pending.take_line(&line) {
                return Ok(Some(event));
            }
        }
        self.check(self.partial.len())?;
        Ok(if self.ended { self.pending.dispatch() } else { None })
    }

    fn check(&self, more: usize) -> Result<(), SseError> {
        if self.pending.len + more > self.limit {
            return Err(SseError::TooLong { limit: self.limit });
        }
        Ok(())
    }

    /// The next line without its end; at the end of the stream also the last, unterminated one.
    fn next_line(&mut self) -> Option<Bytes> {
        while let Some(chunk) = self.unread.front_mut() {
            if self.position == Position::AfterCarriageReturn && !chunk.is_empty() {
                self.position = Position::Within;
                if chunk[0] == b'\n' {
                    let _ = chunk.split_to(1);
                }
            }
            let Some(end) = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.partial.put_slice(chunk);
                self.unread.pop_front();
                continue;
            };
            let line = chunk.split_to(end);
            let terminator = chunk.split_to(1);
            let start_of_stream = self.position == Position::StartOfStream;
            self.position = Position::Within;
            if terminator[0] == b'\r' {
                self.position = Position::AfterCarriageReturn;
            }
            return Some(self.complete(line, start_of_stream));
        }
        if self.ended && !self.partial.is_empty() {
            let start_of_stream = self.position == Position::StartOfStream;
            self.position = Position::Within;
            return Some(self.complete(Bytes::new(), start_of_stream));
        }
        None
    }

    fn complete(&mut self, tail: Bytes, start_of_stream: bool) -> Bytes {
        let line = if self.partial.is_empty() {
            tail
        } else {
            self.partial.put_slice(&tail);
            self.partial.split().freeze()
        };
        if start_of_stream && line.starts_with(BYTE_ORDER_MARK) {
            return line.slice(BYTE_ORDER_MARK.len()..);
        }
        line
    }
}

impl Pending {
    /// Interprets one line (HTML standard §9.2.6).
    fn take_line(&mut self, line: &Bytes) -> Option<SseEvent> {
        if line.is_empty() {
            return self.dispatch();
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let value = line.slice((colon + 1).min(line.len())..);
        if colon == 0 {
            return Some(SseEvent::Comment(value));
        }
        let value = if value.starts_with(b" ") { value.slice(1..) } else { value };
        match &line[..colon] {
            b"data" => {
                self.data = Some(match self.data.take() {
                    None => value,
                    Some(before) => join(before, &value),
                });
            }
            b"event" => self.name = Some(value).filter(|name| !name.is_empty()),
            _ => return None,
        }
        self.len += line.len();
        None
    }

    /// The event that a blank line ends; none when it had no data.
    fn dispatch(&mut self) -> Option<SseEvent> {
        let Self { name, data, .. } = std::mem::take(self);
        Some(SseEvent::Message { name, data: data? })
    }
}

/// Appends a further `data` line. Converting back and forth is free, since nobody else holds a joined buffer.
fn join(before: Bytes, line: &[u8]) -> Bytes {
    let mut joined = BytesMut::from(before);
    joined.put_u8(b'\n');
    joined.put_slice(line);
    joined.freeze()
}
