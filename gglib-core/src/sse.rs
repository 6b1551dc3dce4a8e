//! Server-sent events over bytes: the decoder for what engines send, the encoder for what clients get.
//!
//! The format is the one of the WHATWG HTML standard, §9.2. Two deliberate differences of the decoder: comments
//! are reported, because they prove that a connection lives, and an event that the end of the stream cut off is
//! delivered, because some servers leave out the last blank line.

pub use decoder::{Decoder, SseError, SseEvent};

mod decoder;
pub mod encode;
