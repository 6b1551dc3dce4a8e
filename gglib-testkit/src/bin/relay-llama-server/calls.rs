//! Calls as the model wrote them, taken out of its text without a judgement.

use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) const OPEN: &str = "<tool_call>";
pub(crate) const CLOSE: &str = "</tool_call>";

/// The text before the first call, and name and arguments of each call.
pub(crate) fn split(text: &str) -> (&str, Vec<(String, String)>) {
    let (before, calls) = text.split_once(OPEN).unwrap_or((text, ""));
    if before.len() == text.len() {
        return (before, Vec::new());
    }
    let written = calls.split(OPEN).map(|rest| rest.split(CLOSE).next().unwrap_or_default().trim());
    (before, written.map(call).collect())
}

/// Name and arguments of one call; of one that is no JSON, what stands where they should.
fn call(written: &str) -> (String, String) {
    if let Ok(whole) = serde_json::from_str::<serde_json::Map<String, Value>>(written) {
        let arguments = || {
            let members = serde_json::from_str::<std::collections::HashMap<&str, &RawValue>>(written).ok()?;
            Some(members.get("arguments")?.get().to_owned())
        };
        let name = whole.get("name").and_then(Value::as_str).unwrap_or_default();
        return (name.to_owned(), arguments().unwrap_or_default());
    }
    let name = after(written, "\"name\"").and_then(|rest| rest.strip_prefix('"')?.split('"').next());
    let arguments = after(written, "\"arguments\"").unwrap_or(written);
    // The last brace is the call's own.
    let arguments = arguments.strip_suffix('}').unwrap_or(arguments).trim_end();
    (name.unwrap_or_default().to_owned(), arguments.to_owned())
}

/// What follows the member `name` and its colon.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(name)?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_taken_as_they_were_written() {
        let one = |text: &str| {
            let (before, mut calls) = split(text);
            assert_eq!((before, calls.len()), ("So: ", 1), "{text}");
            calls.remove(0)
        };
        let table = [
            (r#"{"name": "f", "arguments": {"a": 1.50}}"#, r#"{"a": 1.50}"#),
            // Outside of the arguments: not an argument.
            (r#"{"name": "f", "arguments": {"a": 1}, "b": 2}"#, r#"{"a": 1}"#),
            (r#"{"name": "f"}"#, ""),
            (r#"{"name": "f", "arguments": "a"}"#, r#""a""#),
            (r#"{"name": "f", "arguments": {"a": "2}}"#, r#"{"a": "2}"#),
            (r#"{"name": "f", "arguments": {"a": "#, r#"{"a":"#),
            (r#"{"name": "f", "arguments": {"a": 1}"#, r#"{"a": 1"#),
        ];
        for (written, arguments) in table {
            for text in [format!("So: {OPEN}\n{written}\n"), format!("So: {OPEN}{written}{CLOSE}")] {
                assert_eq!(one(&text), ("f".to_owned(), arguments.to_owned()), "{text}");
            }
        }
        assert_eq!(one("So: <tool_call>f(1)"), (String::new(), "f(1)".to_owned()));
        assert_eq!(split("a < b"), ("a < b", Vec::new()));
        assert_eq!(split("<tool_call>{}</tool_call>\n<tool_call>{}").1.len(), 2);
    }
}
