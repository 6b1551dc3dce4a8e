//! The message of a choice, and the calls in it.

use super::json::{Json, quoted};
use super::members::{Members, Part};

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

    /// Without an `index`, a fragment with a new `id` begins a call and any other continues the last one. With one it
    /// belongs to the call of that index, unless it names a function and has another `id`: some servers number all calls 0.
    fn push_call(&mut self, fragment: Json<'_>) {
        self.members.entry("tool_calls");
        let index = fragment.member("index").and_then(Json::as_u64);
        let id = fragment.member("id").filter(|id| !id.is_null());
        let position =
            match (index, id) {
                (Some(_), id) => self.calls.iter().rposition(|call| call.index == index).filter(|position| {
                    !(names_function(fragment) && self.calls[*position].has_another_id(id))
                }),
                (None, Some(id)) => {
                    self.calls.iter().position(|call| call.id().is_some_and(|own| own.is_same(id)))
                }
                (None, None) => self.calls.len().checked_sub(1),
            };
        let position = position.unwrap_or_else(|| {
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

fn names_function(fragment: Json<'_>) -> bool {
    fragment
        .member("function")
        .and_then(|function| function.member("name"))
        .is_some_and(|name| !name.is_null())
}

impl Call {
    fn has_another_id(&self, id: Option<Json<'_>>) -> bool {
        self.id().zip(id).is_some_and(|(own, id)| !own.is_same(id))
    }

    fn id(&self) -> Option<Json<'_>> {
        self.members.get("id").and_then(Part::json)
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
