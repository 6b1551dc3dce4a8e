//! The metadata: every entry is stepped over, the few that matter are kept.

use std::collections::BTreeMap;

use super::cursor::{Cursor, Stop};
use super::{GgufError, limit};

/// Longest text that is kept. Architectures and types of files are short; templates are only noticed.
const KEPT_TEXT: usize = 256;

/// Most entries that are kept: one file has one architecture, or two with its projector's.
const MOST_KEPT: usize = 256;

/// Entries that are kept, by the end of their key; in front stands the architecture.
const KEPT: &[&str] = &[
    "general.architecture",
    "general.alignment",
    "general.file_type",
    "general.name",
    "general.type",
    "tokenizer.chat_template",
    "tokenizer.ggml.tokens",
    "split.no",
    "split.count",
    ".vocab_size",
    ".block_count",
    ".context_length",
    ".embedding_length",
    ".feed_forward_length",
    ".expert_count",
    ".expert_used_count",
    ".expert_feed_forward_length",
    ".attention.head_count",
    ".attention.head_count_kv",
    ".attention.key_length",
    ".attention.value_length",
    ".attention.key_length_swa",
    ".attention.value_length_swa",
    ".attention.sliding_window",
    ".attention.sliding_window_pattern",
];

/// One kept value.
#[derive(Debug)]
pub(super) enum Value {
    Number(u64),
    /// At most [`KEPT_TEXT`] bytes of it.
    Text(String),
    /// The elements of a short array of numbers or booleans, 0 for a negative one; the length alone of any other.
    Array {
        len: u64,
        numbers: Vec<u64>,
    },
    /// A float, or a negative number where none makes sense.
    Other,
}

/// The kept entries.
#[derive(Debug, Default)]
pub(super) struct Metadata(BTreeMap<String, Value>);

impl Metadata {
    pub(super) fn read(cursor: &mut Cursor<'_>, entries: u64) -> Result<Self, Stop> {
        let mut kept = BTreeMap::new();
        for _ in 0..entries {
            let key = cursor.name()?;
            let kind = cursor.u32()?;
            if is_kept(key) {
                if kept.len() == MOST_KEPT {
                    return Err(cursor.broken("more architectures than a file can have"));
                }
                kept.insert(key.to_owned(), value(cursor, kind)?);
            } else {
                skip(cursor, kind, 0)?;
            }
        }
        Ok(Self(kept))
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        match self.0.get(key)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.0.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Of the tensors' data, in bytes.
    pub(super) fn alignment(&self) -> Result<u64, GgufError> {
        match self.value("general.alignment") {
            None => Ok(32),
            Some(Value::Number(number)) if number.is_power_of_two() && *number <= 1 << 20 => Ok(*number),
            Some(_) => Err(GgufError::Missing { key: "general.alignment".to_owned() }),
        }
    }
}

fn is_kept(key: &str) -> bool {
    KEPT.iter().any(|kept| match kept.strip_prefix('.') {
        Some(_) => key.len() <= KEPT_TEXT && key.ends_with(kept),
        None => key == *kept,
    })
}

fn value(cursor: &mut Cursor<'_>, kind: u32) -> Result<Value, Stop> {
    Ok(match kind {
        STRING => {
            let text = cursor.string()?;
            Value::Text(String::from_utf8_lossy(&text[..text.len().min(KEPT_TEXT)]).into_owned())
        }
        ARRAY => {
            let (element, len) = array_head(cursor)?;
            let mut numbers = Vec::new();
            if len <= u64::from(limit::LAYERS) && scalar_size(element).is_some() {
                for _ in 0..len {
                    numbers.push(number(cursor, element)?.unwrap_or(0));
                }
            } else {
                skip_elements(cursor, element, len, 1)?;
            }
            Value::Array { len, numbers }
        }
        kind => number(cursor, kind)?.map_or(Value::Other, Value::Number),
    })
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Bytes of a scalar of this type; `None` for texts, arrays and unknown types.
fn scalar_size(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// A scalar as a whole number; `None` when it is a float or negative.
fn number(cursor: &mut Cursor<'_>, kind: u32) -> Result<Option<u64>, Stop> {
    Ok(match kind {
        0 | 7 => Some(u64::from(u8::from_le_bytes(cursor.array()?))),
        1 => u64::try_from(i8::from_le_bytes(cursor.array()?)).ok(),
        2 => Some(u64::from(u16::from_le_bytes(cursor.array()?))),
        3 => u64::try_from(i16::from_le_bytes(cursor.array()?)).ok(),
        4 => Some(u64::from(cursor.u32()?)),
        5 => u64::try_from(i32::from_le_bytes(cursor.array()?)).ok(),
        10 => Some(cursor.u64()?),
        11 => u64::try_from(i64::from_le_bytes(cursor.array()?)).ok(),
        kind => {
            skip(cursor, kind, 0)?;
            None
        }
    })
}

fn array_head(cursor: &mut Cursor<'_>) -> Result<(u32, u64), Stop> {
    Ok((cursor.u32()?, cursor.count("array elements", limit::ARRAY)?))
}

fn skip(cursor: &mut Cursor<'_>, kind: u32, depth: u32) -> Result<(), Stop> {
    match kind {
        STRING => cursor.string().map(|_| ()),
        ARRAY if depth < limit::NESTING => {
            let (element, len) = array_head(cursor)?;
            skip_elements(cursor, element, len, depth + 1)
        }
        ARRAY => Err(cursor.broken("arrays nested too deeply")),
        kind => match scalar_size(kind) {
            Some(size) => cursor.take(size).map(|_| ()),
            None => Err(cursor.broken("a value of unknown type")),
        },
    }
}

fn skip_elements(cursor: &mut Cursor<'_>, element: u32, len: u64, depth: u32) -> Result<(), Stop> {
    if let Some(size) = scalar_size(element) {
        return cursor.take(size * len).map(|_| ());
    }
    for _ in 0..len {
        skip(cursor, element, depth)?;
    }
    Ok(())
}
