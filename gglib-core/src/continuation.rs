//! Taking up a stream in the middle, after its engine has died.
//!
//! The client has seen a part of the answer, so it cannot begin anew. Another engine is sent the conversation and,
//! as the beginning of the assistant's turn, the text that was delivered; what it adds is spliced to what the client
//! has. That is changed work, issued once, and the last of the recoveries.
//!
//! [`Delivered`] remembers what the client got. When the engine has died, [`Continuation`] says whether the stream can
//! be taken up and with which request, and hands over the [`Splicer`] for the second engine's chunks.
//!
//! # What can be continued
//!
//! Plain text of one choice, streamed. Not:
//!
//! - once reasoning, a refusal or a tool call was sent: they cannot be given back to an engine as half of a turn;
//! - with `n` or `n_cmpl` above 1, or once a chunk of any choice but the first was sent;
//! - with `logprobs`, `top_logprobs` or `n_probs`: what belongs to the delivered tokens is not known to a second engine;
//! - with a `response_format` other than text, `json_schema` or `grammar`: the constraint would begin anew at the seam;
//! - when a tool must be called (`tool_choice` or `function_call` of anything but `auto` and `none`). Tools that are
//!   merely offered do no harm as long as none was called: a call may still come in the continuation;
//! - when the conversation ends with an assistant's message already: engines take only one, and which part of the
//!   delivered text is the client's own would depend on whether the engine repeats it;
//! - above 4 MiB of text.

use bytes::Bytes;
use thiserror::Error;

use self::delivered::Heard;
use self::terms::Terms;
use crate::api::body::{BodyError, JsonObject, MemberError};
use crate::api::chunk::ContentKind;

pub use delivered::Delivered;
pub use splicer::Splicer;

mod delivered;
mod echo;
mod seam;
mod splicer;
mod terms;
mod text;
mod usage;

/// A stream that can be taken up.
#[derive(Debug)]
pub struct Continuation {
    body: JsonObject,
    terms: Terms,
    heard: Heard,
}

/// Why a stream cannot be taken up in the middle.
#[derive(Debug, Error)]
pub enum NotContinuable {
    /// No text has been delivered.
    #[error("nothing has been delivered that could be continued")]
    Nothing,
    /// More than text has been delivered.
    #[error("more than plain text has been delivered ({0:?})")]
    Content(ContentKind),
    /// The text was delivered in a form that is not understood.
    #[error("the delivered chunks are of a shape that is not understood")]
    Shape,
    /// Parts of several choices have been delivered.
    #[error("more than one choice has been delivered")]
    Choices,
    /// More text has been delivered than is remembered.
    #[error("more than {0} bytes of text have been delivered")]
    TooLong(usize),
    /// This member of the request asks for more than text, or cannot be read.
    #[error("`{0}` of the request rules it out")]
    Request(&'static str),
    /// The conversation ends with the beginning of an answer already.
    #[error("the last message is the assistant's own")]
    AfterAssistant,
    /// The request cannot be edited.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The request cannot be edited.
    #[error(transparent)]
    Member(#[from] MemberError),
}

impl Continuation {
    /// The rest of the stream that `request` asked for, behind what was `delivered` of it.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use gglib_core::continuation::{Continuation, Delivered};
    ///
    /// let mut delivered = Delivered::default();
    /// delivered.observe(br#"{"id":"a","choices":[{"index":0,"delta":{"content":"The sea"}}]}"#);
    /// let request = Bytes::from(r#"{"messages":[{"role":"user","content":"Tell me."}],"max_tokens":10}"#);
    /// let (body, mut splicer) = Continuation::new(request, delivered)?.issue()?;
    /// assert_eq!(
    ///     body,
    ///     r#"{"messages":[{"role":"user","content":"Tell me."},{"role":"assistant","content":"The sea"}],"max_tokens":9}"#
    /// );
    /// // The engine repeats the prefix; the client hears only what is new, under the id that it knows.
    /// let echo = br#"{"id":"b","choices":[{"index":0,"delta":{"content":"The sea"}}]}"#;
    /// assert!(splicer.chunk(&Bytes::from_static(echo)).is_empty());
    /// let new = br#"{"id":"b","choices":[{"index":0,"delta":{"content":" is"}}]}"#;
    /// let spliced = splicer.chunk(&Bytes::from_static(new));
    /// assert_eq!(spliced, [r#"{"id":"a","choices":[{"index":0,"delta":{"content":" is"}}]}"#]);
    /// # Ok::<(), gglib_core::continuation::NotContinuable>(())
    /// ```
    ///
    /// # Errors
    /// [`NotContinuable`], see the module.
    pub fn new(request: Bytes, delivered: Delivered) -> Result<Self, NotContinuable> {
        let heard = delivered.into_heard()?;
        let body = JsonObject::parse(request)?;
        let terms = Terms::read(&body)?;
        Ok(Self { body, terms, heard })
    }

    /// The last chunks, when the client has had as many tokens as it asked for and misses only the end.
    pub fn ending(&self) -> Option<Vec<Bytes>> {
        let tokens = self.heard.tokens;
        let spent = self.terms.limit.is_some_and(|limit| limit <= tokens);
        spent.then(|| self.heard.ending("length", tokens, self.terms.usage))
    }

    /// The delivered text, where its tokens matter: there are no fewer than chunks, but a chunk can hold several. A
    /// character may take more than one, and llama-server holds text back as long as it may be the beginning of a stop
    /// string or of a call.
    pub fn uncounted(&self) -> Option<&str> {
        self.terms.limit.is_some().then_some(&self.heard.text)
    }

    /// Length of the prompt in tokens; 0 as long as no engine has told.
    pub fn prompt(&self) -> u64 {
        self.heard.prompt.unwrap_or(0)
    }

    /// How many tokens the delivered text has: one for each of its chunks, until they have been [counted](Self::count).
    pub fn tokens(&self) -> u64 {
        self.heard.tokens
    }

    /// Takes note of the number of tokens in the delivered text.
    pub fn count(&mut self, tokens: u64) {
        self.heard.tokens = self.heard.tokens.max(tokens);
    }

    /// The request for the rest, and what makes its chunks the rest of the stream.
    ///
    /// In the request the delivered text is appended to `messages` as the assistant's, and `max_tokens`,
    /// `max_completion_tokens` and `n_predict` are reduced by the tokens that were delivered; everything else stays
    /// byte for byte.
    ///
    /// # Errors
    /// [`NotContinuable`], if the request cannot be edited.
    pub fn issue(mut self) -> Result<(Bytes, Splicer), NotContinuable> {
        terms::take_up(&mut self.body, &self.heard)?;
        Ok((self.body.into_bytes(), Splicer::new(self.heard, &self.terms)))
    }
}
