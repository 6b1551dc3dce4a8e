//! An object in the making, and how two values of one member become one.

use super::json::{Json, quoted};

/// Members by name, in order of appearance.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(Vec<(Box<str>, Part)>);

/// The value of a member.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// JSON text as it came, grown in place where it comes in increments.
    Text(String),
    /// An object whose members are collected one by one.
    Object(Members),
}

impl Members {
    pub(super) fn get(&self, name: &str) -> Option<&Part> {
        self.0.iter().find_map(|(own, part)| (**own == *name).then_some(part))
    }

    /// The place of `name`, with null in it if it is new.
    pub(super) fn entry(&mut self, name: &str) -> &mut Part {
        let position = self.0.iter().position(|(own, _)| **own == *name).unwrap_or_else(|| {
            self.0.push((name.into(), Part::text(Json::NULL)));
            self.0.len() - 1
        });
        &mut self.0[position].1
    }

    pub(super) fn set(&mut self, name: &str, part: Part) {
        *self.entry(name) = part;
    }

    pub(super) fn into_json(self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        for (position, (name, part)) in self.0.iter().enumerate() {
            if position > 0 {
                out.push(',');
            }
            out.push_str(&quoted(name));
            out.push(':');
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Object(members) => members.write(out),
            }
        }
        out.push('}');
    }
}

impl IntoIterator for Members {
    type Item = (Box<str>, Part);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Part {
    pub(super) fn text(json: Json<'_>) -> Self {
        Self::Text(json.text().to_owned())
    }

    /// An array of objects.
    pub(super) fn array(items: impl IntoIterator<Item = Members>) -> Self {
        let mut out = "[".to_owned();
        for (position, members) in items.into_iter().enumerate() {
            if position > 0 {
                out.push(',');
            }
            members.write(&mut out);
        }
        out.push(']');
        Self::Text(out)
    }

    /// What it is, unless it is collected member by member.
    pub(super) fn json(&self) -> Option<Json<'_>> {
        match self {
            Self::Text(text) => Some(Json::of(text)),
            Self::Object(_) => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        self.json().is_some_and(Json::is_null)
    }

    /// Whether it says nothing.
    pub(super) fn is_blank(&self) -> bool {
        self.json().is_some_and(Json::is_blank)
    }

    /// The object, made if it is something else.
    pub(super) fn object(&mut self) -> &mut Members {
        match self {
            Self::Object(members) => members,
            Self::Text(_) => {
                *self = Self::Object(Members::default());
                self.object()
            }
        }
    }

    /// The last value that is not null wins.
    pub(super) fn keep_last(&mut self, value: Json<'_>) {
        if !value.is_null() && self.json() != Some(value) {
            *self = Self::text(value);
        }
    }

    /// The first value that says something wins, for what servers repeat or blank out in later fragments.
    pub(super) fn keep_first(&mut self, value: Json<'_>) {
        if self.is_blank() {
            self.keep_last(value);
        }
    }

    /// Strings and arrays are increments, joined as text, where quotes or brackets meet; anything else as
    /// [`keep_last`](Self::keep_last).
    pub(super) fn append(&mut self, value: Json<'_>) {
        match self {
            Self::Text(text) if value.is_string() && Json::of(text).is_string() => {
                text.pop();
                text.push_str(&value.text()[1..]);
            }
            _ => self.extend(value),
        }
    }

    /// Arrays are increments; anything else as [`keep_last`](Self::keep_last).
    pub(super) fn extend(&mut self, value: Json<'_>) {
        match self {
            Self::Text(text) if value.is_array() && Json::of(text).is_array() => {
                if value.items().next().is_some() {
                    text.pop();
                    if !text.trim_end().ends_with('[') {
                        text.push(',');
                    }
                    text.push_str(&value.text()[1..]);
                }
            }
            _ => self.keep_last(value),
        }
    }
}
