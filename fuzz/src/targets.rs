//! One function per kind of input that comes from outside. Each takes any bytes; it must not panic, hang or
//! take memory beyond a small multiple of them, and what it asserts must hold.
//!
//! The fuzzer calls them, and so do the ordinary tests of the crates concerned, with random input.

use bytes::Bytes;
use gglib_core::api::body::JsonObject;
use gglib_core::api::fold::Fold;
use gglib_core::memory::Footprint;
use gglib_core::model::gguf::{self, Reading, limit};
use gglib_core::model::{EngineOptions, Estimate, ModelSpec};
use gglib_core::sse::{Decoder, SseEvent};

/// The beginning of a model file.
pub fn gguf(data: &[u8]) {
    let len = data.len() as u64;
    for file_size in [len, len.saturating_mul(3), 1 << 40] {
        match gguf::read(data, file_size) {
            Ok(Reading::Whole(facts)) => estimate(&facts),
            Ok(Reading::Incomplete { needed }) => {
                assert!(len < needed && needed <= file_size.min(limit::HEADER), "{needed} of {file_size}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn estimate(facts: &gguf::Facts) {
    let spec = ModelSpec { context: Some(u32::MAX), parallel: u32::MAX, ..ModelSpec::new("m.gguf") };
    for context in [None, spec.context] {
        let options = EngineOptions::of(&ModelSpec { context, ..spec.clone() });
        for vram in [0, 8 << 30, u64::MAX] {
            let estimate = Estimate::new(facts, u64::MAX, &options, vram);
            let certain = estimate.weights.saturating_add(estimate.cache);
            assert!(certain.fits_in(estimate.memory()));
            assert!(certain.ram <= estimate.corrected(Footprint::default()).ram);
        }
    }
}

/// A stream of events; its first byte says where it is cut into two chunks.
pub fn sse(data: &[u8]) {
    let [cut, stream @ ..] = data else { return };
    let (head, tail) = stream.split_at(stream.len() * usize::from(*cut) / 255);
    assert_eq!(events(&[stream]), events(&[head, tail]));
}

fn events(chunks: &[&[u8]]) -> Vec<SseEvent> {
    let mut decoder = Decoder::default();
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        events.extend(std::iter::from_fn(|| decoder.next_event()).flatten());
    }
    decoder.finish();
    events.extend(std::iter::from_fn(|| decoder.next_event()).flatten());
    events
}

/// A request's body.
pub fn body(data: &[u8]) {
    let Ok(mut body) = JsonObject::parse(Bytes::copy_from_slice(data)) else { return };
    assert_eq!(body.clone().into_bytes(), data, "an unedited body has changed");
    body.set("model", "edited");
    let edited = JsonObject::parse(body.into_bytes()).expect("an edited body is a body");
    assert_eq!(edited.str_member("model").ok().flatten().as_deref(), Some("edited"));
}

/// The chunks of a stream, one to a line.
pub fn fold(data: &[u8]) {
    let mut fold = Fold::default();
    for chunk in data.split(|&byte| byte == b'\n') {
        let _ = fold.push(chunk);
    }
    JsonObject::parse(fold.finish()).expect("an answer is a JSON object");
}
