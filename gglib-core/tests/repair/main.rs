//! Tool calls: the verdict on them, mending, the second request, and the history.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod assess;
mod grammar;
mod history;
mod mend;
mod schema;
mod second;

use gglib_core::repair::{Mismatch, MismatchKind, SchemaError, Schemas, Tools, Turn};
use serde_json::{Value, json};

/// A schema engine that knows `required`, `additionalProperties` and the `type` and `enum` of members.
struct Members;

impl Schemas for Members {
    fn mismatches(&self, schema: &Value, instance: &Value) -> Result<Vec<Mismatch>, SchemaError> {
        if schema["type"] == "nonsense" {
            return Err(SchemaError::Invalid("nonsense".to_owned()));
        }
        let of = |kind, name: &str| Mismatch { kind, at: format!("/{name}") };
        let missing = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let missing = missing.filter(|name| instance.get(name).is_none());
        let mut found: Vec<Mismatch> = missing.map(|name| of(MismatchKind::Missing, name)).collect();
        for (name, value) in instance.as_object().unwrap() {
            let Some(schema) = schema["properties"].get(name) else {
                if schema["additionalProperties"] == false {
                    found.push(of(MismatchKind::Extra, name));
                }
                continue;
            };
            let right = match schema["type"].as_str() {
                Some("string") => value.is_string(),
                Some("integer") => value.is_i64(),
                _ => true,
            };
            if !right {
                found.push(of(MismatchKind::Mistyped, name));
            } else if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
                found.push(of(MismatchKind::Invalid, name));
            }
        }
        Ok(found)
    }
}

/// Two functions, one of them without a schema.
fn tools(choice: &str) -> Tools {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string" },
            "unit": { "type": "string", "enum": ["c", "f"] },
            "days": { "type": "integer" },
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    let tools = json!([
        { "type": "function", "function": { "name": "get_weather", "parameters": parameters } },
        { "type": "function", "function": { "name": "ping" } },
    ]);
    Tools::read(tools.to_string().as_bytes(), Some(choice.as_bytes())).unwrap()
}

const AUTO: &str = r#""auto""#;
const REQUIRED: &str = r#""required""#;

/// A turn of these calls, name and arguments.
fn turn(calls: &[(&str, &str)], finish_reason: &str) -> Turn {
    let mut turn = Turn::default();
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let call = json!({ "index": index, "id": format!("id{index}"), "type": "function",
            "function": { "name": name, "arguments": arguments } });
        turn.push(
            json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] }).to_string().as_bytes(),
        );
    }
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": finish_reason }] });
    turn.push(last.to_string().as_bytes());
    turn
}
