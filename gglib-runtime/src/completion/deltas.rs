//! A streamed answer, read piece by piece.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use gglib_core::api::chunk::{Frame, StreamState};
use gglib_core::api::error::{Code, ErrorCode};
use gglib_core::sse::{Decoder, SseEvent};

use super::attempt::{error_inside, malformed};
use super::reading::Body;
use super::{CompletionError, Delta, Failure, delta};

/// The pieces of one answer, as they come. Dropping it cancels what is left.
pub struct Deltas {
    body: Body,
    decoder: Decoder,
    state: StreamState,
    ready: VecDeque<Delta>,
    progress: Progress,
}

/// How far the stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// More may come.
    Open,
    /// All bytes are with the decoder.
    Read,
    /// Nothing more comes, or nothing that counts.
    Over,
}

impl Deltas {
    /// Reads up to the first content: the moment from which the request is not repeated any more.
    pub(super) async fn open(body: Body) -> Result<Self, Failure> {
        let mut deltas = Self {
            body,
            decoder: Decoder::default(),
            state: StreamState::new(1),
            ready: VecDeque::new(),
            progress: Progress::Open,
        };
        while deltas.state.content().is_none() && deltas.progress != Progress::Over {
            deltas.advance().await?;
        }
        Ok(deltas)
    }

    /// The next piece; `None` after a whole answer, or after an error.
    ///
    /// The error is [`CompletionError::Broken`]. An answer that just stops, without a `finish_reason`, is one.
    pub async fn next(&mut self) -> Option<Result<Delta, CompletionError>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.progress == Progress::Over {
                return None;
            }
            if let Err(failure) = self.advance().await {
                self.progress = Progress::Over;
                return Some(Err(CompletionError::Broken(Box::new(failure))));
            }
        }
    }

    /// Takes one event, or else one more chunk of bytes.
    async fn advance(&mut self) -> Result<(), Failure> {
        match self.decoder.next_event() {
            Some(Ok(SseEvent::Message { data, .. })) => self.take(&data),
            Some(Ok(SseEvent::Comment(_))) => Ok(()),
            Some(Err(error)) => Err(malformed(error.to_string())),
            None if self.progress == Progress::Read => self.end(),
            None => self.read().await,
        }
    }

    fn take(&mut self, data: &Bytes) -> Result<(), Failure> {
        match self.state.observe(data) {
            Ok(Frame::Chunk(_)) => {
                let pieces = delta::parse(data).map_err(|error| {
                    malformed(format!("the upstream sent an event that is no chunk: {error}"))
                })?;
                self.ready.extend(pieces);
                Ok(())
            }
            // Some servers keep the connection open after it.
            Ok(Frame::Done) => self.end(),
            Err(error) if error.code == Code::Known(ErrorCode::UpstreamMalformed) => {
                Err(Failure::Verdict(error))
            }
            Err(_) => Err(Failure::Event(error_inside(data))),
        }
    }

    async fn read(&mut self) -> Result<(), Failure> {
        let code = match self.state.content() {
            None => ErrorCode::TimeoutFirstContent,
            Some(_) => ErrorCode::TimeoutIdle,
        };
        match self.body.chunk(code).await {
            Ok(Some(chunk)) => self.decoder.push(chunk),
            Ok(None) => {
                self.decoder.finish();
                self.progress = Progress::Read;
            }
            // The answer is there; how its connection ends is of no interest.
            Err(_) if self.state.is_whole() => self.progress = Progress::Over,
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.progress = Progress::Over;
        self.state.clone().end().map_err(Failure::Verdict)
    }
}

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deltas")
            .field("ready", &self.ready)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
