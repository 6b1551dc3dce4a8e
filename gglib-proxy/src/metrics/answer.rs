//! Measuring one answer while it passes.

use gglib_core::api::chunk::Probe;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Event, Metrics};
use crate::request::ModelRequest;

/// Measures one attempt's answer.
pub(crate) struct AnswerMeter<'a> {
    metrics: &'a Metrics,
    request: &'a ModelRequest,
    /// Whether the client sees the answer itself, so that its times count.
    is_seen: bool,
    first_content: Option<Instant>,
    /// Whether the first content has been told of.
    is_told: bool,
    tokens: Tokens,
}

/// What an answer has used, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// The prompt, the cached part included.
    pub(crate) prompt: u64,
    /// The part of it that was in the engine's cache.
    pub(crate) cached: u64,
    /// The answer.
    pub(crate) completion: u64,
}

impl<'a> AnswerMeter<'a> {
    pub(crate) fn new(metrics: &'a Metrics, request: &'a ModelRequest) -> Self {
        Self {
            metrics,
            request,
            is_seen: true,
            first_content: None,
            is_told: false,
            tokens: Tokens::default(),
        }
    }

    /// Of a second request of which the client sees but the calls: only its tokens count.
    pub(crate) fn of_repair(metrics: &'a Metrics, request: &'a ModelRequest) -> Self {
        Self { is_seen: false, ..Self::new(metrics, request) }
    }

    /// Takes a chunk and what it holds.
    pub(crate) fn observe(&mut self, probe: &Probe, data: &[u8]) {
        if self.first_content.is_none() && probe.content().is_some() {
            self.first_content = Some(Instant::now());
        }
        if probe.usage || probe.choices.iter().any(|choice| choice.finish_reason.is_some()) {
            self.used(data);
        }
    }

    /// Takes what an answer says of its tokens.
    pub(crate) fn used(&mut self, data: &[u8]) {
        self.tokens.take(data);
    }

    /// Takes note that the client has content. That counts once for a request, and not before it is certain or the
    /// answer whole: another attempt may have another.
    pub(crate) fn shown(&mut self) {
        if self.is_told {
            return;
        }
        self.is_told = true;
        if let Some(first) = self.first_content.filter(|_| self.is_seen)
            && self.request.account.has_content(first)
        {
            let after = first.saturating_duration_since(self.request.read_at);
            self.metrics.record(Event::FirstContent { model: &self.request.model, after });
        }
    }

    /// Takes the end of a whole answer.
    pub(crate) fn answered(&mut self) {
        self.shown();
        let (model, account) = (&self.request.model, &self.request.account);
        let generation = account.first_content().filter(|_| self.is_seen).map(|first| first.elapsed());
        let tokens = self.tokens.after(self.request.given);
        account.used(tokens);
        self.metrics.record(Event::Answered { model, generation, tokens });
    }
}

impl Tokens {
    /// Both together, part by part.
    pub(crate) fn saturating_add(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.saturating_add(other.prompt),
            cached: self.cached.saturating_add(other.cached),
            completion: self.completion.saturating_add(other.completion),
        }
    }

    /// The same with so many tokens, of which the engine was told in its prompt, as a part of the answer.
    fn after(self, given: u64) -> Self {
        let prompt = self.prompt.saturating_sub(given);
        let completion = self.completion.saturating_add(self.prompt - prompt);
        Self { prompt, cached: self.cached.min(prompt), completion }
    }

    /// Adds what a chunk says: each choice finishes with its `timings`, and a `usage` is the sum of all.
    fn take(&mut self, data: &[u8]) {
        let Ok(Wire { usage, timings }) = serde_json::from_slice(data) else { return };
        if let Some(usage) = usage {
            let cached = usage.prompt_tokens_details.unwrap_or_default().cached_tokens;
            *self = Self { prompt: usage.prompt_tokens, cached, completion: usage.completion_tokens };
        } else if let Some(Timings { cached, prompt, completion }) = timings {
            self.prompt = self.prompt.max(cached.saturating_add(prompt));
            self.cached = self.cached.max(cached);
            self.completion = self.completion.saturating_add(completion);
        }
    }
}

#[derive(Deserialize)]
struct Wire {
    usage: Option<Usage>,
    timings: Option<Timings>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: u64,
}

/// llama-server's; its `prompt_n` leaves out what was cached.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Timings {
    #[serde(rename = "cache_n")]
    cached: u64,
    #[serde(rename = "prompt_n")]
    prompt: u64,
    #[serde(rename = "predicted_n")]
    completion: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(chunks: &[&str]) -> [u64; 3] {
        let mut tokens = Tokens::default();
        for chunk in chunks {
            tokens.take(chunk.as_bytes());
        }
        [tokens.prompt, tokens.cached, tokens.completion]
    }

    #[test]
    fn usage_wins_over_timings_and_the_timings_of_choices_add_up() {
        let timings =
            r#"{"choices":[],"timings":{"cache_n":30,"prompt_n":2,"prompt_ms":1.5,"predicted_n":3}}"#;
        let usage = r#"{"usage":{"completion_tokens":7,"prompt_tokens":32,"total_tokens":39,"prompt_tokens_details":{"cached_tokens":31}}}"#;
        assert_eq!(tokens(&[timings]), [32, 30, 3]);
        assert_eq!(tokens(&[timings, timings]), [32, 30, 6]);
        assert_eq!(tokens(&[timings, usage]), [32, 31, 7]);
        assert_eq!(tokens(&[r#"{"usage":{"prompt_tokens":5,"completion_tokens":1}}"#]), [5, 0, 1]);
    }

    #[test]
    fn what_is_not_there_or_of_another_type_is_not_counted() {
        for chunk in ["{}", r#"{"usage":null}"#, r#"{"usage":{"prompt_tokens":-1}}"#, r#"{"timings":"fast"}"#]
        {
            assert_eq!(tokens(&[chunk]), [0; 3], "{chunk}");
        }
    }
}
