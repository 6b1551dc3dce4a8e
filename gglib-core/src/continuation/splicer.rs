//! Two streams made one.

use bytes::Bytes;
use serde_json::json;

use super::delivered::Heard;
use super::echo::Echo;
use super::seam::{Seam, Verdict};
use super::terms::{Terms, Usage};
use super::{text, usage};
use crate::api::chunk::{ContentKind, Probe};

/// Turns the chunks of the second engine into the rest of the first one's stream.
///
/// - A repetition of the delivered text is swallowed.
/// - A stop string that was half delivered ends the answer when its other half comes.
/// - `id`, `object`, `created`, `model` and `system_fingerprint` stay those of the first stream; the role is not said
///   again.
/// - `usage` counts the prompt of the first engine and what both have generated; `timings` are the second's.
/// - Everything else passes as it is.
#[derive(Debug)]
pub struct Splicer {
    heard: Heard,
    echo: Echo,
    seam: Seam,
    usage: Usage,
    /// Chunks with text that the second engine has added.
    added: u64,
    over: bool,
}

/// What becomes of a chunk's delta.
enum Delta {
    AsItIs,
    /// Only this text is left of it.
    Text(String),
    /// Nothing is left of it.
    Empty,
}

impl Splicer {
    pub(super) fn new(heard: Heard, terms: &Terms) -> Self {
        Self {
            echo: Echo::of(&heard.text),
            seam: Seam::new(&heard.text, &terms.stops),
            usage: terms.usage,
            heard,
            added: 0,
            over: false,
        }
    }

    /// What the client gets for the `data` of one event, `[DONE]` excepted.
    pub fn chunk(&mut self, data: &Bytes) -> Vec<Bytes> {
        let mut out = Vec::new();
        if self.over {
            return out;
        }
        let Ok(probe) = Probe::parse(data) else { return vec![data.clone()] };
        let finishes = probe.choices.iter().any(|choice| choice.finish_reason.is_some());
        let delta = self.delta(data, &probe, &mut out);
        if finishes {
            self.release(&mut out);
        }
        if self.over {
            out.extend(self.heard.ending("stop", self.tokens(), self.usage));
            return out;
        }
        let says_more = finishes || probe.usage || probe.content().is_none() && probe.progress.is_some();
        let chunk = match delta {
            Delta::AsItIs => data.clone(),
            Delta::Text(text) => text::with_delta(data, json!({ "content": text })),
            Delta::Empty if says_more => text::with_delta(data, json!({})),
            Delta::Empty => return out,
        };
        let chunk = if probe.usage { usage::of_both(&chunk, &self.heard) } else { chunk };
        out.push(self.heard.identity.put_on(chunk));
        out
    }

    /// Takes note of a progress on the prompt, of a chunk that [`chunk`](Self::chunk) need not get.
    pub fn observe_progress(&mut self) {
        self.echo.is_late();
    }

    /// Length of the prompt in tokens; 0 if the first engine has not told.
    pub fn prompt(&self) -> u64 {
        self.heard.prompt.unwrap_or(0)
    }

    /// How many tokens the answer has so far: those delivered, and one for each chunk with text that was added.
    pub fn tokens(&self) -> u64 {
        self.heard.tokens + self.added
    }

    /// Whether the answer has ended before the engine has: its last chunks are out, and nothing more is needed.
    pub fn is_over(&self) -> bool {
        self.over
    }

    fn delta(&mut self, data: &Bytes, probe: &Probe, out: &mut Vec<Bytes>) -> Delta {
        let says_role = probe.choices.iter().any(|choice| choice.role);
        if probe.progress.is_some() {
            self.echo.is_late();
        }
        match (probe.content(), text::of(data)) {
            (None, _) if says_role => Delta::Empty,
            (None, _) => Delta::AsItIs,
            (Some(ContentKind::Text), Some(_)) if probe.progress.is_some() => Delta::Empty,
            (Some(ContentKind::Text), Some(text)) => match self.take(&text) {
                Some(new) if new == text && !says_role => Delta::AsItIs,
                Some(new) => Delta::Text(new),
                None => Delta::Empty,
            },
            (Some(_), _) => {
                self.release(out);
                Delta::AsItIs
            }
        }
    }

    /// What of `text` is new and can be shown.
    fn take(&mut self, text: &str) -> Option<String> {
        let new = self.echo.take(text)?;
        self.added += 1;
        self.judge(&new)
    }

    fn judge(&mut self, new: &str) -> Option<String> {
        match self.seam.take(new) {
            Verdict::Pass(text) => Some(text),
            Verdict::Hold => None,
            Verdict::Stop => {
                self.over = true;
                None
            }
        }
    }

    /// Lets go what was held back, since nothing will explain it any more.
    fn release(&mut self, out: &mut Vec<Bytes>) {
        let mut held = self.echo.finish().and_then(|text| self.judge(&text)).unwrap_or_default();
        if !self.over {
            held += &self.seam.finish().unwrap_or_default();
        }
        if !held.is_empty() {
            let choice = json!([{ "index": 0, "delta": { "content": held }, "finish_reason": null }]);
            out.push(self.heard.identity.chunk(choice));
        }
    }
}
