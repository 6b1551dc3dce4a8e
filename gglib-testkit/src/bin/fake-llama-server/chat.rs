//! What is sent for a request that takes a slot: a plan of steps, made from the script and the request alone.

use std::time::Duration;

use gglib_testkit::{Fault, Reply};
use serde_json::{Value, json};

use crate::{
    http::Response,
    recording::{self, Chunks},
    slots::Counts,
};

/// What kind of answer is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Chat,
    Text,
    Embeddings,
    Rerank,
}

/// What a request asks for, as far as it changes the shape of the answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ask {
    pub(crate) kind: Kind,
    pub(crate) stream: bool,
    pub(crate) return_progress: bool,
    pub(crate) include_usage: bool,
    /// The beginning of the answer, if the last message is the assistant's.
    pub(crate) prefix: Option<String>,
}

/// One step of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Sends the whole answer.
    Respond(Response),
    /// Sends the head of a stream.
    Head,
    /// Sends these events in one piece.
    Send(String),
    /// Lets time pass; a stream pings meanwhile.
    Wait(Duration),
    /// Pings for ever.
    Ping,
    /// Sends nothing for ever.
    Silence,
    /// Ends the process.
    Die,
    /// Stops the process, until somebody lets it go on.
    Stop,
    /// Closes the connection as it is.
    Cut,
    /// Ends the body of a stream.
    End,
}

impl Ask {
    /// Reads a request's body, or says what the engine says to a bad one. A word counts as a token.
    pub(crate) fn read(kind: Kind, body: &[u8], context: usize) -> Result<Self, Response> {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return Err(Response::error(recording::BAD_JSON));
        };
        let is_set = |value: &Value| value.as_bool() == Some(true);
        if kind != Kind::Chat {
            let stream = kind == Kind::Text && is_set(&body["stream"]);
            return Ok(Self { kind, stream, ..Self::default() });
        }
        if !body["messages"].is_array() {
            return Err(Response::error(recording::NO_MESSAGES));
        }
        if body.get("temperature").is_some_and(|temperature| !temperature.is_number()) {
            return Err(Response::error(recording::WRONG_TYPE));
        }
        if body["messages"].to_string().split_whitespace().count() > context {
            return Err(Response::error(recording::TOO_LONG));
        }
        let last = body["messages"].as_array().and_then(|messages| messages.last());
        let prefix = last.filter(|message| message["role"] == "assistant");
        Ok(Self {
            kind,
            stream: is_set(&body["stream"]),
            return_progress: is_set(&body["return_progress"]),
            include_usage: is_set(&body["stream_options"]["include_usage"]),
            prefix: prefix.and_then(|message| message["content"].as_str()).map(str::to_owned),
        })
    }
}

/// The steps of the answer to `ask` by a model of this name.
///
/// `counts` stand in for the recorded ones.
pub(crate) fn plan(reply: &Reply, ask: &Ask, model: &str, counts: Option<Counts>) -> Vec<Step> {
    match reply.fault {
        Some(Fault::Status(status)) => vec![Step::Respond(Response::failure(status))],
        Some(Fault::DieBeforeHeaders) => vec![Step::Die],
        Some(Fault::HangBeforeHeaders) => vec![Step::Silence],
        Some(Fault::StopBeforeHeaders) => vec![Step::Stop],
        _ if ask.kind == Kind::Text && ask.stream => {
            streamed(reply, ask, &Chunks::of(model, counts)).into_iter().map(textual).collect()
        }
        _ if ask.stream => streamed(reply, ask, &Chunks::of(model, counts)),
        _ => plain(reply, ask.kind, model),
    }
}

/// A step of a chat as one of a text completion.
fn textual(step: Step) -> Step {
    let Step::Send(events) = step else { return step };
    let event = |event: &str| match event.strip_prefix("data: ").map(serde_json::from_str::<Value>) {
        Some(Ok(mut chunk)) => {
            chunk["object"] = "text_completion".into();
            for choice in chunk["choices"].as_array_mut().into_iter().flatten() {
                let text = choice["delta"]["content"].as_str().unwrap_or_default().to_owned();
                choice.as_object_mut().expect("a choice is an object").remove("delta");
                choice["text"] = text.into();
            }
            format!("data: {chunk}\n\n")
        }
        _ => format!("{event}\n\n"),
    };
    Step::Send(events.split_terminator("\n\n").map(event).collect())
}

