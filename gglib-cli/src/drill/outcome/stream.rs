//! Answers as a stream of events.

use gglib_core::api::chunk::{Probe, StreamState};
use gglib_core::sse::SseEvent;
use serde_json::Value;

use super::{Breach, End, Head, Outcome, error, events, is_of_type, plain};

const DONE: &[u8] = b"[DONE]";

/// What a response with status 200 is that was asked for as a stream.
pub(super) fn judge(head: &Head, body: &[u8], end: End) -> Result<Outcome, Breach> {
    is_of_type(head, "text/event-stream")?;
    let mut told = plain::recovery(head);
    let mut data = Vec::new();
    for event in events(body) {
        match event {
            SseEvent::Comment(comment) => told = recovery(&comment).or(told),
            SseEvent::Message { data: message, .. } => data.push(message),
        }
    }
    let mut state = StreamState::new(1);
    let mut roles = 0;
    for (place, message) in data.iter().enumerate() {
        let is_last = place + 1 == data.len();
        if **message == *DONE {
            continue;
        }
        let probe = Probe::parse(message).map_err(|_| Breach::Malformed)?;
        if probe.error {
            return match end {
                _ if !is_last => Err(Breach::AfterError),
                End::Clean => Err(Breach::CleanAfterError),
                _ => error::judge_event(message),
            };
        }
        roles += probe.choices.iter().filter(|choice| choice.role).count();
        // It is a chunk, as has been seen, and no error.
        let _ = state.observe(message);
    }
    if end != End::Clean {
        return Err(Breach::CutWithoutError);
    }
    if !state.is_whole() {
        return Err(Breach::Unfinished);
    }
    let done = data.iter().filter(|message| ***message == *DONE).count();
    if done != 1 || data.last().is_none_or(|last| **last != *DONE) {
        return Err(Breach::Done(done));
    }
    if roles != 1 {
        return Err(Breach::Role(roles));
    }
    Ok(Outcome::Answered { recovery: told })
}

/// Told in a comment once the head is out.
fn recovery(comment: &[u8]) -> Option<String> {
    let how = comment.trim_ascii().strip_prefix(b"gglib-recovery ")?;
    Some(String::from_utf8_lossy(how).into_owned())
}

pub(super) fn text(body: &[u8]) -> String {
    let mut text = String::new();
    for event in events(body) {
        let SseEvent::Message { data, .. } = event else { continue };
        let chunk: Value = serde_json::from_slice(&data).unwrap_or_default();
        text += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
    }
    text
}
