//! What stands around the `choices` of a chunk: the same text in nearly every chunk of a stream.

use super::json::Json;

/// A chunk without its `choices`.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    before: Box<str>,
    behind: Box<str>,
}

impl Envelope {
    /// `None` if the chunk has no `choices`, or has them twice.
    pub(super) fn of(chunk: Json<'_>) -> Option<Self> {
        let mut found = chunk.members().filter_map(|(name, value)| (name == "choices").then_some(value));
        let (Some(choices), None) = (found.next(), found.next()) else { return None };
        let chunk = chunk.text();
        let start = choices.text().as_ptr().addr() - chunk.as_ptr().addr();
        let end = start + choices.text().len();
        Some(Self { before: chunk[..start].into(), behind: chunk[end..].into() })
    }

    /// The `choices` of a chunk that is the same around them to the letter. The rest of it needs no look: it has
    /// been found valid, and what it says has been taken.
    pub(super) fn open<'a>(&self, chunk: &'a [u8]) -> Option<Json<'a>> {
        let rest = chunk.strip_prefix(self.before.as_bytes())?;
        Json::plain(rest.strip_suffix(self.behind.as_bytes())?)
    }
}
