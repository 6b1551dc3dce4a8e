//! Chunks of a stream, folded losslessly into the answer that a plain client expects.
//!
//! The engine is always asked for a stream: it does not notice when the client of a plain request leaves, and
//! a plain request shows no progress. What the engine would have answered is then put together here.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::json;

use self::choice::Choice;
use self::envelope::Envelope;
use self::json::{Json, quoted};
use self::members::{Members, Part};
use super::error::{ApiError, ErrorCode};

mod choice;
mod envelope;
mod json;
mod members;
mod message;

/// Collects the chunks of one stream into one `chat.completion` or `text_completion` object.
///
/// - Top level and choices: the last value of a member that is not null wins. `prompt_progress` is left out.
/// - `content`, `reasoning_content` (`reasoning`), `refusal` and `text` are concatenated; so are the arrays in
///   `logprobs` and any array in a delta. Any other member of a delta: the last value that is not null wins.
/// - `tool_calls` are collected by `index`, which the plain shape does not have: `id`, `type` and the name from
///   the first fragment that has them, the arguments appended.
/// - `content` is null when there are calls, `""` when there is nothing at all; the role is `assistant` unless
///   the stream says otherwise.
/// - `usage` is always there, because clients fail without it: the engine's, else made from its `timings`, else
///   zeros.
///
/// Values are taken as they were written, byte for byte, numbers that no machine type holds included. Whether
/// the stream was whole is [`StreamState`](super::chunk::StreamState)'s to say: chunks with an `error` do not
/// belong here.
///
/// ```
/// use gglib_core::api::fold::Fold;
///
/// let mut fold = Fold::default();
/// fold.push(br#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hel"}}]}"#)?;
/// fold.push(br#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"lo"}}]}"#)?;
/// let answer: serde_json::Value = serde_json::from_slice(&fold.finish())?;
/// assert_eq!(answer["object"], "chat.completion");
/// assert_eq!(answer["choices"][0]["message"]["content"], "Hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fold {
    members: Members,
    choices: BTreeMap<u64, Choice>,
    /// Of the chunk that was pushed last.
    envelope: Option<Envelope>,
}

impl Fold {
    /// Takes the `data` of one event, `[DONE]` excepted.
    ///
    /// The error is `upstream_malformed`: not a JSON object, or nested deeper than 127 levels. Nothing of such an
    /// event is taken.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), ApiError> {
        if let Some(choices) = self.envelope.as_ref().and_then(|envelope| envelope.open(chunk)) {
            self.push_choices(choices);
            return Ok(());
        }
        let chunk = Json::object(chunk).map_err(|error| {
            let message = format!("the upstream sent an event that is no chunk: {error}");
            ApiError::new(ErrorCode::UpstreamMalformed, message)
        })?;
        for (name, value) in chunk.members() {
            match &*name {
                "prompt_progress" => {}
                "choices" => {
                    self.members.entry(&name);
                    self.push_choices(value);
                }
                _ => self.members.entry(&name).keep_last(value),
            }
        }
        self.envelope = Envelope::of(chunk);
        Ok(())
    }

    /// The answer as JSON.
    pub fn finish(self) -> Bytes {
        let Self { mut members, choices, .. } = self;
        let object = members.get("object").and_then(Part::json).and_then(Json::as_str);
        let is_chat =
            object.as_deref() == Some("chat.completion.chunk") || choices.values().any(Choice::has_delta);
        if is_chat {
            members.set("object", Part::Text(quoted("chat.completion")));
        }
        let choices =
            choices.into_values().map(|choice| if is_chat { choice.into_chat() } else { choice.into_text() });
        members.set("choices", Part::array(choices));
        if members.get("usage").is_none_or(Part::is_null) {
            let timings = members.get("timings").and_then(Part::json).unwrap_or(Json::NULL);
            let usage = Part::Text(usage_of(timings));
            members.set("usage", usage);
        }
        members.into_json().into()
    }

    fn push_choices(&mut self, choices: Json<'_>) {
        for choice in choices.items().filter(|item| item.is_object()) {
            let index = choice.member("index").and_then(Json::as_u64).unwrap_or(0);
            self.choices.entry(index).or_insert_with(|| Choice::new(index)).push(choice);
        }
    }
}

/// OpenAI's usage from llama-server's timings, in tokens; all zero without them.
fn usage_of(timings: Json<'_>) -> String {
    let count = |name: &str| timings.member(name).and_then(Json::as_u64).unwrap_or(0);
    let (cached, predicted) = (count("cache_n"), count("predicted_n"));
    let prompt = cached.saturating_add(count("prompt_n"));
    let usage = json!({
        "completion_tokens": predicted,
        "prompt_tokens": prompt,
        "total_tokens": prompt.saturating_add(predicted),
        "prompt_tokens_details": { "cached_tokens": cached },
    });
    usage.to_string()
}
