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
pub struct Identity(Vec<(&'static str, Value)>);

impl Identity {
    /// What `chunk` says of its answer.
    pub fn of(chunk: &[u8]) -> Self {
        let Ok(chunk) = JsonObject::parse(Bytes::copy_from_slice(chunk)) else { return Self::default() };
        let value = |name| serde_json::from_slice(chunk.raw_member(name)?).ok();
        Self(SHARED.into_iter().filter_map(|name| Some((name, value(name)?))).collect())
    }

    /// The one of an answer of which nothing else is known yet; `created` in Unix seconds.
    pub fn new(id: &str, created: u64, model: &str) -> Self {
        Self(vec![
            ("id", json!(id)),
            ("object", json!("chat.completion.chunk")),
            ("created", json!(created)),
            ("model", json!(model)),
        ])
    }

    /// Whether the chunk it was taken from said nothing of its answer.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `chunk` as one of this answer. Everything else in it stays byte for byte; what is no object stays altogether.
    pub fn put_on(&self, chunk: Bytes) -> Bytes {
        let Ok(mut object) = JsonObject::parse(chunk.clone()) else { return chunk };
        for (name, value) in &self.0 {
            if object.raw_member(name) != Some(value.to_string().as_bytes()) {
                object.set(name, value.clone());
            }
        }
        object.into_bytes()
    }

    /// A chunk of this answer with these `choices`.
    pub fn chunk(&self, choices: Value) -> Bytes {
        let members = self.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let chunk: Map<String, Value> = members.chain([("choices".to_owned(), choices)]).collect();
        Value::Object(chunk).to_string().into()
    }
}
