//! Answers in one piece.

use serde_json::Value;

use super::{Breach, End, Head, Outcome, is_of_type};

/// What a response with status 200 is that was not asked for as a stream.
pub(super) fn judge(head: &Head, body: &[u8], end: End) -> Result<Outcome, Breach> {
    is_of_type(head, "application/json")?;
    if end != End::Clean {
        return Err(Breach::CutBody);
    }
    let answer: Value = serde_json::from_slice(body).map_err(|_| Breach::NotWhole("it is not JSON"))?;
    let choice = &answer["choices"][0];
    if !choice["message"].is_object() {
        return Err(Breach::NotWhole("it has no message"));
    }
    if choice["finish_reason"].as_str().is_none_or(str::is_empty) {
        return Err(Breach::NotWhole("it has no finish_reason"));
    }
    Ok(Outcome::Answered { recovery: recovery(head) })
}

/// What the head says of how the endpoint recovered.
pub(super) fn recovery(head: &Head) -> Option<String> {
    let told = head.headers.get("x-gglib-recovery")?;
    Some(String::from_utf8_lossy(told.as_bytes()).into_owned())
}

pub(super) fn text(body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}