fn streamed(reply: &Reply, ask: &Ask, chunks: &Chunks) -> Vec<Step> {
    let mut steps = vec![Step::Head];
    steps.extend(prefill(reply, ask, chunks));
    // The engine sends the role and the first content in one piece.
    let mut role = if reply.fault == Some(Fault::NoRole) { String::new() } else { chunks.role() };
    for (sent, delta) in reply.deltas.iter().enumerate() {
        if !fault_after(reply.fault, sent, &mut steps) {
            return steps;
        }
        steps.push(Step::Send(std::mem::take(&mut role) + &chunks.content(delta)));
        steps.push(Step::Wait(reply.pace));
    }
    let contents = reply.deltas.len();
    if !fault_after(reply.fault, contents, &mut steps) {
        return steps;
    }
    let finish = if ask.include_usage { Chunks::finish_with_usage } else { Chunks::finish };
    steps.push(Step::Send(role + &finish(chunks, &reply.finish_reason, contents)));
    if reply.fault != Some(Fault::NoDone) {
        steps.push(Step::Send("data: [DONE]\n\n".to_owned()));
    }
    steps.push(Step::End);
    steps
}

/// Tokens of a prompt that are processed between two progress chunks.
const BATCH: u32 = 100;

/// Prompt processing, told as progress if asked for.
fn prefill(reply: &Reply, ask: &Ask, chunks: &Chunks) -> Vec<Step> {
    let prefix = ask.prefix.as_deref().filter(|_| reply.repeats_prefix);
    if !ask.return_progress {
        let repeated = prefix.map(|prefix| Step::Send(chunks.content(&json!({ "content": prefix }))));
        return std::iter::once(Step::Wait(reply.prefill)).chain(repeated).collect();
    }
    let parts = reply.prefill_steps.max(1);
    let progress = |part| chunks.progress(part * BATCH, parts * BATCH);
    // The real engine repeats the prefix together with the first progress.
    let first = prefix.map_or_else(|| progress(0), |prefix| Chunks::with_prefix(&progress(0), prefix));
    let later = (1..=parts).flat_map(|part| [Step::Wait(reply.prefill / parts), Step::Send(progress(part))]);
    std::iter::once(Step::Send(first)).chain(later).collect()
}

/// Adds what goes wrong after `sent` contents; whether the answer goes on after it.
fn fault_after(fault: Option<Fault>, sent: usize, steps: &mut Vec<Step>) -> bool {
    let text = |text: &str| Step::Send(text.to_owned());
    let wrong = match fault {
        Some(Fault::DieAfter(after)) if after == sent => vec![Step::Die],
        Some(Fault::HangAfter(after)) if after == sent => vec![Step::Silence],
        Some(Fault::StopAfter(after)) if after == sent => vec![Step::Stop],
        Some(Fault::PingAfter(after)) if after == sent => vec![Step::Ping],
        Some(Fault::PingThenDie(after, pause)) if after == sent => vec![Step::Wait(pause), Step::Die],
        Some(Fault::CutAfter(after)) if after == sent => vec![Step::Cut],
        Some(Fault::EndAfter(after)) if after == sent => vec![Step::End],
        Some(Fault::TextAfter(after)) if after == sent => vec![text(PROXY_ERROR), Step::End],
        Some(Fault::GarbageAfter(after)) if after == sent => {
            steps.push(text("data: {\"choices\":[{\"delta\":{\"content\":\n\n"));
            return true;
        }
        _ => return true,
    };
    steps.extend(wrong);
    false
}

/// What llama-server's router mode says when its child is gone.
const PROXY_ERROR: &str = "proxy error: Failed to read connection";

