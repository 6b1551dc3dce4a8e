//! Chunks that we send ourselves, between the engine's.

use bytes::Bytes;
use gglib_core::model::ModelName;
use serde_json::{Map, Value, json};

/// The members that are the same in every chunk of an answer.
const SHARED: [&str; 5] = ["id", "object", "created", "model", "system_fingerprint"];

/// The data of a chunk with this `delta`, otherwise like `another` chunk of the same answer; before there is
/// one, with values that say as much.
pub(crate) fn with_delta(delta: &Value, another: Option<&[u8]>, model: &ModelName) -> Bytes {
    let mut chunk: Map<String, Value> =
        another.and_then(|data| serde_json::from_slice(data).ok()).unwrap_or_default();
    chunk.retain(|name, _| SHARED.contains(&name.as_str()));
    let unknown = [
        ("id", json!("chatcmpl-0")),
        ("object", json!("chat.completion.chunk")),
        ("created", json!(0)),
        ("model", json!(model.as_str())),
    ];
    for (name, value) in unknown {
        chunk.entry(name).or_insert(value);
    }
    chunk.insert("choices".to_owned(), json!([{ "index": 0, "delta": delta, "finish_reason": null }]));
    Value::Object(chunk).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_said_of_its_answer_is_said_again() {
        let another = br#"{"choices":[{"delta":{"content":"x"}}],"created":7,"id":"a","model":"m","timings":{},"object":"chat.completion.chunk"}"#;
        assert_eq!(
            with_delta(&json!({}), Some(another), &ModelName::new("other")),
            r#"{"created":7,"id":"a","model":"m","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":null}]}"#
        );
    }

    #[test]
    fn before_the_engine_has_spoken_the_chunk_is_whole_too() {
        assert_eq!(
            with_delta(&json!({"role":"assistant"}), None, &ModelName::new("m")),
            r#"{"id":"chatcmpl-0","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}"#
        );
    }
}
