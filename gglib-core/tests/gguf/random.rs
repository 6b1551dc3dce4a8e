//! Any bytes, and valid headers with damage, are read without a panic. The same functions run under the fuzzer.

use proptest::prelude::*;

use crate::header::Header;
use crate::targets;

/// Numbers that break careless arithmetic.
const ABSURD: [u64; 6] = [u64::MAX, 1 << 63, i64::MAX as u64, 1 << 32, u32::MAX as u64, 0];

#[test]
fn an_absurd_number_at_any_place_is_survived() {
    let bytes = Header::small(3).bytes();
    for at in 0..bytes.len() {
        for number in ABSURD {
            let mut bytes = bytes.clone();
            let end = bytes.len().min(at + 8);
            bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            targets::gguf(&bytes);
        }
    }
}

#[test]
fn any_flipped_bit_is_survived() {
    let bytes = Header::small(2).bytes();
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        targets::gguf(&bytes);
    }
}

proptest! {
    #[test]
    fn any_bytes_after_the_magic_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        targets::gguf(&bytes);
        targets::gguf(&[b"GGUF\x03\0\0\0", &bytes[..]].concat());
    }

    #[test]
    fn any_damage_to_a_header_is_survived(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Header::small(3).bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        targets::gguf(&bytes);
        targets::gguf(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn any_stream_body_and_chunks_are_survived(text in "[\\PC\\n]{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for input in [text.as_bytes(), &bytes] {
            targets::sse(input);
            targets::body(input);
            targets::fold(input);
        }
    }

    #[test]
    fn anything_like_json_is_survived(text in r#"(data: |\{|\}|\[|\]|"|:|,|\n|"choices"|"delta"|"index"|"content"|"model"|1e400|null|\\u00e9){0,60}"#) {
        targets::sse(text.as_bytes());
        targets::body(text.as_bytes());
        targets::fold(text.as_bytes());
    }
}
