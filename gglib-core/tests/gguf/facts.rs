//! The facts of valid headers, and the errors of others.

use gglib_core::model::gguf::{Facts, GgufError, PerLayer, Reading, Split, limit, read};

use crate::header::{Header, text};

const SIZE: u64 = 1 << 30;

fn facts(header: &Header) -> Facts {
    match read(&header.bytes(), SIZE) {
        Ok(Reading::Whole(facts)) => *facts,
        other => panic!("{other:?}"),
    }
}

fn error(header: &Header) -> String {
    read(&header.bytes(), SIZE).expect_err("a bad header").to_string()
}

#[test]
fn versions_2_and_3_give_the_same_facts() {
    for version in [2, 3] {
        let facts = facts(&Header::small(version));
        assert_eq!((facts.version, facts.architecture.as_str(), facts.vocabulary), (version, "gemma2", 3));
        assert_eq!((facts.has_chat_template, facts.file_type, facts.split), (true, Some(7), None));
        let attention = facts.attention.unwrap();
        assert_eq!((attention.layers, attention.context, attention.embedding), (4, 8192, 64));
        assert_eq!((attention.heads, attention.kv_heads.of(3), attention.key, attention.value), (8, 2, 8, 8));
        assert_eq!((attention.window, attention.windowed), (Some(512), PerLayer::Each(vec![1, 0, 1, 0])));
        let tensors = facts.tensors;
        assert_eq!((tensors.embedding, tensors.layers, tensors.other), (384, vec![4352, 0, 0, 4352], 256));
        assert_eq!((tensors.count, tensors.output, tensors.unknown, tensors.repacked), (4, 0, 0, 8704));
    }
}

#[test]
fn heads_may_differ_by_layer_and_have_sizes_of_their_own() {
    let header = Header::small(3)
        .without("gemma2.attention.head_count_kv")
        .array("gemma2.attention.head_count_kv", 5, &[4_i32, 0, -1, 2].map(i32::to_le_bytes))
        .array("gemma2.attention.sliding_window_pattern", 7, &[[1_u8], [1], [0], [0]])
        .u32("gemma2.attention.key_length", 16)
        .u32("gemma2.attention.key_length_swa", 24);
    let attention = facts(&header).attention.unwrap();
    assert_eq!(attention.kv_heads, PerLayer::Each(vec![4, 0, 0, 2]));
    assert_eq!(attention.windowed, PerLayer::Each(vec![1, 1, 0, 0]));
    assert_eq!((attention.key, attention.value), (24, 8));
    let without = header.without("gemma2.attention.head_count_kv");
    assert_eq!(facts(&without).attention.unwrap().kv_heads, PerLayer::All(8));
}

#[test]
fn a_mixture_is_as_wide_as_the_experts_that_a_token_uses() {
    let header = Header::small(3)
        .u32("gemma2.expert_count", 64)
        .u32("gemma2.expert_used_count", 8)
        .u32("gemma2.expert_feed_forward_length", 100);
    let attention = facts(&header).attention.unwrap();
    assert_eq!((attention.experts, attention.feed_forward), (64, 800));
}

#[test]
fn files_that_are_no_model_have_weights_and_no_attention() {
    let projector = Header::empty(3)
        .text("general.architecture", "clip")
        .text("general.type", "mmproj")
        .tensor("v.blk.weight", &[32, 2], 8, 0);
    assert_eq!(facts(&projector).attention, None);
    assert_eq!(facts(&projector).tensors.total(), 68);
    let part = |number: u16| {
        Header::small(3).entry("split.no", 2, &number.to_le_bytes()).entry(
            "split.count",
            2,
            &3_u16.to_le_bytes(),
        )
    };
    let mut first = facts(&part(0));
    assert_eq!(first.split, Some(Split { number: 0, count: 3 }));
    let second = facts(&part(1));
    assert_eq!(second.attention, None);
    first.add_part(&second);
    assert_eq!(first.tensors.total(), 2 * second.tensors.total());
}

#[test]
fn names_of_parts_are_told_from_others() {
    let names = Split::names("a-00002-of-00003.gguf").unwrap();
    assert_eq!(names, ["a-00001-of-00003.gguf", "a-00002-of-00003.gguf", "a-00003-of-00003.gguf"]);
    for other in [
        "a.gguf",
        "a-00004-of-00003.gguf",
        "a-00000-of-00003.gguf",
        "a-1-of-3.gguf",
        "a-+0001-of-00003.gguf",
        "a-00001-of-99999.gguf",
    ] {
        assert_eq!(Split::names(other), None, "{other}");
    }
}

