//! The body of the one request that asks for calls again.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::assess::Broken;
use super::grammar;
use super::told::in_words;
use super::tools::Tools;
use crate::api::body::{BodyError, JsonObject};

/// How the engine is made to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `tool_choice: "required"`: the engine's chat template knows tools, and its own grammar will hold.
    Required,
    /// A grammar of ours, made from the schemas: the template knows no tools, and the engine then ignores
    /// `tool_choice`. The tools, and what was called before, are told as text, and so the call comes.
    Grammar,
}

impl Form {
    /// The form for an engine that says this about itself (`GET /props` of llama-server).
    ///
    /// Where it says nothing of tools, it is taken to know them: calls came from somewhere.
    ///
    /// ```
    /// use gglib_core::repair::Form;
    ///
    /// let caps = br#"{"chat_template_caps":{"supports_tools":false,"supports_tool_calls":false}}"#;
    /// assert_eq!(Form::of(caps), Form::Grammar);
    /// assert_eq!(Form::of(b"{}"), Form::Required);
    /// ```
    pub fn of(props: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Props {
            chat_template_caps: Caps,
        }
        #[derive(Deserialize)]
        struct Caps {
            supports_tools: bool,
            supports_tool_calls: bool,
        }
        match serde_json::from_slice::<Props>(props) {
            Ok(Props { chat_template_caps: Caps { supports_tools: false, supports_tool_calls: false } }) => {
                Self::Grammar
            }
            _ => Self::Required,
        }
    }

    /// The form's name, for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Grammar => "grammar",
        }
    }
}

/// The body that asks for the open calls of `broken` again: that of the first request, `body`, with a few members
/// replaced. The answer is a stream that ends with its usage.
///
/// llama-server refuses a grammar beside `tools`, so these go when ours is sent, with whatever else would constrain
/// the text; what the template would have left out is in the messages then. A turn of one call is asked for one: small models do not stop by themselves.
///
/// # Errors
/// `body` is not one JSON object.
pub fn second_body(body: Bytes, broken: &Broken, tools: &Tools, form: Form) -> Result<Bytes, BodyError> {
    let mut body = JsonObject::parse(body)?;
    body.set("stream", true);
    body.set("stream_options", json!({ "include_usage": true }));
    match form {
        Form::Required => {
            body.set("tool_choice", "required");
            if broken.is_single() {
                body.set("parallel_tool_calls", false);
            }
        }
        Form::Grammar => {
            let messages = body.raw_member("messages").zip(body.raw_member("tools"));
            if let Some(messages) = messages.and_then(|(messages, tools)| in_words(messages, tools)) {
                body.set("messages", messages);
            }
            for member in ["tools", "tool_choice", "parallel_tool_calls", "response_format", "json_schema"] {
                if body.raw_member(member).is_some() {
                    body.set(member, Value::Null);
                }
            }
            body.set("grammar", grammar::of_calls(&broken.wanted(tools)));
        }
    }
    Ok(body.into_bytes())
}
