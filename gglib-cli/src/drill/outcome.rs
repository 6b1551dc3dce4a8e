//! What a client saw of one request, and what that is by the promise.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use gglib_core::api::chunk::Probe;
use gglib_core::sse::{Decoder, SseEvent};
use http::{HeaderMap, StatusCode};

pub use breach::Breach;

mod breach;
mod error;
mod plain;
mod stream;

/// How a request asked for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// As a stream of events.
    Stream,
    /// As one JSON object.
    Plain,
}

/// How that which came of an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As HTTP marks it.
    Clean,
    /// The connection was broken off before, or never made.
    Cut,
    /// The client hung up.
    Left,
    /// The client's patience was over before.
    Open,
}

/// The head of a response.
#[derive(Clone, Debug)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
}

/// All that a client saw of one request for one choice (`n` = 1).
#[derive(Clone, Debug)]
pub struct Seen {
    /// How it was asked.
    pub asked: Asked,
    /// The response's head, if one came.
    pub head: Option<Head>,
    /// The body, as far as it came.
    pub body: Vec<u8>,
    /// How it ended.
    pub end: End,
    /// From sending to the first content: of a stream that had any.
    pub first_content: Option<Duration>,
    /// From sending to the end.
    pub took: Duration,
}

/// The end of a request. All but [`Broken`](Self::Broken) keep the promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A full answer.
    Answered {
        /// What the endpoint says of how it recovered: `relaunch`, `continuation` and so on.
        recovery: Option<String>,
    },
    /// An explicit error.
    Failed {
        /// The status; 200 when the error was an event of a stream that had begun.
        status: StatusCode,
        /// The error's code.
        code: String,
    },
    /// A 429 or 503, or the event of a stream that stands for one, that says when to come back.
    Refused {
        /// The status that goes with the code.
        status: StatusCode,
        /// The error's code.
        code: String,
        /// When to come back.
        retry_after: Duration,
    },
    /// The client hung up before the end.
    LeftByClient,
    /// The promise was broken.
    Broken {
        /// In which way.
        why: Breach,
    },
}

impl Seen {
    /// What it is by the promise, if it should have ended within `bound`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gglib_cli::drill::outcome::{Asked, Breach, End, Head, Outcome, Seen};
    /// use http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE};
    ///
    /// let event_stream = HeaderValue::from_static("text/event-stream");
    /// let seen = Seen {
    ///     asked: Asked::Stream,
    ///     head: Some(Head { status: StatusCode::OK, headers: HeaderMap::from_iter([(CONTENT_TYPE, event_stream)]) }),
    ///     body: b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n".to_vec(),
    ///     end: End::Clean,
    ///     first_content: Some(Duration::from_millis(80)),
    ///     took: Duration::from_secs(1),
    /// };
    /// // It just stops, and looks complete.
    /// assert_eq!(seen.judge(Duration::from_secs(60)), Outcome::Broken { why: Breach::Unfinished });
    /// ```
    pub fn judge(&self, bound: Duration) -> Outcome {
        let judged = self.within(bound).and_then(|()| match (&self.head, self.end) {
            (_, End::Left) => Ok(Outcome::LeftByClient),
            (None, _) => Err(Breach::NoAnswer),
            (Some(head), _) if head.status != StatusCode::OK => error::judge(head, &self.body, self.end),
            (Some(head), _) => match self.asked {
                Asked::Stream => stream::judge(head, &self.body, self.end),
                Asked::Plain => plain::judge(head, &self.body, self.end),
            },
        });
        judged.unwrap_or_else(|why| Outcome::Broken { why })
    }

    fn within(&self, bound: Duration) -> Result<(), Breach> {
        match self.end {
            End::Open => Err(Breach::Endless { after: self.took }),
            _ if self.took > bound => Err(Breach::TooLate { took: self.took, bound }),
            _ => Ok(()),
        }
    }

    /// The text of the answer so far, streamed or plain, without reasoning and tool calls.
    pub fn content(&self) -> String {
        match self.asked {
            Asked::Stream => stream::text(&self.body),
            Asked::Plain => plain::text(&self.body),
        }
    }
}

impl Outcome {
    /// Whether the promise was kept.
    pub fn is_kept(&self) -> bool {
        !matches!(self, Self::Broken { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { recovery: None } => f.write_str("full answer"),
            Self::Answered { recovery: Some(recovery) } => write!(f, "full answer ({recovery})"),
            Self::Failed { status: StatusCode::OK, code } => write!(f, "error event {code}"),
            Self::Failed { status, code } => write!(f, "{} {code}", status.as_u16()),
            Self::Refused { status, code, retry_after } => {
                write!(f, "{} {code}, retry after {:.1} s", status.as_u16(), retry_after.as_secs_f64())
            }
            Self::LeftByClient => f.write_str("the client left"),
            Self::Broken { why } => write!(f, "broken: {why}"),
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stream => "stream",
            Self::Plain => "plain",
        })
    }
}

/// The events of a whole body.
fn events(body: &[u8]) -> Vec<SseEvent> {
    let mut decoder = Decoder::with_limit(usize::MAX);
    decoder.push(Bytes::copy_from_slice(body));
    decoder.finish();
    // Without a limit nothing can fail.
    std::iter::from_fn(|| decoder.next_event()?.ok()).collect()
}

/// Whether the data of an event carries content.
pub(super) fn is_content(data: &[u8]) -> bool {
    Probe::parse(data).is_ok_and(|probe| probe.content().is_some())
}

fn is_of_type(head: &Head, expected: &'static str) -> Result<(), Breach> {
    let found = head.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let found = found.unwrap_or_default();
    // Parameters such as a charset may follow.
    if found.split(';').next() == Some(expected) {
        return Ok(());
    }
    Err(Breach::ContentType { found: found.to_owned(), expected })
}

#[cfg(test)]
mod tests;
