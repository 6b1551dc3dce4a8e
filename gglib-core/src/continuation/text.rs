//! The text in a chunk.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::api::body::JsonObject;

/// The text of the first choice of `chunk`, where it is the only one; `None` when it has none, or not as a string.
pub(super) fn of(chunk: &[u8]) -> Option<Cow<'_, str>> {
    let Wire { choices: [choice] } = serde_json::from_slice(chunk).ok()?;
    choice.delta.content.filter(|_| choice.index.unwrap_or(0) == 0)
}

/// `chunk` with this delta in its only choice.
pub(super) fn with_delta(chunk: &Bytes, delta: Value) -> Bytes {
    let edited = || {
        let mut object = JsonObject::parse(chunk.clone()).ok()?;
        let mut choices: Value = serde_json::from_slice(object.raw_member("choices")?).ok()?;
        *choices.get_mut(0)?.get_mut("delta")? = delta;
        object.set("choices", choices);
        Some(object.into_bytes())
    };
    edited().unwrap_or_else(|| chunk.clone())
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    choices: [Choice<'a>; 1],
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
}
