//! The message of a choice, and the calls in it.

use std::borrow::Cow;

use super::json::{Json, quoted};
use super::members::{Members, Part};
use crate::api::call::CallLabel;

/// What the deltas of one choice add up to.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    /// `tool_calls` holds the place of the calls.
    members: Members,
    calls: Vec<Call>,
}

#[derive(Clone, Debug)]
struct Call {
    index: Option<u64>,
    members: Members,
}

impl Message {
    pub(super) fn push(&mut self, delta: Json<'_>) {
        for (name, value) in delta.members() {
            match &*name {
                "role" => self.members.entry(&name).keep_first(value),
                "content" | "reasoning_content" | "reasoning" | "refusal" => {
                    self.members.entry(&name).append(value);
                }
                "tool_calls" if value.is_array() => {
                    value.items().filter(|item| item.is_object()).for_each(|item| self.push_call(item));
                }
                "function_call" if value.is_object() => {
                    push_function(self.members.entry(&name).object(), value);
                }
                _ => self.members.entry(&name).extend(value),
            }
        }
    }

    fn push_call(&mut self, fragment: Json<'_>) {
        self.members.entry("tool_calls");
        let index = fragment.member("index").and_then(Json::as_u64);
        let name = fragment.member("function").and_then(|function| function.member("name"));
        let name = name.and_then(Json::as_str);
        let label = CallLabel::new(index, fragment.member("id").and_then(id_text), name.as_deref());
        let position = label.position_in(self.calls.iter().map(Call::label)).unwrap_or_else(|| {
            self.calls.push(Call { index, members: Members::default() });
            self.calls.len() - 1
        });
        self.calls[position].push(fragment);
    }

    pub(super) fn into_members(self) -> Members {
        let Self { members, mut calls } = self;
        calls.sort_by_key(|call| call.index);

        let refused = members.get("refusal").is_some_and(|refusal| !refusal.is_blank());
        let speechless = refused || !calls.is_empty() || members.get("function_call").is_some();
        let content = if speechless { Json::NULL } else { Json::EMPTY_STRING };
        let mut message = Members::default();
        message.set("role", Part::Text(quoted("assistant")));
        message.set("content", Part::text(content));
        for (name, part) in members {
            match &*name {
                "role" | "content" if part.is_blank() => {}
                "tool_calls" if !calls.is_empty() => {
                    message.set(&name, Part::array(calls.drain(..).map(|call| call.members)));
                }
                _ => message.set(&name, part),
            }
        }
        message
    }
}

/// An `id`, which should be a string.
fn id_text(id: Json<'_>) -> Option<Cow<'_, str>> {
    (!id.is_null()).then(|| id.as_str().unwrap_or(Cow::Borrowed(id.text())))
}

impl Call {
    fn label(&self) -> CallLabel<'_> {
        CallLabel::new(self.index, self.members.get("id").and_then(Part::json).and_then(id_text), None)
    }

    fn push(&mut self, fragment: Json<'_>) {
        for (name, value) in fragment.members() {
            match &*name {
                "index" => {}
                "id" | "type" => self.members.entry(&name).keep_first(value),
                "function" if value.is_object() => {
                    push_function(self.members.entry(&name).object(), value);
                }
                _ => self.members.entry(&name).keep_last(value),
            }
        }
    }
}

/// The name is not an increment: servers that repeat it would double it. Arguments are a string of JSON; where
/// a server sends them as an object, its text is taken.
fn push_function(function: &mut Members, fragment: Json<'_>) {
    for (name, value) in fragment.members() {
        let part = function.entry(&name);
        match &*name {
            "name" => part.keep_first(value),
            "arguments" if value.is_object() => part.append(Json::of(&quoted(value.text()))),
            "arguments" => part.append(value),
            _ => part.keep_last(value),
        }
    }
}
