//! The engine's routes for slots, as build b10434 answers them.

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::ports::{ByteStream, Upstream, UpstreamError};
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The most of an answer that is read, in bytes. `/props` holds the model's chat template.
const LONGEST: usize = 4 * 1024 * 1024;

/// What an engine says about itself (`/props`).
#[derive(Debug, Deserialize)]
pub(super) struct Props {
    pub(super) build_info: String,
    pub(super) total_slots: u32,
}

/// A slot has been saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Saved {
    /// Tokens in it.
    pub(super) n_saved: u64,
    /// The file's length in bytes.
    pub(super) n_written: u64,
}

/// A slot is said to have been restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Restored {
    /// Tokens in it.
    pub(super) n_restored: u64,
}

/// Why an engine did not do what it was asked.
#[derive(Debug, Error)]
pub(super) enum SlotError {
    /// The transport failed.
    #[error(transparent)]
    Transport(UpstreamError),
    /// It answered with an error.
    #[error("the engine answered {status}: {message}")]
    Answered { status: StatusCode, message: String },
    /// It has restored another number of tokens than were saved.
    #[error("the engine restored {found} of {expected} tokens")]
    Partial { expected: u64, found: u64 },
    /// It answered something else.
    #[error("the engine's answer cannot be read: {0}")]
    Malformed(serde_json::Error),
}

impl SlotError {
    /// Whether the same may succeed a moment later. A refusal (4xx) and a lack of the feature (501) stay.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Transport(_) => true,
            Self::Answered { status, .. } => {
                status.is_server_error() && *status != StatusCode::NOT_IMPLEMENTED
            }
            Self::Partial { .. } | Self::Malformed(_) => false,
        }
    }

    /// Whether engines of this model cannot do it at all, as with several kinds of input.
    pub(super) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Answered { status, .. } if *status == StatusCode::NOT_IMPLEMENTED)
    }
}

pub(super) async fn props(engine: &dyn Upstream) -> Result<Props, SlotError> {
    ask(engine, Method::GET, "/props".to_owned(), Bytes::new()).await
}

pub(super) async fn save(engine: &dyn Upstream, slot: u32, file: &str) -> Result<Saved, SlotError> {
    ask(engine, Method::POST, format!("/slots/{slot}?action=save"), body(file)).await
}

pub(super) async fn restore(engine: &dyn Upstream, slot: u32, file: &str) -> Result<Restored, SlotError> {
    ask(engine, Method::POST, format!("/slots/{slot}?action=restore"), body(file)).await
}

fn body(file: &str) -> Bytes {
    Bytes::from(serde_json::json!({ "filename": file }).to_string())
}

async fn ask<T: DeserializeOwned>(
    engine: &dyn Upstream,
    method: Method,
    path: String,
    body: Bytes,
) -> Result<T, SlotError> {
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
    let request = request.body(body).expect("paths of numbers and constants are valid");
    let response = engine.send(request).await.map_err(SlotError::Transport)?;
    let status = response.status();
    let answer = read(response.into_body()).await?;
    if status == StatusCode::OK {
        return serde_json::from_slice(&answer).map_err(SlotError::Malformed);
    }
    let error: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
    let message = error["error"]["message"].as_str().unwrap_or("without a reason").to_owned();
    Err(SlotError::Answered { status, message })
}

async fn read(mut body: ByteStream) -> Result<Vec<u8>, SlotError> {
    let mut read = Vec::new();
    while let Some(bytes) = body.next().await {
        let bytes = bytes.map_err(SlotError::Transport)?;
        let room = LONGEST.saturating_sub(read.len());
        read.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
    Ok(read)
}
