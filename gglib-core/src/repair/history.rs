//! Calls in a client's history that an engine would fail on.

use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

use super::mend::{Ending, mend};
use crate::api::body::items;

/// A call in the history whose arguments no engine can read, and for which only the client knows what was meant.
///
/// llama-server answers 500 to such a history, each time it is sent again, although nothing will pass.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{member}` is not JSON ({problem}); correct these arguments, or remove the call and its answer from the conversation"
)]
pub struct HistoryError {
    /// Where: `messages[3].tool_calls[0].function.arguments`.
    pub member: String,
    /// What the parser says, with line and column where it knows them.
    pub problem: String,
}

/// The `messages` of a request (as JSON text) with the arguments of earlier calls mended, `None` when there is
/// nothing to mend. All else stays byte for byte; what is not as the protocol says is the engine's to judge.
///
/// # Errors
/// [`HistoryError`] for the first arguments that are not JSON, and that cannot be mended for certain.
///
/// ```
/// use gglib_core::repair::mend_history;
///
/// let history = r#"[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1,}"}}]}]"#;
/// assert_eq!(
///     mend_history(history)?.as_deref(),
///     Some(r#"[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}}]}]"#)
/// );
/// let error = mend_history(&history.replace("1,}", "")).unwrap_err();
/// assert_eq!(error.member, "messages[0].tool_calls[0].function.arguments");
/// # Ok::<(), gglib_core::repair::HistoryError>(())
/// ```
pub fn mend_history(messages: &str) -> Result<Option<String>, HistoryError> {
    let mut mended: Vec<(Range<usize>, String)> = Vec::new();
    // Looking for the word is cheap; most of a long conversation holds no call.
    if !messages.contains("\"tool_calls\"") {
        return Ok(None);
    }
    let start = messages.as_ptr().addr();
    for (position, message) in items(messages).enumerate() {
        let Ok(Message { tool_calls: Some(calls) }) = serde_json::from_str(message.get()) else { continue };
        for (number, call) in items(calls.get()).enumerate() {
            let Some(raw) = arguments(call) else { continue };
            let Ok(text) = serde_json::from_str::<String>(raw.get()) else { continue };
            let Some(unreadable) = problem(&text) else { continue };
            // Nobody knows any more how that answer ended; but nothing at all is only said when nothing is meant.
            let ending = if text.trim().is_empty() { Ending::Complete } else { Ending::CutOff };
            let readable = mend(&text, ending).filter(|arguments| problem(arguments).is_none());
            let Some(arguments) = readable else {
                let member = format!("messages[{position}].tool_calls[{number}].function.arguments");
                return Err(HistoryError { member, problem: unreadable });
            };
            let from = raw.get().as_ptr().addr() - start;
            mended.push((from..from + raw.get().len(), Value::from(arguments).to_string()));
        }
    }
    if mended.is_empty() {
        return Ok(None);
    }
    let mut out = String::with_capacity(messages.len());
    let mut copied = 0;
    for (span, arguments) in mended {
        out.push_str(&messages[copied..span.start]);
        out.push_str(&arguments);
        copied = span.end;
    }
    out.push_str(&messages[copied..]);
    Ok(Some(out))
}

/// Why an engine cannot read these arguments: they are no JSON, hold half of a surrogate pair, are nested deeper than
/// 127 levels, or have a number that no double holds.
fn problem(arguments: &str) -> Option<String> {
    match serde_json::from_str::<Value>(arguments) {
        Err(problem) => Some(problem.to_string()),
        Ok(value) if has_finite_numbers(&value) => None,
        Ok(_) => Some("number out of range".to_owned()),
    }
}

fn has_finite_numbers(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(f64::is_finite),
        Value::Array(items) => items.iter().all(has_finite_numbers),
        Value::Object(members) => members.values().all(has_finite_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn arguments(call: &RawValue) -> Option<&RawValue> {
    let Call { function } = serde_json::from_str(call.get()).ok()?;
    let Function { arguments } = serde_json::from_str(function?.get()).ok()?;
    arguments
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    function: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}
