//! Calls that are held back, and their release.

use bytes::Bytes;
use gglib_core::api::chunk::{ContentKind, Identity, Probe, PromptProgress};
use gglib_core::model::ModelName;
use gglib_core::repair::{Call, Turn};
use serde_json::{Value, json};

use crate::exchange::{Recovery, Rejected, Sink};
use crate::own_chunk;

/// Passes on what is only said, and holds back calls and the end.
pub(super) struct Holding<'a, S> {
    sink: &'a mut S,
    /// Whether content has been passed on.
    has_spoken: bool,
    held: Held,
}

/// What is held back: the data of chunks, as they came.
#[derive(Default)]
pub(super) struct Held {
    /// Before the first content: roles and the like. Until there is some, the client may still be told of a
    /// recovery in a header.
    opening: Vec<Bytes>,
    /// Calls, and the end.
    rest: Vec<Bytes>,
    /// What they add up to.
    pub(super) turn: Turn,
}

/// How the calls of an answer were replaced.
#[derive(Clone, Copy)]
pub(super) enum Replaced {
    /// By themselves, in another packaging.
    Mended,
    /// By calls that were asked for again, at the cost of so many tokens.
    Repaired { tokens: u64 },
}

impl<'a, S: Sink> Holding<'a, S> {
    pub(super) fn new(sink: &'a mut S) -> Self {
        Self { sink, has_spoken: false, held: Held::default() }
    }

    pub(super) fn into_held(self) -> Held {
        self.held
    }
}

impl<S: Sink> Sink for Holding<'_, S> {
    /// What is held back is not out of our hands: an engine that dies over a call can be replaced.
    fn hands_on(&self) -> bool {
        self.has_spoken && self.sink.hands_on()
    }

    async fn chunk(&mut self, data: Bytes) -> Result<(), Rejected> {
        let probe = Probe::parse(&data).unwrap_or_default();
        if probe.is_progress_only() {
            return self.sink.chunk(data).await;
        }
        let content = probe.content();
        let ends = probe.usage || probe.choices.iter().any(|choice| choice.finish_reason.is_some());
        if ends || content == Some(ContentKind::ToolCall) {
            self.held.turn.push(&data);
            self.held.rest.push(data);
            return Ok(());
        }
        if content.is_none() && !self.has_spoken {
            self.held.opening.push(data);
            return Ok(());
        }
        self.has_spoken |= content.is_some();
        for opening in self.held.opening.drain(..) {
            self.sink.chunk(opening).await?;
        }
        self.sink.chunk(data).await
    }

    fn progress(&mut self, progress: &PromptProgress) {
        self.sink.progress(progress);
    }

    async fn recovered(&mut self, recovery: Recovery) -> Result<(), Rejected> {
        self.sink.recovered(recovery).await
    }
}

impl Held {
    /// Hands everything on.
    pub(super) async fn release(self, sink: &mut impl Sink) -> Result<(), Rejected> {
        for chunk in self.opening.into_iter().chain(self.rest) {
            sink.chunk(chunk).await?;
        }
        Ok(())
    }

    /// The same with `calls` instead of its own, and an end that is true of them.
    pub(super) fn with_calls(self, calls: &[Call], replaced: Replaced, model: &ModelName) -> Self {
        let mut rest: Vec<Bytes> = Vec::with_capacity(calls.len() + 2);
        let another = self.rest.first();
        let id = another.and_then(|data| serde_json::from_slice::<Value>(data).ok());
        let id = id.as_ref().and_then(|chunk| chunk["id"].as_str()).unwrap_or_default();
        let identity =
            another.map(|data| Identity::of(data)).unwrap_or_default().or(own_chunk::identity(model));
        for (position, call) in calls.iter().enumerate() {
            let delta = json!({ "tool_calls": [{
                "index": position,
                "id": call.id.clone().unwrap_or_else(|| format!("call_{id}_{position}")),
                "type": "function",
                "function": { "name": call.name, "arguments": call.arguments },
            }] });
            rest.push(own_chunk::with_delta(&delta, &identity));
        }
        rest.extend(self.rest.iter().filter_map(|data| end_of_calls(data, replaced)));
        Self { rest, ..self }
    }
}

/// What is left of a chunk without its calls; `None` if that is nothing.
fn end_of_calls(data: &[u8], replaced: Replaced) -> Option<Bytes> {
    let mut chunk: Value = serde_json::from_slice(data).ok()?;
    let mut says_something = false;
    if let Some(Value::Object(choice)) = chunk.pointer_mut("/choices/0") {
        if let Some(Value::Object(delta)) = choice.get_mut("delta") {
            delta.shift_remove("tool_calls");
            says_something = delta.values().any(|value| !value.is_null());
        }
        if let Some(reason @ Value::String(_)) = choice.get_mut("finish_reason") {
            // An answer that was cut off stays so: there may have been more calls to come.
            if matches!(replaced, Replaced::Repaired { .. }) || *reason == "stop" {
                *reason = "tool_calls".into();
            }
            says_something = true;
        }
    }
    if let Some(Value::Object(usage)) = chunk.get_mut("usage") {
        if let Replaced::Repaired { tokens } = replaced {
            for member in ["completion_tokens", "total_tokens"] {
                let sum = usage.get(member).and_then(Value::as_u64).map(|count| count.saturating_add(tokens));
                usage.extend(sum.map(|sum| (member.to_owned(), sum.into())));
            }
        }
        says_something = true;
    }
    says_something.then(|| chunk.to_string().into())
}
