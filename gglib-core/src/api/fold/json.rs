//! JSON text, judged once and then taken apart where it stands.

use std::borrow::Cow;
use std::iter;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

mod scan;

/// A valid JSON value as it was written, without whitespace around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    pub(super) const EMPTY_STRING: Json<'static> = Json("\"\"");
    pub(super) const NULL: Json<'static> = Json("null");

    /// The object in `text`. The error: it is none, is nested deeper than 127 levels, or holds half of a surrogate
    /// pair, which many a parser of the answer would fail on.
    pub(super) fn object(text: &'a [u8]) -> Result<Self, serde_json::Error> {
        if let Some(object) = Self::plain(text).filter(|value| value.is_object()) {
            return Ok(object);
        }
        serde_json::from_slice::<Map<String, Value>>(text)?;
        serde_json::from_slice::<&RawValue>(text).map(|raw| Self(raw.get()))
    }

    /// The value in `text`, unless only building it could tell whether it is sound: skipping a value, which is
    /// cheap, checks neither depth nor surrogates.
    pub(super) fn plain(text: &'a [u8]) -> Option<Self> {
        let text = serde_json::from_slice::<&RawValue>(text).ok()?.get();
        let surrogates = text.contains("\\ud") || text.contains("\\uD");
        (!surrogates && scan::brackets(text) < 100).then_some(Self(text))
    }

    /// Text that is known to be one JSON value.
    pub(super) fn of(text: &'a str) -> Self {
        Self(text)
    }

    pub(super) fn text(self) -> &'a str {
        self.0
    }

    pub(super) fn is_null(self) -> bool {
        self == Self::NULL
    }

    /// Whether it says nothing.
    pub(super) fn is_blank(self) -> bool {
        self.is_null() || self == Self::EMPTY_STRING
    }

    pub(super) fn is_string(self) -> bool {
        self.0.starts_with('"')
    }

    pub(super) fn is_array(self) -> bool {
        self.0.starts_with('[')
    }

    pub(super) fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    pub(super) fn as_u64(self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// A string without its quotes and escapes.
    pub(super) fn as_str(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if inner.as_bytes().contains(&b'\\') {
            serde_json::from_str(self.0).ok()
        } else {
            Some(Cow::Borrowed(inner))
        }
    }

    /// The value of an object's member.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        self.members().find_map(|(own, value)| (own == name).then_some(value))
    }

    /// The members of an object in order; nothing else has any.
    pub(super) fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Self)> {
        let mut parts = self.parts('{', '}');
        iter::from_fn(move || Some((parts.next()?.as_str()?, parts.next()?)))
    }

    /// The items of an array in order; nothing else has any.
    pub(super) fn items(self) -> impl Iterator<Item = Self> {
        self.parts('[', ']')
    }

    fn parts(self, open: char, close: char) -> impl Iterator<Item = Self> {
        let inner = self.0.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        let mut rest = inner.unwrap_or_default();
        iter::from_fn(move || {
            let next = &rest[scan::gap_len(rest)..];
            let (value, behind) = next.split_at(scan::value_len(next));
            rest = behind;
            (!value.is_empty()).then_some(Self(value))
        })
    }
}

/// `text` as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
