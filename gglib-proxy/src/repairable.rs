//! The part of a request that its calls are judged by.

use bytes::Bytes;
use gglib_core::api::body::JsonObject;
use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::repair::{Choice, Tools, Turn, mend_history};
use serde_json::value::RawValue;
use tokio::time::Instant;

/// Mends calls in the history of `body` whose packaging is wrong, since an engine fails on them for ever, whether
/// tools are offered this time or not.
///
/// # Errors
/// A call in the history that cannot be mended.
pub(crate) fn mend_calls(body: &mut JsonObject) -> Result<(), ApiError> {
    let messages = body.raw_member("messages").and_then(|messages| str::from_utf8(messages).ok());
    let mended = messages.map(mend_history).transpose().map_err(|error| {
        ApiError::new(ErrorCode::InvalidRequest, error.to_string()).with_param(error.member)
    })?;
    if let Some(messages) = mended.flatten().and_then(|text| RawValue::from_string(text).ok()) {
        tracing::info!("mended calls in the client's history");
        body.set_raw("messages", &messages);
    }
    Ok(())
}

/// The tools of a request. They are read only when an answer has calls, or lacks one that is due.
#[derive(Clone, Debug)]
pub(crate) struct Repairable {
    tools: Bytes,
    choice: Option<Bytes>,
    is_due: bool,
    /// When the request has to be answered.
    pub(crate) until: Instant,
}

impl Repairable {
    /// Looks for tools in `body`; `None` when it has none, or wants no call.
    pub(crate) fn read(body: &JsonObject, until: Instant) -> Option<Self> {
        let tools = body.raw_member("tools").filter(|tools| !matches!(*tools, b"null" | b"[]"))?;
        let tools = Bytes::copy_from_slice(tools);
        let choice = body.raw_member("tool_choice").map(Bytes::copy_from_slice);
        let is_due = Choice::read(choice.as_deref())? == Choice::Required;
        Some(Self { tools, choice, is_due, until })
    }

    /// The tools, if `turn` has to be judged by them.
    pub(crate) fn tools_for(&self, turn: &Turn) -> Option<Tools> {
        (self.is_due || !turn.calls.is_empty()).then(|| Tools::read(&self.tools, self.choice.as_deref()))?
    }
}
