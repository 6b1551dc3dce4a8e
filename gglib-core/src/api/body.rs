//! Lossless edits of a JSON request body.
//!
//! gglib forwards what a client wrote. Only the top-level members that it has to change are replaced; key
//! order, whitespace, duplicate keys and numbers that no machine type holds (`1e400`) stay byte for byte.

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value};
use thiserror::Error;

mod parse;

/// The deepest nesting that is passed on. llama-server parses recursively: a schema nested 10,000 deep, or a
/// tool's parameters nested 100,000 deep, kills it by a stack overflow (build b10434).
pub const MAX_DEPTH: usize = 512;

/// The most members at the top level that are looked at: a request has some dozens, and the place of each is noted.
pub const MAX_MEMBERS: usize = 10_000;

/// A request body that is one JSON object, with pending edits of its top-level members.
///
/// ```
/// use bytes::Bytes;
/// use gglib_core::api::body::JsonObject;
///
/// let mut body = JsonObject::parse(Bytes::from(r#"{ "model": "small", "seed": 1e400 }"#))?;
/// assert_eq!(body.str_member("model")?.as_deref(), Some("small"));
/// body.set("model", "smollm2");
/// body.set("stream", true);
/// assert_eq!(body.into_bytes(), r#"{ "model": "smollm2", "seed": 1e400,"stream":true }"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct JsonObject {
    source: Bytes,
    members: Vec<Member>,
    /// Where an absent member goes: behind the last one, or behind the brace of an empty object.
    end: usize,
    edits: Vec<Edit>,
}

/// A top-level member: its name with escapes resolved, and where its value stands in the source.
#[derive(Clone, Debug)]
struct Member {
    name: Box<str>,
    value: Range<usize>,
}

#[derive(Clone, Debug)]
struct Edit {
    name: Box<str>,
    value: Bytes,
}

/// Why a body is not one JSON object that can be passed on. Lines and columns (in bytes) count from 1.
#[derive(Debug, Error)]
pub enum BodyError {
    /// There is nothing but whitespace.
    #[error("the body is empty; send one JSON object")]
    Empty,
    /// JSON text is UTF-8 (RFC 8259 §8.1).
    #[error("the body is not UTF-8 at line {line} column {column}")]
    NotUtf8 {
        /// Line of the first wrong byte.
        line: usize,
        /// Column of the first wrong byte.
        column: usize,
    },
    /// Not JSON; the parser's message names line and column.
    #[error("the body is not valid JSON: {0}")]
    Syntax(serde_json::Error),
    /// JSON, but not an object.
    #[error("the body is {found}; send one JSON object")]
    NotAnObject {
        /// What it is, with its article.
        found: &'static str,
    },
    /// Half of a surrogate pair, as left by cutting a string in the middle of an emoji. llama-server answers
    /// 500 to it, which looks like a passing fault although it is none.
    #[error(
        "the escape at line {line} column {column} is half of a surrogate pair; the other half is missing"
    )]
    LoneSurrogate {
        /// Line of the escape.
        line: usize,
        /// Column of the escape.
        column: usize,
    },
    /// More members than [`MAX_MEMBERS`].
    #[error("the body has more than {MAX_MEMBERS} members")]
    TooManyMembers,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("the body is nested deeper than {MAX_DEPTH} levels at line {line} column {column}")]
    TooDeep {
        /// Line of the bracket that is one too many.
        line: usize,
        /// Column of the bracket that is one too many.
        column: usize,
    },
}

/// A top-level member has the wrong type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{member}` must be {expected}, not {found}")]
pub struct MemberError {
    /// The member's name.
    pub member: String,
    /// What it must be, with its article.
    pub expected: &'static str,
    /// What it is, with its article; a number as it was written.
    pub found: String,
}

impl JsonObject {
    /// Checks that `source` is one JSON object and notes where its members are.
    pub fn parse(source: Bytes) -> Result<Self, BodyError> {
        let text = str::from_utf8(&source).map_err(|error| {
            let (line, column) = parse::position(&source, error.valid_up_to());
            BodyError::NotUtf8 { line, column }
        })?;
        let start = text.find(|first: char| !first.is_ascii_whitespace()).ok_or(BodyError::Empty)?;
        let first = text.as_bytes()[start];
        if first != b'{' {
            serde_json::from_str::<&RawValue>(text).map_err(BodyError::Syntax)?;
            return Err(BodyError::NotAnObject { found: kind_of(first) });
        }
        let members = parse::members(text)?;
        parse::check(text)?;
        let end = members.last().map_or(start + 1, |member| member.value.end);
        Ok(Self { members, end, edits: Vec::new(), source })
    }

    /// The JSON text of a member's value, edits included; of a repeated member the last one, which is what
    /// llama-server and most parsers take.
    pub fn raw_member(&self, name: &str) -> Option<&[u8]> {
        if let Some(edit) = self.edits.iter().find(|edit| *edit.name == *name) {
            return Some(&edit.value);
        }
        let member = self.members.iter().rfind(|member| *member.name == *name)?;
        Some(&self.source[member.value.clone()])
    }

