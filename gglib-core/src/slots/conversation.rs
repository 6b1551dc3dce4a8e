//! Whether one request goes on where another one ended.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::value::RawValue;

/// Members of a request that say how to answer and how to send it, not what the prompt is. A request that differs
/// from another one elsewhere, say in its tools, has another prompt from its beginning on.
const BESIDE_THE_PROMPT: [&str; 14] = [
    "frequency_penalty",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "min_p",
    "presence_penalty",
    "return_progress",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_k",
    "top_p",
];

/// The messages of a chat request as a chain of digests, one per message, each over all before it. It holds no text.
///
/// ```
/// use gglib_core::slots::Conversation;
///
/// let first = Conversation::of(br#"{"messages":[{"role":"user","content":"Hi"}]}"#).unwrap();
/// let next = br#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"},
///                 {"role":"user","content":"Again"}],"temperature":0}"#;
/// assert!(Conversation::of(next).unwrap().continues(first.digest()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    chain: Vec<u64>,
}

impl Conversation {
    /// Reads a request's body. `None` when it cannot be told what an engine's cache should make of it: it is no
    /// chat, wants several answers, or forbids the cache (`cache_prompt`).
    pub fn of(body: &[u8]) -> Option<Self> {
        let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(body).ok()?;
        let is = |name: &str, value: &str| members.get(name).is_none_or(|raw| raw.get() == value);
        if !is("n", "1") || !is("cache_prompt", "true") {
            return None;
        }
        let messages: Vec<&RawValue> = serde_json::from_str(members.get("messages")?.get()).ok()?;
        let mut digest = DefaultHasher::new();
        for (name, value) in &members {
            if !BESIDE_THE_PROMPT.contains(&&**name) {
                (name, value.get()).hash(&mut digest);
            }
        }
        let link = |message: &&RawValue| {
            message.get().hash(&mut digest);
            digest.finish()
        };
        let chain: Vec<_> = messages.iter().map(link).collect();
        (!chain.is_empty()).then_some(Self { chain })
    }

    /// Stands for all messages. Stable within one build of gglib; across builds an equal conversation may have
    /// another digest, which makes it an unknown one.
    pub fn digest(&self) -> u64 {
        self.chain.last().copied().unwrap_or_default()
    }

    /// Whether the conversation of this digest is the beginning of this one, or all of it.
    pub fn continues(&self, digest: u64) -> bool {
        self.chain.contains(&digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Option<Conversation> {
        Conversation::of(body.as_bytes())
    }

    #[test]
    fn more_messages_continue_it_and_others_do_not() {
        let first = of(r#"{"messages":[{"a":1}],"tools":[]}"#).unwrap();
        let continues = |body| of(body).unwrap().continues(first.digest());
        assert!(continues(r#"{"messages":[{"a":1}],"tools":[]}"#));
        assert!(continues(r#"{"tools":[],"messages":[{"a":1}, {"b":2}],"temperature":1,"stream":true}"#));
        assert!(!continues(r#"{"messages":[{"a":2},{"b":2}],"tools":[]}"#));
        assert!(!continues(r#"{"messages":[{"b":2},{"a":1}],"tools":[]}"#));
        // Tools stand before the messages in the prompt.
        assert!(!continues(r#"{"messages":[{"a":1},{"b":2}]}"#));
        assert!(!continues(r#"{"messages":[{"a":1},{"b":2}],"tools":[1]}"#));
        let longer = of(r#"{"messages":[{"a":1},{"b":2}],"tools":[]}"#).unwrap();
        assert!(!first.continues(longer.digest()));
    }

    #[test]
    fn what_the_cache_should_make_of_it_must_be_known() {
        for unknown in [
            "",
            "{}",
            r#"{"messages":[]}"#,
            r#"{"messages":"hi"}"#,
            r#"{"prompt":"hi"}"#,
            r#"{"messages":[{}],"n":2}"#,
            r#"{"messages":[{}],"cache_prompt":false}"#,
        ] {
            assert_eq!(of(unknown), None, "{unknown}");
        }
        assert!(of(r#"{"messages":[{}],"n":1,"cache_prompt":true}"#).is_some());
    }
}
