//! One choice, and the message and calls in it.

use serde_json::{Map, Value};

use super::merge;

/// What has come of one choice.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// In order of appearance; `message` holds the place of the message.
    members: Map<String, Value>,
    message: Option<Message>,
}

#[derive(Clone, Debug, Default)]
struct Message {
    /// In order of appearance; `tool_calls` holds the place of the calls.
    members: Map<String, Value>,
    calls: Vec<Call>,
}

#[derive(Clone, Debug)]
struct Call {
    index: Option<u64>,
    members: Map<String, Value>,
}

impl Choice {
    pub(super) fn new(index: u64) -> Self {
        Self { members: Map::from_iter([("index".to_owned(), index.into())]), message: None }
    }

    pub(super) fn has_delta(&self) -> bool {
        self.message.is_some()
    }

    pub(super) fn push(&mut self, choice: Map<String, Value>) {
        for (name, value) in choice {
            match (name.as_str(), value) {
                ("delta", Value::Object(delta)) => {
                    self.members.entry("message").or_insert(Value::Null);
                    self.message.get_or_insert_default().push(delta);
                }
                ("logprobs", Value::Object(logprobs)) => {
                    let collected = merge::object(&mut self.members, &name);
                    for (name, value) in logprobs {
                        merge::extend(collected, name, value);
                    }
                }
                ("text", value) => merge::append(&mut self.members, name, value),
                (_, value) => merge::keep_last(&mut self.members, name, value),
            }
        }
    }

    pub(super) fn into_chat(self) -> Value {
        let mut members = self.members;
        members.insert("message".to_owned(), self.message.unwrap_or_default().into_value());
        Value::Object(members)
    }

    pub(super) fn into_text(self) -> Value {
        Value::Object(self.members)
    }
}

impl Message {
    fn push(&mut self, delta: Map<String, Value>) {
        for (name, value) in delta {
            match (name.as_str(), value) {
                ("role", value) => merge::keep_first(&mut self.members, name, value),
                ("content" | "reasoning_content" | "reasoning" | "refusal", value) => {
                    merge::append(&mut self.members, name, value);
                }
                ("tool_calls", Value::Array(fragments)) => {
                    for fragment in fragments {
                        if let Value::Object(fragment) = fragment {
                            self.push_call(fragment);
                        }
                    }
                }
                ("function_call", Value::Object(fragment)) => {
                    push_function(merge::object(&mut self.members, &name), fragment);
                }
                (_, value) => merge::extend(&mut self.members, name, value),
            }
        }
    }

    /// Without an `index`, a fragment with a new `id` begins a call and any other continues the last one.
    fn push_call(&mut self, fragment: Map<String, Value>) {
        self.members.entry("tool_calls").or_insert(Value::Null);
        let index = fragment.get("index").and_then(Value::as_u64);
        let id = fragment.get("id").filter(|id| !id.is_null());
        let position = match (index, id) {
            (Some(_), _) => self.calls.iter().position(|call| call.index == index),
            (None, Some(_)) => self.calls.iter().position(|call| call.members.get("id") == id),
            (None, None) => self.calls.len().checked_sub(1),
        };
        let position = position.unwrap_or_else(|| {
            self.calls.push(Call { index, members: Map::new() });
            self.calls.len() - 1
        });
        self.calls[position].push(fragment);
    }

    fn into_value(self) -> Value {
        let Self { members, mut calls } = self;
        calls.sort_by_key(|call| call.index);
        let mut calls: Vec<_> = calls.into_iter().map(|call| Value::Object(call.members)).collect();

        let refused = members.get("refusal").is_some_and(|refusal| !merge::is_blank(refusal));
        let speechless = refused || !calls.is_empty() || members.contains_key("function_call");
        let content = if speechless { Value::Null } else { "".into() };
        let mut message =
            Map::from_iter([("role".to_owned(), "assistant".into()), ("content".to_owned(), content)]);
        for (name, value) in members {
            match name.as_str() {
                "role" | "content" if merge::is_blank(&value) => {}
                "tool_calls" if !calls.is_empty() => {
                    message.insert(name, Value::Array(std::mem::take(&mut calls)));
                }
                _ => {
                    message.insert(name, value);
                }
            }
        }
        Value::Object(message)
    }
}

impl Call {
    fn push(&mut self, fragment: Map<String, Value>) {
        for (name, value) in fragment {
            match (name.as_str(), value) {
                ("index", _) => {}
                ("id" | "type", value) => merge::keep_first(&mut self.members, name, value),
                ("function", Value::Object(fragment)) => {
                    push_function(merge::object(&mut self.members, &name), fragment);
                }
                (_, value) => merge::keep_last(&mut self.members, name, value),
            }
        }
    }
}

/// The name is not an increment: servers that repeat it would double it. Arguments are a string of JSON; where
/// a server sends them as an object, its text is taken.
fn push_function(function: &mut Map<String, Value>, fragment: Map<String, Value>) {
    for (name, value) in fragment {
        match (name.as_str(), value) {
            ("name", value) => merge::keep_first(function, name, value),
            ("arguments", value @ Value::Object(_)) => {
                merge::append(function, name, value.to_string().into());
            }
            ("arguments", value) => merge::append(function, name, value),
            (_, value) => merge::keep_last(function, name, value),
        }
    }
}
