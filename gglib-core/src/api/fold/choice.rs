//! One choice.

use super::json::Json;
use super::members::{Members, Part};
use super::message::Message;

/// What has come of one choice.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// `message` holds the place of the message.
    members: Members,
    message: Option<Message>,
}

impl Choice {
    pub(super) fn new(index: u64) -> Self {
        let mut members = Members::default();
        members.set("index", Part::Text(index.to_string()));
        Self { members, message: None }
    }

    pub(super) fn has_delta(&self) -> bool {
        self.message.is_some()
    }

    pub(super) fn push(&mut self, choice: Json<'_>) {
        for (name, value) in choice.members() {
            match &*name {
                "delta" if value.is_object() => {
                    self.members.entry("message");
                    self.message.get_or_insert_default().push(value);
                }
                "logprobs" if value.is_object() => {
                    let collected = self.members.entry(&name).object();
                    for (name, value) in value.members() {
                        collected.entry(&name).extend(value);
                    }
                }
                "text" => self.members.entry(&name).append(value),
                _ => self.members.entry(&name).keep_last(value),
            }
        }
    }

    pub(super) fn into_chat(self) -> Members {
        let mut members = self.members;
        members.set("message", Part::Object(self.message.unwrap_or_default().into_members()));
        members
    }

    pub(super) fn into_text(self) -> Members {
        self.members
    }
}
