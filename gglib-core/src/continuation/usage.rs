//! One usage for an answer of two engines.

use bytes::Bytes;
use serde_json::{Value, json};

use super::delivered::Heard;
use crate::api::body::JsonObject;

/// `chunk`, the second engine's, with the usage of the whole answer: the first engine's prompt, and the tokens that
/// both have generated.
///
/// The second engine counts what the first one generated as a part of its prompt. So the total is its total, also
/// where the delivered tokens were counted too low; only the border lies elsewhere.
pub(super) fn of_both(chunk: &Bytes, heard: &Heard) -> Bytes {
    let counts = || {
        let object = JsonObject::parse(chunk.clone()).ok()?;
        let usage = object.object_member("usage").ok()??;
        let count = |name| usage.u64_member(name).ok().flatten();
        Some((count("prompt_tokens")?, count("completion_tokens")?))
    };
    let Some((prompt, completion)) = counts() else { return chunk.clone() };
    let first = heard.prompt.filter(|&first| first <= prompt);
    let first = first.unwrap_or_else(|| prompt.saturating_sub(heard.tokens));
    put_in(chunk, first, (prompt - first).saturating_add(completion))
}

/// `chunk` with these numbers of tokens in its usage.
pub(super) fn put_in(chunk: &Bytes, prompt: u64, completion: u64) -> Bytes {
    let Ok(mut object) = JsonObject::parse(chunk.clone()) else { return chunk.clone() };
    let usage = object.raw_member("usage").and_then(|raw| serde_json::from_slice::<Value>(raw).ok());
    let mut usage = usage.filter(Value::is_object).unwrap_or_else(|| json!({}));
    usage["prompt_tokens"] = prompt.into();
    usage["completion_tokens"] = completion.into();
    usage["total_tokens"] = prompt.saturating_add(completion).into();
    object.set("usage", usage);
    object.into_bytes()
}
