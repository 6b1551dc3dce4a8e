//! A request whose tools the engine does not get to see, and the chunks of its answer.

use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::calls::{self, CLOSE, OPEN};

/// The request with its tools as text of the system message, so that nothing holds the model; `None` when it has
/// none, or asks for what only the engine can do: a call that must come. The template still renders earlier calls.
pub(crate) fn freed(body: &[u8]) -> Option<Bytes> {
    let mut body: Value = serde_json::from_slice(body).ok()?;
    let members = body.as_object_mut()?;
    let tools = members.get("tools").and_then(Value::as_array).filter(|tools| !tools.is_empty())?;
    if !matches!(members.get("tool_choice").and_then(Value::as_str), None | Some("auto")) {
        return None;
    }
    let tools: Vec<String> = tools.iter().map(Value::to_string).collect();
    let description = format!(
        "\n\n# Tools\n\nThese functions may be called. Their signatures stand between <tools> and </tools>, one in \
         each line:\n<tools>\n{}\n</tools>\n\nA call is a JSON object with the name of the function and its \
         arguments, between {OPEN} and {CLOSE}:\n{OPEN}\n{{\"name\": <function>, \"arguments\": <object>}}\n{CLOSE}",
        tools.join("\n")
    );
    for member in ["tools", "tool_choice", "parallel_tool_calls"] {
        members.shift_remove(member);
    }
    let messages = members.get_mut("messages")?.as_array_mut()?;
    match messages.first_mut().filter(|first| first["role"] == "system") {
        Some(system) => system["content"] = (system["content"].as_str()?.to_owned() + &description).into(),
        None => messages.insert(0, json!({ "role": "system", "content": description.trim_start() })),
    }
    let stops = members.entry("stop").or_insert_with(|| json!([]));
    match stops {
        Value::Array(stops) => stops.push(CLOSE.into()),
        stop => *stop = json!([stop, CLOSE]),
    }
    Some(body.to_string().into())
}

/// What the engine says about itself, with a template that knows no tools.
pub(crate) fn untaught(props: &[u8]) -> Bytes {
    let Ok(mut props) = serde_json::from_slice::<Value>(props) else { return Bytes::copy_from_slice(props) };
    for name in ["supports_tools", "supports_tool_calls"] {
        if let Some(known) = props.pointer_mut(&format!("/chat_template_caps/{name}")) {
            *known = false.into();
        }
    }
    props.to_string().into()
}

/// An answer on its way. Text passes until something that may be a call begins.
#[derive(Default)]
pub(crate) struct Answer {
    held: String,
}

impl Answer {
    /// What becomes of the next chunk.
    pub(crate) fn take(&mut self, mut chunk: Value) -> Vec<Value> {
        let Some(choice) = chunk.pointer_mut("/choices/0") else { return vec![chunk] };
        let mut is_held = false;
        if let Some(text) = choice["delta"]["content"].as_str()
            && (text.contains('<') || !self.held.is_empty())
        {
            self.held += text;
            choice["delta"] = json!({});
            is_held = true;
        }
        if !choice["finish_reason"].is_string() {
            return if is_held { Vec::new() } else { vec![chunk] };
        }
        let (before, calls) = calls::split(&self.held);
        let mut deltas = Vec::new();
        if !before.is_empty() {
            deltas.push(json!({ "content": before }));
        }
        for (index, (name, arguments)) in calls.iter().enumerate() {
            let id = format!("{}-{index}", chunk["id"].as_str().unwrap_or_default());
            let function = json!({ "name": name, "arguments": "" });
            let first = json!({ "index": index, "id": id, "type": "function", "function": function });
            let then = json!({ "index": index, "function": { "arguments": arguments } });
            deltas.extend([first, then].map(|call| json!({ "tool_calls": [call] })));
        }
        let end = &mut chunk["choices"][0]["finish_reason"];
        if !calls.is_empty() && *end == "stop" {
            *end = "tool_calls".into();
        }
        let mut chunks: Vec<Value> = Vec::with_capacity(deltas.len() + 1);
        for delta in deltas {
            let mut with = chunk.clone();
            with["choices"][0] = json!({ "index": 0, "delta": delta, "finish_reason": null });
            for member in ["usage", "timings"] {
                with.as_object_mut().and_then(|members| members.shift_remove(member));
            }
            chunks.push(with);
        }
        chunks.push(chunk);
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_become_text_unless_a_call_must_come() {
        let body = json!({
            "messages": [{ "role": "system", "content": "Call." }, { "role": "user", "content": "x" }],
            "tools": [{ "type": "function", "function": { "name": "f" } }],
            "stop": "!",
            "seed": 3,
        });
        let freed_body: Value = serde_json::from_slice(&freed(body.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!((&freed_body["tools"], &freed_body["seed"]), (&Value::Null, &json!(3)));
        assert_eq!(freed_body["stop"], json!(["!", "</tool_call>"]));
        let system = freed_body["messages"][0]["content"].as_str().unwrap();
        assert!(system.starts_with("Call.\n\n# Tools") && system.contains(r#"{"name":"f"}"#), "{system}");
        for (member, value) in [("tool_choice", json!("required")), ("tools", json!([]))] {
            let mut body = body.clone();
            body[member] = value;
            assert_eq!(freed(body.to_string().as_bytes()), None, "{member}");
        }
    }

    #[test]
    fn what_looks_like_a_call_is_held_until_the_end_and_then_is_one() {
        let chunk = |text: &str, end: Value| json!({ "id": "x", "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": end }] });
        let mut answer = Answer::default();
        assert_eq!(answer.take(chunk("Yes. ", Value::Null)), [chunk("Yes. ", Value::Null)]);
        for text in ["\n<tool", "_call>{\"name\":\"f\",", "\"arguments\": {\"a\": 1}"] {
            assert!(answer.take(chunk(text, Value::Null)).is_empty());
        }
        let chunks = answer.take(chunk("}", json!("stop")));
        let call =
            |delta: Value| json!({ "index": 0, "delta": { "tool_calls": [delta] }, "finish_reason": null });
        let choices: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]).collect();
        let first = json!({ "index": 0, "id": "x-0", "type": "function", "function": { "name": "f", "arguments": "" } });
        let then = json!({ "index": 0, "function": { "arguments": "{\"a\": 1}" } });
        let end = json!({ "index": 0, "delta": {}, "finish_reason": "tool_calls" });
        let before = json!({ "index": 0, "delta": { "content": "\n" }, "finish_reason": null });
        assert_eq!(choices, [&before, &call(first), &call(then), &end]);
        let usage = json!({ "choices": [], "usage": {} });
        assert_eq!(answer.take(usage.clone()), [usage]);
    }
}
