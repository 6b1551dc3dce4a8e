//! Calls that a model wrote as text.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::turn::Call;

pub(super) const OPEN: &str = "<tool_call>";
pub(super) const CLOSE: &str = "</tool_call>";

/// The calls between `<tool_call>` and `</tool_call>` that are whole: an object with `name` and `arguments`.
pub(super) fn calls(text: &str) -> Vec<Call> {
    text.split(OPEN).skip(1).filter_map(|rest| call(rest.split(CLOSE).next()?)).collect()
}

fn call(text: &str) -> Option<Call> {
    #[derive(Deserialize)]
    struct Written<'a> {
        name: String,
        #[serde(borrow)]
        arguments: &'a RawValue,
    }
    let Written { name, arguments } = serde_json::from_str(text).ok()?;
    Some(Call { name, arguments: arguments.get().to_owned(), ..Call::default() })
}
