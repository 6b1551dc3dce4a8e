//! Chunks that we send ourselves, between the engine's.

use bytes::Bytes;
use gglib_core::api::chunk::Identity;
use gglib_core::model::ModelName;
use serde_json::{Value, json};

use crate::exchange::unix_now;

/// The data of a chunk with this `delta`.
pub(crate) fn with_delta(delta: &Value, identity: &Identity) -> Bytes {
    identity.chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]))
}

/// What an answer goes by before the engine has spoken.
pub(crate) fn identity(model: &ModelName) -> Identity {
    Identity::new(&format!("chatcmpl-{:016x}", rand::random::<u64>()), unix_now(), model.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_said_of_its_answer_is_said_again() {
        let another = br#"{"choices":[{"delta":{"content":"x"}}],"created":7,"id":"a","model":"m","timings":{},"object":"chat.completion.chunk"}"#;
        assert_eq!(
            with_delta(&json!({}), &Identity::of(another)),
            r#"{"id":"a","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":null}]}"#
        );
    }

    #[test]
    fn before_the_engine_has_spoken_the_chunk_is_whole_too() {
        let chunk = with_delta(&json!({"role":"assistant"}), &identity(&ModelName::new("m")));
        let chunk: Value = serde_json::from_slice(&chunk).unwrap();
        assert!(
            chunk["id"].as_str().is_some_and(|id| id.len() == 25 && id.starts_with("chatcmpl-")),
            "{chunk}"
        );
        assert!(chunk["created"].as_u64().is_some_and(|created| created > 1_700_000_000), "{chunk}");
        assert_eq!((&chunk["model"], &chunk["object"]), (&json!("m"), &json!("chat.completion.chunk")));
    }
}
