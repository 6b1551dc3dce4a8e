//! One pass for the syntax and the members' places, one for what the syntax allows and engines do not survive.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{BodyError, MAX_DEPTH, MAX_MEMBERS, Member};

/// The top-level members of the object in `text`.
///
/// `RawValue` skips a value iteratively, with one byte of heap per level, so no nesting overflows the stack.
pub(super) fn members(text: &str) -> Result<Vec<Member>, BodyError> {
    let Entries(entries) = serde_json::from_str(text).map_err(BodyError::Syntax)?;
    if entries.len() > MAX_MEMBERS {
        return Err(BodyError::TooManyMembers);
    }
    let start = text.as_ptr().addr();
    let member = |(name, raw): (String, &RawValue)| {
        let from = raw.get().as_ptr().addr() - start;
        Member { name: name.into(), value: from..from + raw.get().len() }
    };
    Ok(entries.into_iter().map(member).collect())
}

/// Rejects nesting beyond the limit and halves of surrogate pairs. `text` is known to be valid JSON.
pub(super) fn check(text: &str) -> Result<(), BodyError> {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'[' | b'{' if depth == MAX_DEPTH => {
                let (line, column) = position(bytes, at);
                return Err(BodyError::TooDeep { line, column });
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b'"' => at = end_of_string(text, at + 1)?,
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Line and column of a byte, both counted from 1, the column in bytes.
pub(super) fn position(bytes: &[u8], at: usize) -> (usize, usize) {
    let lines = bytes[..at].split(|&byte| byte == b'\n');
    let (line, last) = lines.enumerate().last().unwrap_or_default();
    (line + 1, last.len() + 1)
}

/// The closing quote of the string whose content starts at `at`.
fn end_of_string(text: &str, mut at: usize) -> Result<usize, BodyError> {
    loop {
        let words = text.as_bytes()[at..].as_chunks::<8>().0;
        at += 8 * words.iter().take_while(|word| !has_special(**word)).count();
        while !matches!(text.as_bytes()[at], b'"' | b'\\') {
            at += 1;
        }
        if text.as_bytes()[at] == b'"' {
            return Ok(at);
        }
        at += match (escaped_unit(text, at), escaped_unit(text, at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                let (line, column) = position(text.as_bytes(), at);
                return Err(BodyError::LoneSurrogate { line, column });
            }
            (Some(_), _) => 6,
            (None, _) => 2,
        };
    }
}

/// Whether a quote or a backslash is among eight bytes, without looking at them one by one (Mycroft's test for a
/// zero byte, on the bytes that differ from the one sought).
fn has_special(bytes: [u8; 8]) -> bool {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let word = u64::from_ne_bytes(bytes);
    let has = |sought| {
        let differing = word ^ u64::from_ne_bytes([sought; 8]);
        differing.wrapping_sub(LOW) & !differing & HIGH != 0
    };
    has(b'"') || has(b'\\')
}

/// The UTF-16 unit of the `\uXXXX` that stands at `at`, if one does.
fn escaped_unit(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

/// No more of them than tell that there are too many.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while entries.len() <= MAX_MEMBERS
            && let Some(entry) = map.next_entry()?
        {
            entries.push(entry);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Entries(entries))
    }
}