fn plain(reply: &Reply, kind: Kind, model: &str) -> Vec<Step> {
    let contents = reply.deltas.len();
    let busy = reply.prefill + reply.pace * u32::try_from(contents).unwrap_or(u32::MAX);
    let body = match kind {
        Kind::Chat => recording::plain(model, message(&reply.deltas), &reply.finish_reason, contents),
        Kind::Text => recording::text(model, &reply.content(), &reply.finish_reason),
        Kind::Embeddings => recording::embeddings(model),
        Kind::Rerank => recording::ranking(model),
    };
    let outcome = match reply.fault {
        Some(Fault::DieAfter(_)) => vec![Step::Die],
        Some(Fault::HangAfter(_) | Fault::PingAfter(_)) => vec![Step::Silence],
        Some(Fault::StopAfter(_)) => vec![Step::Stop],
        Some(Fault::PingThenDie(_, pause)) => vec![Step::Wait(pause), Step::Die],
        Some(Fault::CutAfter(_)) => vec![Step::Cut],
        Some(Fault::EndAfter(_) | Fault::GarbageAfter(_)) => {
            vec![Step::Respond(Response::ok(&body[..body.len() / 2]))]
        }
        Some(Fault::TextAfter(_)) => {
            vec![Step::Respond(Response { status: 500, body: PROXY_ERROR.to_owned() })]
        }
        _ => vec![Step::Respond(Response::ok(body))],
    };
    std::iter::once(Step::Wait(busy)).chain(outcome).collect()
}

/// The message that deltas add up to.
fn message(deltas: &[Value]) -> Value {
    let text = |member: &str| deltas.iter().filter_map(|delta| delta[member].as_str()).collect::<String>();
    let mut message = json!({ "role": "assistant", "content": text("content") });
    let reasoning = text("reasoning_content");
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    let mut calls: Vec<Value> = Vec::new();
    for piece in deltas.iter().filter_map(|delta| delta["tool_calls"].get(0)) {
        let begins = piece.get("id").is_some();
        if let Some(call) = calls.last_mut().filter(|_| !begins) {
            append(&mut call["function"]["arguments"], &piece["function"]["arguments"]);
        } else {
            calls.push(json!({ "type": "function", "function": piece["function"], "id": piece["id"] }));
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

fn append(text: &mut Value, more: &Value) {
    *text = (text.as_str().unwrap_or_default().to_owned() + more.as_str().unwrap_or_default()).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Ask =
        Ask { kind: Kind::Chat, stream: true, return_progress: false, include_usage: false, prefix: None };

    #[test]
    fn deltas_add_up_to_a_message() {
        let pieces = ["{\"city\":", " \"Rome\"}"];
        assert_eq!(
            message(&Reply::tool_call("get_weather", pieces).deltas)["tool_calls"][0]["function"],
            json!({ "name": "get_weather", "arguments": "{\"city\": \"Rome\"}" })
        );
        assert_eq!(
            message(&Reply::reasoning(["a", "b"], ["c", "d"]).deltas),
            json!({ "role": "assistant", "content": "cd", "reasoning_content": "ab" })
        );
    }

    #[test]
    fn a_fault_comes_after_as_many_contents_as_it_says() {
        for after in 0..=3 {
            let reply = Reply { fault: Some(Fault::DieAfter(after)), ..Reply::numbered(3) };
            let steps = plan(&reply, &STREAM, "m", None);
            let sent = steps.iter().filter(|step| matches!(step, Step::Send(_))).count();
            assert_eq!((sent, steps.last()), (after, Some(&Step::Die)));
        }
    }

    #[test]
    fn progress_rises_to_the_whole_prompt_before_the_first_content() {
        let ask = Ask { return_progress: true, ..STREAM };
        let reply = Reply { prefill: Duration::from_secs(4), prefill_steps: 2, ..Reply::numbered(1) };
        let steps = plan(&reply, &ask, "m", None);
        let shape: Vec<_> = steps[1..7]
            .iter()
            .map(|step| match step {
                Step::Wait(duration) => format!("wait {duration:?}"),
                Step::Send(events) => match events.split_once("\"processed\":") {
                    Some((_, rest)) => rest.split(',').next().unwrap_or_default().to_owned(),
                    None => "content".to_owned(),
                },
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(shape, ["0", "wait 2s", "100", "wait 2s", "200", "content"]);
    }
}