    /// A string; `None` when the member is absent or null.
    pub fn str_member(&self, name: &str) -> Result<Option<Cow<'_, str>>, MemberError> {
        self.typed_member(name, "a string", |raw| {
            let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
            if inner.contains(&b'\\') {
                serde_json::from_slice(raw).ok().map(Cow::Owned)
            } else {
                str::from_utf8(inner).ok().map(Cow::Borrowed)
            }
        })
    }

    /// A boolean; `None` when the member is absent or null.
    pub fn bool_member(&self, name: &str) -> Result<Option<bool>, MemberError> {
        self.typed_member(name, "a boolean", |raw| match raw {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        })
    }

    /// A non-negative integer of at most 64 bits; `None` when the member is absent or null.
    pub fn u64_member(&self, name: &str) -> Result<Option<u64>, MemberError> {
        self.typed_member(name, "a non-negative integer", |raw| str::from_utf8(raw).ok()?.parse().ok())
    }

    /// An object, to be read or edited and [set](Self::set_object) again; `None` when the member is absent or
    /// null.
    pub fn object_member(&self, name: &str) -> Result<Option<Self>, MemberError> {
        self.typed_member(name, "an object", |raw| Self::parse(Bytes::copy_from_slice(raw)).ok())
    }

    /// Replaces the value of every member called `name`, or adds the member behind the last one.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.edit(name, value.into().to_string().into());
    }

    /// Like [`set`](Self::set), with JSON text that is taken as it stands.
    pub fn set_raw(&mut self, name: &str, value: &RawValue) {
        self.edit(name, Bytes::copy_from_slice(value.get().as_bytes()));
    }

    /// Like [`set`](Self::set), with an object and its edits.
    pub fn set_object(&mut self, name: &str, value: Self) {
        self.edit(name, value.into_bytes());
    }

    /// Adds an element behind the last one of the array `name`, which otherwise stays as it is. The error: there is
    /// no such array.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use gglib_core::api::body::JsonObject;
    ///
    /// let mut body = JsonObject::parse(Bytes::from(r#"{"stop":[ "a", "b" ]}"#))?;
    /// body.append("stop", "c")?;
    /// assert_eq!(body.into_bytes(), r#"{"stop":[ "a", "b","c" ]}"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append(&mut self, name: &str, element: impl Into<Value>) -> Result<(), MemberError> {
        let raw = self.raw_member(name).unwrap_or(b"null");
        let error = || MemberError { member: name.to_owned(), expected: "an array", found: describe(raw) };
        let items = raw.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).ok_or_else(error)?;
        let end = items.trim_ascii_end().len();
        let comma: &[u8] = if end == 0 { b"" } else { b"," };
        let element = element.into().to_string();
        let value = [b"[", &items[..end], comma, element.as_bytes(), &items[end..], b"]"].concat();
        self.edit(name, value.into());
        Ok(())
    }

    /// The body with its edits: the source itself when there are none, else one new allocation.
    pub fn into_bytes(self) -> Bytes {
        if self.edits.is_empty() {
            return self.source;
        }
        let absent =
            self.edits.iter().filter(|edit| self.members.iter().all(|member| member.name != edit.name));
        let mut added = Vec::new();
        for (position, edit) in absent.enumerate() {
            if position > 0 || !self.members.is_empty() {
                added.push(b',');
            }
            added.extend_from_slice(Value::from(&*edit.name).to_string().as_bytes());
            added.push(b':');
            added.extend_from_slice(&edit.value);
        }
        let replaced = self.members.iter().filter_map(|member| {
            let edit = self.edits.iter().find(|edit| edit.name == member.name)?;
            Some((&member.value, &*edit.value))
        });

        let longest = replaced.clone().map(|(_, value)| value.len()).sum::<usize>();
        let mut out = Vec::with_capacity(self.source.len() + longest + added.len());
        let mut copied = 0;
        for (span, value) in replaced {
            out.extend_from_slice(&self.source[copied..span.start]);
            out.extend_from_slice(value);
            copied = span.end;
        }
        out.extend_from_slice(&self.source[copied..self.end]);
        out.extend_from_slice(&added);
        out.extend_from_slice(&self.source[self.end..]);
        out.into()
    }

    fn edit(&mut self, name: &str, value: Bytes) {
        match self.edits.iter_mut().find(|edit| *edit.name == *name) {
            Some(edit) => edit.value = value,
            None => self.edits.push(Edit { name: name.into(), value }),
        }
    }

    fn typed_member<'a, T>(
        &'a self,
        name: &str,
        expected: &'static str,
        read: impl FnOnce(&'a [u8]) -> Option<T>,
    ) -> Result<Option<T>, MemberError> {
        match self.raw_member(name) {
            None | Some(b"null") => Ok(None),
            Some(raw) => read(raw).map(Some).ok_or_else(|| MemberError {
                member: name.to_owned(),
                expected,
                found: describe(raw),
            }),
        }
    }
}

/// The elements of the array in `json`, valid JSON text, one after the other; nothing else has any. A list of them all
/// can be many times as long as the text.
///
/// ```
/// use gglib_core::api::body::items;
///
/// let mut items = items("[ 1e400 ,\"a\"]").map(|item| item.get());
/// assert_eq!([items.next(), items.next(), items.next()], [Some("1e400"), Some("\"a\""), None]);
/// ```
pub fn items(json: &str) -> impl Iterator<Item = &RawValue> {
    let mut rest = json.trim_ascii_start().strip_prefix('[');
    iter::from_fn(move || {
        let text = rest?;
        let mut values = Deserializer::from_str(text).into_iter();
        let item = values.next()?.ok()?;
        rest = text[values.byte_offset()..].trim_ascii_start().strip_prefix(',');
        Some(item)
    })
}

/// What a JSON value is, by its first byte.
fn kind_of(first: u8) -> &'static str {
    match first {
        b'{' => "an object",
        b'[' => "an array",
        b'"' => "a string",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    }
}

fn describe(value: &[u8]) -> String {
    match kind_of(value[0]) {
        "a number" => String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned(),
        other => other.to_owned(),
    }
}
