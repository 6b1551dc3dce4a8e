//! What is the same in every chunk of one answer.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::api::body::JsonObject;

/// The members that clients may rely on to be the same in all chunks.
const SHARED: [&str; 5] = ["id", "object", "created", "model", "system_fingerprint"];

/// Which answer a chunk belongs to: `id`, `object`, `created`, `model` and `system_fingerprint`, as they were written.
///
/// Chunks of our own take it from the engine's, and chunks of a second engine take it from the first one's.
///
/// ```
/// use bytes::Bytes;
/// use gglib_core::api::chunk::Identity;
/// use serde_json::json;
///
/// let first = Identity::of(br#"{"id":"a","created":7,"choices":[]}"#);
/// assert_eq!(first.chunk(json!([])), r#"{"id":"a","created":7,"choices":[]}"#);
/// let second = Bytes::from(r#"{"choices":[], "created":8, "id":"b", "x":1e400}"#);
/// assert_eq!(first.put_on(second), r#"{"choices":[], "created":7, "id":"a", "x":1e400}"#);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Identity {
    members: Vec<(&'static str, Value)>,
    /// The member `id` as servers write it.
    mark: String,
}

impl Identity {
    /// What `chunk` says of its answer.
    pub fn of(chunk: &[u8]) -> Self {
        let Ok(chunk) = JsonObject::parse(Bytes::copy_from_slice(chunk)) else { return Self::default() };
        let value = |name| serde_json::from_slice(chunk.raw_member(name)?).ok();
        Self::from_members(SHARED.into_iter().filter_map(|name| Some((name, value(name)?))).collect())
    }

    /// The one of an answer of which nothing else is known yet; `created` in Unix seconds.
    pub fn new(id: &str, created: u64, model: &str) -> Self {
        Self::from_members(vec![
            ("id", json!(id)),
            ("object", json!("chat.completion.chunk")),
            ("created", json!(created)),
            ("model", json!(model)),
        ])
    }

    /// The same with what is missing taken from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let Self { mut members, .. } = self;
        let missing = |(name, _): &(&str, Value)| members.iter().all(|(own, _)| own != name);
        let more: Vec<_> = other.members.into_iter().filter(missing).collect();
        members.extend(more);
        Self::from_members(members)
    }

    /// Whether the chunk it was taken from said nothing of its answer.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// `chunk` as one of this answer. Everything else in it stays byte for byte; what is no object stays altogether,
    /// and so does what has this `id` already.
    pub fn put_on(&self, chunk: Bytes) -> Bytes {
        if str::from_utf8(&chunk).is_ok_and(|chunk| chunk.contains(&self.mark)) {
            return chunk;
        }
        let Ok(mut object) = JsonObject::parse(chunk.clone()) else { return chunk };
        for (name, value) in &self.members {
            if object.raw_member(name) != Some(value.to_string().as_bytes()) {
                object.set(name, value.clone());
            }
        }
        object.into_bytes()
    }

    /// A chunk of this answer with these `choices`.
    pub fn chunk(&self, choices: Value) -> Bytes {
        let members = self.members.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let chunk: Map<String, Value> = members.chain([("choices".to_owned(), choices)]).collect();
        Value::Object(chunk).to_string().into()
    }

    fn from_members(members: Vec<(&'static str, Value)>) -> Self {
        let id = members.iter().find(|(name, _)| *name == "id");
        let mark = id.map_or_else(String::new, |(_, id)| format!("\"id\":{id}"));
        Self { members, mark }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_supplied_and_what_is_there_already_stays() {
        let own = Identity::new("chatcmpl-1", 7, "m");
        let partial = Identity::of(br#"{"model":"other","id":"a"}"#).or(own.clone());
        let expected =
            r#"{"id":"a","object":"chat.completion.chunk","created":7,"model":"other","choices":[]}"#;
        let chunk = partial.chunk(json!([]));
        assert_eq!(chunk.len(), expected.len());
        assert_eq!(serde_json::from_slice::<Value>(&chunk).ok(), serde_json::from_str(expected).ok());
        assert!(Identity::of(b"[]").is_empty() && Identity::of(br#"{"choices":[]}"#).is_empty());

        let same = Bytes::from(r#"{"choices":[],"id":"chatcmpl-1","created":8}"#);
        assert_eq!(own.put_on(same.clone()), same);
        let spaced = Bytes::from(
            r#"{ "id" : "chatcmpl-1" , "created" : 7, "model":"m","object":"chat.completion.chunk"}"#,
        );
        assert_eq!(own.put_on(spaced.clone()), spaced);
        let none = own.put_on(Bytes::from(r#"{"choices":[]}"#));
        assert!(none.starts_with(br#"{"choices":[],"id":"chatcmpl-1","#), "{none:?}");
        assert_eq!(own.put_on(Bytes::from("[1]")), "[1]");
        assert_eq!(Identity::default().put_on(spaced.clone()), spaced);
    }
}
