//! What the chunks of one stream add up to.

use std::collections::BTreeMap;

use http::StatusCode;

use super::{ContentKind, Probe};
use crate::api::error::{ApiError, ErrorCode};

/// Follows one stream of chunks, to know whether its end is honest.
///
/// A stream is whole when every choice that was asked for or seen has a `finish_reason`. `data: [DONE]` is
/// neither needed for that nor enough: servers send it after an answer that broke off, and leave it out after
/// one that did not.
///
/// ```
/// use gglib_core::api::chunk::StreamState;
///
/// let mut stream = StreamState::new(1);
/// stream.observe(br#"{"choices":[{"index":0,"delta":{"content":"Hel"}}]}"#)?;
/// assert!(stream.content().is_some());
/// assert_eq!(stream.end().unwrap_err().code.as_str(), "upstream_incomplete");
/// # Ok::<(), gglib_core::api::error::ApiError>(())
/// ```
#[derive(Clone, Debug)]
pub struct StreamState {
    expected: u64,
    /// Whether each choice seen has finished.
    choices: BTreeMap<u64, bool>,
    content: Option<ContentKind>,
    error: Option<ApiError>,
    done: bool,
}

/// What the `data` of one event was.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A chunk.
    Chunk(Probe),
    /// `[DONE]`.
    Done,
}

impl StreamState {
    /// The state before the first event of a request for `expected` choices (`n`, 1 where it is absent).
    pub fn new(expected: u64) -> Self {
        Self { expected, choices: BTreeMap::new(), content: None, error: None, done: false }
    }

    /// Takes the `data` of the next event.
    ///
    /// The error is what the client gets instead of the rest: the upstream's own where the chunk carries one,
    /// else `upstream_malformed`.
    pub fn observe(&mut self, data: &[u8]) -> Result<Frame, ApiError> {
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Ok(Frame::Done);
        }
        let probe = Probe::parse(data).map_err(|error| {
            let message = format!("the upstream sent an event that is no chunk: {error}");
            self.fail(ApiError::new(ErrorCode::UpstreamMalformed, message))
        })?;
        if probe.error {
            return Err(self.fail(ApiError::from_upstream(StatusCode::OK, data)));
        }
        for choice in &probe.choices {
            *self.choices.entry(choice.index).or_default() |= choice.finish_reason.is_some();
        }
        self.content = self.content.max(probe.content());
        Ok(Frame::Chunk(probe))
    }

    /// The most binding content so far; `None` while the idempotency window is open.
    pub fn content(&self) -> Option<ContentKind> {
        self.content
    }

    /// Whether `[DONE]` has come.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Whether every choice that was asked for or seen has finished, and no error has come.
    pub fn is_whole(&self) -> bool {
        self.error.is_none() && self.unfinished() == 0
    }

    /// The verdict on a stream that has ended in good order.
    ///
    /// The error is the first one that [`observe`](Self::observe) gave, else `upstream_incomplete`. An end is
    /// never rewritten into a `stop`.
    pub fn end(self) -> Result<(), ApiError> {
        let unfinished = self.unfinished();
        match self.error {
            Some(error) => Err(error),
            None if unfinished == 0 => Ok(()),
            None => {
                let message = format!(
                    "the upstream's answer ended without a finish_reason for {unfinished} of {} choices",
                    self.expected.max(self.choices.len() as u64)
                );
                Err(ApiError::new(ErrorCode::UpstreamIncomplete, message))
            }
        }
    }

    fn unfinished(&self) -> u64 {
        let seen = self.choices.len() as u64;
        let open = self.choices.values().filter(|finished| !**finished).count() as u64;
        open + self.expected.saturating_sub(seen)
    }

    fn fail(&mut self, error: ApiError) -> ApiError {
        self.error.get_or_insert_with(|| error.clone());
        error
    }
}