#[test]
fn a_tensor_of_a_new_type_counts_by_what_the_file_has_left() {
    let header = Header::small(3).tensor("blk.1.attn_q.weight", &[64, 64], 999, 16384);
    let bytes = header.bytes();
    let start = (bytes.len() as u64).next_multiple_of(32);
    let Ok(Reading::Whole(facts)) = read(&bytes, start + 20_000) else { panic!("a whole header") };
    assert_eq!((facts.tensors.unknown, facts.tensors.total()), (1, 20_000));
}

#[test]
fn every_error_names_the_thing_and_the_remedy() {
    let table = [
        (Header::empty(1), "GGUF version 1 is not supported, only 2 and 3; convert the model again"),
        (
            Header::empty(3_u32.swap_bytes()),
            "a big-endian GGUF file; download or convert the little-endian one",
        ),
        (Header::empty(3), "the metadata has no usable `general.architecture`; convert the model again"),
        (
            Header::small(3).without("gemma2.block_count"),
            "the metadata has no usable `gemma2.block_count`; convert the model again",
        ),
        (
            Header::small(3).without("gemma2.block_count").u32("gemma2.block_count", 5000),
            "broken: it announces 5000 layers, and 4096 are the most that is taken; download it again",
        ),
        (
            Header::small(3).u32("general.alignment", 3),
            "the metadata has no usable `general.alignment`; convert the model again",
        ),
        (
            Header::empty(3).entry("a", 13, &[]),
            "broken at offset 37: a value of unknown type; download it again",
        ),
        (
            Header::empty(3).tensor("blk.x.w", &[1], 0, 0),
            "broken at offset 63: a tensor of no possible layer; download it again",
        ),
        (
            Header::empty(3).tensor("w", &[1], 0, 31),
            "broken at offset 57: a tensor that is not aligned; download it again",
        ),
        (
            Header::empty(3).tensor("w", &[u64::MAX, 2], 0, 0),
            "broken at offset 53: a tensor larger than any memory; download it again",
        ),
    ];
    for (header, expected) in table {
        assert_eq!(error(&header), expected);
    }
    assert!(read(b"PK\x03\x04", SIZE).unwrap_err().to_string().starts_with("not a GGUF model file"));
    assert_eq!(read(b"", 0), Err(GgufError::CutOff { needed: 4, len: 0 }));
    assert_eq!(read(b"GX", SIZE), Err(GgufError::NotGguf));
}

#[test]
fn counts_beyond_a_limit_are_refused_before_they_are_believed() {
    let huge = |head: &[u8], key: &str, kind: u32| {
        Header::empty(3).entry(key, kind, &[head, &u64::MAX.to_le_bytes()].concat())
    };
    for (header, what) in [
        (huge(&[], "a", 8), "bytes of text"),
        (huge(&8_u32.to_le_bytes(), "a", 9), "array elements"),
        (huge(&0_u32.to_le_bytes(), "tokenizer.ggml.tokens", 9), "array elements"),
    ] {
        assert!(error(&header).contains(what), "{}", error(&header));
    }
    let counts = |tensors: u64, keys: u64| {
        let head = [&b"GGUF\x03\0\0\0"[..], &tensors.to_le_bytes(), &keys.to_le_bytes()].concat();
        read(&head, SIZE).unwrap_err()
    };
    let too_much = |what, limit| GgufError::TooMuch { what, claimed: limit + 1, limit };
    assert_eq!(counts(limit::TENSORS + 1, 0), too_much("tensors", limit::TENSORS));
    assert_eq!(counts(0, limit::KEYS + 1), too_much("metadata entries", limit::KEYS));
    let nested = (0..6).fold(text("x"), |inner, depth| {
        let kind: u32 = if depth == 0 { 8 } else { 9 };
        [&kind.to_le_bytes()[..], &1_u64.to_le_bytes(), &inner].concat()
    });
    assert!(error(&Header::empty(3).entry("a", 9, &nested)).contains("nested too deeply"));
}

#[test]
fn cut_anywhere_it_asks_for_more_and_a_file_that_ends_there_is_cut_off() {
    let bytes = Header::small(3).bytes();
    for len in 0..bytes.len() {
        let prefix = &bytes[..len];
        match read(prefix, SIZE) {
            Ok(Reading::Incomplete { needed }) => assert!(needed > len as u64),
            other => panic!("{len}: {other:?}"),
        }
        assert!(matches!(read(prefix, len as u64), Err(GgufError::CutOff { .. })), "{len}");
    }
    let data = (bytes.len() as u64).next_multiple_of(32) + 384 + 2 * 4352 + 256;
    assert!(matches!(read(&bytes, data), Ok(Reading::Whole(_))));
    assert_eq!(read(&bytes, data - 1), Err(GgufError::CutOff { needed: data, len: data - 1 }));
}
