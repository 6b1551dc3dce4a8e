//! What the client of a stream has got so far.

use bytes::Bytes;
use serde_json::{Value, json};

use super::terms::Usage;
use super::{NotContinuable, text, usage};
use crate::api::chunk::{ContentKind, Identity, Probe, PromptProgress};

/// The most text that is remembered, in bytes: far above any answer, and a bound on what a stream can cost.
const LONGEST: usize = 4 * 1024 * 1024;

/// A record of the chunks that were handed to a client, for the case that the stream has to be taken up.
#[derive(Debug, Default)]
pub struct Delivered {
    heard: Heard,
    /// What else was delivered, or was too much.
    barred: Option<NotContinuable>,
}

/// Delivered text, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Of the first chunk.
    pub(super) identity: Identity,
    pub(super) text: String,
    /// Chunks with text until its tokens have been counted: each holds at least one.
    pub(super) tokens: u64,
    /// Length of the prompt in tokens, once the engine has told.
    pub(super) prompt: Option<u64>,
}

impl Delivered {
    /// Takes a chunk that was handed to the client.
    pub fn observe(&mut self, chunk: &[u8]) {
        if self.barred.is_some() {
            return;
        }
        if self.heard.identity.is_empty() {
            self.heard.identity = Identity::of(chunk);
        }
        if let Err(reason) = self.heard.take(chunk) {
            self.barred = Some(reason);
            self.heard.text = String::new();
        }
    }

    /// Takes note of a progress on the prompt, which tells its length.
    pub fn observe_progress(&mut self, progress: &PromptProgress) {
        self.heard.prompt = Some(progress.total);
    }

    pub(super) fn into_heard(self) -> Result<Heard, NotContinuable> {
        match self.barred {
            Some(reason) => Err(reason),
            None if self.heard.text.is_empty() => Err(NotContinuable::Nothing),
            None => Ok(self.heard),
        }
    }
}

impl Heard {
    fn take(&mut self, chunk: &[u8]) -> Result<(), NotContinuable> {
        let probe = Probe::parse(chunk).map_err(|_| NotContinuable::Shape)?;
        if probe.choices.iter().any(|choice| choice.index != 0) {
            return Err(NotContinuable::Choices);
        }
        match probe.content() {
            None => return Ok(()),
            Some(ContentKind::Text) => {}
            Some(other) => return Err(NotContinuable::Content(other)),
        }
        let more = text::of(chunk).ok_or(NotContinuable::Shape)?;
        if self.text.len() + more.len() > LONGEST {
            return Err(NotContinuable::TooLong(LONGEST));
        }
        self.text.push_str(&more);
        self.tokens += 1;
        Ok(())
    }

    /// The last chunks of an answer that ends after so many tokens, with the usage if it is asked for.
    pub(super) fn ending(&self, finish_reason: &str, tokens: u64, usage: Usage) -> Vec<Bytes> {
        let choice = json!([{ "index": 0, "delta": {}, "finish_reason": finish_reason }]);
        let mut chunks = vec![self.identity.chunk(choice)];
        if usage == Usage::Wanted {
            let empty = self.identity.chunk(Value::Array(Vec::new()));
            chunks.push(usage::put_in(&empty, self.prompt.unwrap_or(0), tokens));
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded() {
        let mut delivered = Delivered::default();
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "x".repeat(1 << 20) } }] });
        for _ in 0..5 {
            delivered.observe(chunk.to_string().as_bytes());
        }
        assert_eq!(delivered.heard.text.capacity(), 0);
        assert!(matches!(delivered.into_heard(), Err(NotContinuable::TooLong(LONGEST))));
    }
}
