//! What a request says that matters at the seam.

use serde::Deserialize;
use serde_json::json;

use super::NotContinuable;
use super::delivered::Heard;
use crate::api::body::{JsonObject, items};

/// The members that bound the answer's length. The first one that is there decides, also when it says that there is
/// no bound (llama-server b10434).
const LIMITS: [&str; 3] = ["n_predict", "max_completion_tokens", "max_tokens"];

/// The members that say how many choices there are; the first one that is there decides.
const CHOICES: [&str; 2] = ["n_cmpl", "n"];

/// Members that ask for more than text, or for text of a certain form, when they are set at all.
const BINDING: [&str; 5] = ["logprobs", "top_logprobs", "n_probs", "json_schema", "grammar"];

/// What a continuable request says of the end of its answer.
#[derive(Debug)]
pub(super) struct Terms {
    /// The most tokens, if they are bounded.
    pub(super) limit: Option<u64>,
    /// Texts that end the answer.
    pub(super) stops: Vec<String>,
    pub(super) usage: Usage,
}

/// Whether the client wants to see the usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    Wanted,
    Unwanted,
}

impl Terms {
    /// Reads a request; the error says why its answer cannot be taken up in the middle.
    pub(super) fn read(body: &JsonObject) -> Result<Self, NotContinuable> {
        for name in CHOICES {
            match body.u64_member(name)? {
                None => {}
                Some(0 | 1) => break,
                Some(_) => return Err(NotContinuable::Request(name)),
            }
        }
        if let Some(binding) = BINDING.into_iter().find(|name| is_set(body, name)) {
            return Err(NotContinuable::Request(binding));
        }
        if let Some(format) = body.object_member("response_format")?
            && format.str_member("type")?.is_some_and(|kind| kind != "text")
        {
            return Err(NotContinuable::Request("response_format"));
        }
        for choice in ["tool_choice", "function_call"] {
            if !matches!(body.raw_member(choice), None | Some(b"null" | b"\"auto\"" | b"\"none\"")) {
                return Err(NotContinuable::Request(choice));
            }
        }
        if last_role(body).ok_or(NotContinuable::Request("messages"))? == "assistant" {
            return Err(NotContinuable::AfterAssistant);
        }
        let mut limit = None;
        for name in LIMITS {
            limit = limit.or(number(body, name)?);
        }
        let stops = stops(body).ok_or(NotContinuable::Request("stop"))?;
        let options = body.object_member("stream_options")?;
        let usage = match options.map(|options| options.bool_member("include_usage")).transpose()?.flatten() {
            Some(true) => Usage::Wanted,
            _ => Usage::Unwanted,
        };
        Ok(Self { limit: limit.and_then(bound), stops, usage })
    }
}

/// Turns `body` into the request for the rest of the answer.
pub(super) fn take_up(body: &mut JsonObject, heard: &Heard) -> Result<(), NotContinuable> {
    body.append("messages", json!({ "role": "assistant", "content": heard.text }))?;
    for name in LIMITS {
        if let Some(limit) = number(body, name)?.and_then(bound) {
            // llama-server takes 0 for 1, others for no bound at all.
            body.set(name, limit.saturating_sub(heard.tokens).max(1));
        }
    }
    Ok(())
}

/// Whether the member says anything.
fn is_set(body: &JsonObject, name: &str) -> bool {
    !matches!(body.raw_member(name), None | Some(b"null" | b"false" | b"0" | b"\"\"" | b"{}"))
}

/// A whole number; none where the member says nothing.
fn number(body: &JsonObject, name: &'static str) -> Result<Option<i64>, NotContinuable> {
    match body.raw_member(name) {
        None | Some(b"null") => Ok(None),
        Some(raw) => serde_json::from_slice(raw).map(Some).map_err(|_| NotContinuable::Request(name)),
    }
}

/// The bound that a number sets; none where it is negative, which means the same to llama-server.
fn bound(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

fn stops(body: &JsonObject) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stop {
        None,
        One(String),
        Several(Vec<String>),
    }
    let stop = body.raw_member("stop").map(serde_json::from_slice).transpose().ok()?;
    let stops = match stop.unwrap_or(Stop::None) {
        Stop::None => Vec::new(),
        Stop::One(stop) => vec![stop],
        Stop::Several(stops) => stops,
    };
    Some(stops.into_iter().filter(|stop| !stop.is_empty()).collect())
}

/// Whose the last message is.
fn last_role(body: &JsonObject) -> Option<String> {
    #[derive(Deserialize)]
    struct Message {
        role: String,
    }
    let messages = str::from_utf8(body.raw_member("messages")?).ok()?;
    serde_json::from_str::<Message>(items(messages).last()?.get()).ok().map(|message| message.role)
}
