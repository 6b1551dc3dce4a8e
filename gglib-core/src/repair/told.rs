//! Tools, calls and their results as text, for a model whose chat template leaves them out.
//!
//! Without them it would be made to call what it has never heard of, with nothing but the grammar to go by.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::raw::{CLOSE, OPEN};

/// `messages` (as JSON text) with `tools` (likewise) described in the system message, earlier calls written into the
/// assistant's text as the grammar writes them, and results in messages of the user. `None` when either is not what
/// the protocol says; the engine's verdict on that counts.
pub(super) fn in_words(messages: &[u8], tools: &[u8]) -> Option<Value> {
    let messages: Vec<Value> = serde_json::from_slice(messages).ok()?;
    let tools: Vec<&RawValue> = serde_json::from_slice(tools).ok()?;
    let mut told: Vec<Value> = Vec::with_capacity(messages.len() + 1);
    // Results of one batch are one message: many templates want users and assistants to take turns.
    let mut after_result = false;
    for mut message in messages {
        let is_result = message["role"] == "tool";
        if is_result {
            let result = format!("<tool_response>\n{}\n</tool_response>", text_of(&message["content"]));
            match told.last_mut().filter(|_| after_result) {
                Some(results) => append(results, &result, "\n"),
                None => told.push(json!({ "role": "user", "content": result })),
            }
        } else {
            let calls = message.as_object_mut().and_then(|message| message.shift_remove("tool_calls"));
            // Clients that send every member say `null`, or nothing in a list.
            if let Some(calls) = calls.filter(|calls| !calls.is_null()) {
                let calls: Vec<String> = calls.as_array()?.iter().map(written).collect();
                if !calls.is_empty() {
                    append(&mut message, &calls.join("\n"), "\n");
                }
            }
            told.push(message);
        }
        after_result = is_result;
    }
    let description = description(&tools);
    match told.first_mut().filter(|first| first["role"] == "system" || first["role"] == "developer") {
        Some(system) => append(system, &description, "\n\n"),
        None => told.insert(0, json!({ "role": "system", "content": description })),
    }
    Some(Value::from(told))
}

fn description(tools: &[&RawValue]) -> String {
    let tools: Vec<&str> = tools.iter().map(|tool| tool.get()).collect();
    format!(
        "# Tools\n\nThese functions may be called:\n<tools>\n{}\n</tools>\n\n\
         A call is a JSON object with the name of the function and its arguments:\n\
         {OPEN}{{\"name\":<function>,\"arguments\":<object>}}{CLOSE}",
        tools.join("\n")
    )
}

/// An earlier call, as the grammar would have it.
fn written(call: &Value) -> String {
    let function = &call["function"];
    let arguments = match &function["arguments"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        arguments => arguments.clone(),
    };
    format!("{OPEN}{}{CLOSE}", json!({ "name": function["name"], "arguments": arguments }))
}

/// Adds `text` to what `message` says, after `separator` if it says anything.
fn append(message: &mut Value, text: &str, separator: &str) {
    match &mut message["content"] {
        Value::Array(parts) => parts.push(json!({ "type": "text", "text": text })),
        Value::String(content) if !content.is_empty() => content.extend([separator, text]),
        content => *content = text.into(),
    }
}

/// What a message says, of a list of parts the text.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
