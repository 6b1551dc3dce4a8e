//! Chunks of a stream, folded losslessly into the answer that a plain client expects.
//!
//! The engine is always asked for a stream: it does not notice when the client of a plain request leaves, and
//! a plain request shows no progress. What the engine would have answered is then put together here.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use self::choice::Choice;
use super::error::{ApiError, ErrorCode};

mod choice;
mod merge;

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
/// Numbers keep the digits that the engine wrote; only an exponent without a sign gets its `+`. Whether the stream was whole is
/// [`StreamState`](super::chunk::StreamState)'s to say: chunks with an `error` do not belong here.
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
    members: Map<String, Value>,
    choices: BTreeMap<u64, Choice>,
}

impl Fold {
    /// Takes the `data` of one event, `[DONE]` excepted.
    ///
    /// The error is `upstream_malformed`: not a JSON object, or nested deeper than 127 levels.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), ApiError> {
        let chunk: Map<String, Value> = serde_json::from_slice(chunk).map_err(|error| {
            let message = format!("the upstream sent an event that is no chunk: {error}");
            ApiError::new(ErrorCode::UpstreamMalformed, message)
        })?;
        for (name, value) in chunk {
            match (name.as_str(), value) {
                ("prompt_progress", _) => {}
                ("choices", Value::Array(choices)) => {
                    self.members.entry(name).or_insert(Value::Null);
                    for choice in choices {
                        self.push_choice(choice);
                    }
                }
                (_, value) => merge::keep_last(&mut self.members, name, value),
            }
        }
        Ok(())
    }

    /// The answer as JSON.
    pub fn finish(self) -> Bytes {
        let Self { mut members, choices } = self;
        let chunk_object = members.get("object").and_then(Value::as_str) == Some("chat.completion.chunk");
        let is_chat = chunk_object || choices.values().any(Choice::has_delta);
        if is_chat {
            members.insert("object".to_owned(), "chat.completion".into());
        }
        let choices =
            choices.into_values().map(|choice| if is_chat { choice.into_chat() } else { choice.into_text() });
        members.insert("choices".to_owned(), choices.collect());
        if members.get("usage").is_none_or(Value::is_null) {
            let usage = usage_of(members.get("timings").unwrap_or(&Value::Null));
            members.insert("usage".to_owned(), usage);
        }
        Value::Object(members).to_string().into()
    }

    fn push_choice(&mut self, choice: Value) {
        if let Value::Object(members) = choice {
            let index = members.get("index").and_then(Value::as_u64).unwrap_or(0);
            self.choices.entry(index).or_insert_with(|| Choice::new(index)).push(members);
        }
    }
}

/// OpenAI's usage from llama-server's timings, in tokens; all zero without them.
fn usage_of(timings: &Value) -> Value {
    let count = |name: &str| timings.get(name).and_then(Value::as_u64).unwrap_or(0);
    let (cached, predicted) = (count("cache_n"), count("predicted_n"));
    let prompt = cached.saturating_add(count("prompt_n"));
    json!({
        "completion_tokens": predicted,
        "prompt_tokens": prompt,
        "total_tokens": prompt.saturating_add(predicted),
        "prompt_tokens_details": { "cached_tokens": cached },
    })
}
