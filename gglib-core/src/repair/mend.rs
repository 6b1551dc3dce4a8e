//! Mending what stands around values: fences, surplus commas, missing braces. Values are left alone.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// How an answer ended, as far as it says whether anything may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model came to an end by itself.
    Complete,
    /// It was cut off (`finish_reason` is `length`), or nobody knows: what is missing may be more than a brace.
    CutOff,
}

/// The arguments of a call as one JSON object: as they are if they are one, mended where only one reading is
/// possible, else `None`.
///
/// - nothing at all is the object without members (unless cut off);
/// - a Markdown fence around the object goes;
/// - an object in a JSON string is taken out of it;
/// - a comma behind the last member or item goes;
/// - braces missing at the very end are added (unless cut off), if a whole value stands there and nothing but objects
///   is open. Behind a number or in an array more might have come, so these are left alone.
///
/// ```
/// use gglib_core::repair::{Ending, mend};
///
/// let fenced = "```json\n{\"city\": \"Berlin\",}\n```";
/// assert_eq!(mend(fenced, Ending::Complete).as_deref(), Some("{\"city\": \"Berlin\"}"));
/// assert_eq!(mend("{\"city\": \"Ber", Ending::Complete), None);
/// ```
pub fn mend(arguments: &str, ending: Ending) -> Option<Cow<'_, str>> {
    if is_object(arguments) {
        return Some(Cow::Borrowed(arguments));
    }
    let text = without_fence(arguments.trim());
    if text.is_empty() {
        return (ending == Ending::Complete && arguments.trim().is_empty()).then_some(Cow::Borrowed("{}"));
    }
    if let Ok(inner) = serde_json::from_str::<String>(text) {
        return is_object(&inner).then_some(Cow::Owned(inner));
    }
    let mended = punctuated(text, ending)?;
    is_object(&mended).then_some(mended)
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// The inside of a Markdown fence around the whole text.
fn without_fence(text: &str) -> &str {
    let fenced = || {
        let inner = text.strip_prefix("```")?.strip_suffix("```")?;
        Some(inner.strip_prefix("json").unwrap_or(inner).trim())
    };
    fenced().unwrap_or(text)
}

/// The text without commas before closing brackets, and with the braces that its end lacks.
fn punctuated(text: &str, ending: Ending) -> Option<Cow<'_, str>> {
    let bytes = text.as_bytes();
    let mut open = Vec::new();
    let mut surplus = Vec::new();
    let mut before = [b'{'; 2]; // The last two bytes that count, the later one last.
    let mut comma = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at += string_len(&bytes[at..])? - 1,
            b'{' | b'[' => open.push(byte),
            b'}' | b']' => {
                open.pop()?;
                if before[1] == b',' && !matches!(before[0], b'{' | b'[' | b',' | b':') {
                    surplus.push(comma);
                }
            }
            b',' => comma = at,
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            before = [before[1], byte];
        }
        at += 1;
    }
    let whole_value = matches!(before[1], b'"' | b'}' | b']' | b'a'..=b'z');
    if !open.is_empty() && (ending == Ending::CutOff || !whole_value || open.contains(&b'[')) {
        return None;
    }
    if surplus.is_empty() && open.is_empty() {
        return Some(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len() + open.len());
    let mut copied = 0;
    for comma in surplus {
        out.push_str(&text[copied..comma]);
        copied = comma + 1;
    }
    out.push_str(&text[copied..]);
    out.extend(open.iter().map(|_| '}'));
    Some(Cow::Owned(out))
}

/// The length in bytes of the string at the start, quotes included; `None` if it does not end.
fn string_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}
