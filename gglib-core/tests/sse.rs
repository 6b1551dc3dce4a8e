//! The decoder yields the same events however a stream is cut, and the encoder writes what it reads.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use bytes::Bytes;
use gglib_core::sse::{Decoder, SseError, SseEvent, encode};
use proptest::prelude::*;

fn decode<'a>(
    mut decoder: Decoder,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Result<SseEvent, SseError>> {
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        events.extend(std::iter::from_fn(|| decoder.next_event()));
    }
    decoder.finish();
    events.extend(std::iter::from_fn(|| decoder.next_event()));
    events
}

fn whole(stream: &[u8]) -> Vec<Result<SseEvent, SseError>> {
    decode(Decoder::default(), [stream])
}

fn data(text: &str) -> SseEvent {
    SseEvent::Message { name: None, data: Bytes::copy_from_slice(text.as_bytes()) }
}

fn named(name: &str, text: &str) -> SseEvent {
    let SseEvent::Message { data, .. } = data(text) else { unreachable!() };
    SseEvent::Message { name: Some(Bytes::copy_from_slice(name.as_bytes())), data }
}

fn comment(text: &str) -> SseEvent {
    SseEvent::Comment(Bytes::copy_from_slice(text.as_bytes()))
}

fn cases() -> Vec<(&'static str, Vec<SseEvent>)> {
    vec![
        ("", vec![]),
        ("\n\n\r\r\r\n", vec![]),
        ("data: a\n\ndata: b\n\n", vec![data("a"), data("b")]),
        ("data: a\r\n\r\ndata: b\r\n\r\n", vec![data("a"), data("b")]),
        ("data: a\r\rdata: b\r\r", vec![data("a"), data("b")]),
        ("data: a\n\r\ndata: b\r\n\r", vec![data("a"), data("b")]),
        ("data: a\r\ndata: b\rdata: c\r\n\r\n", vec![data("a\nb\nc")]),
        ("data:a\n\ndata:  b \n\n", vec![data("a"), data(" b ")]),
        ("\u{FEFF}data: a\n\n\u{FEFF}data: b\n\n", vec![data("a")]),
        ("\u{FEFF}", vec![]),
        ("data: \u{FEFF}\n\n", vec![data("\u{FEFF}")]),
        ("data: a\ndata:\ndata: b\n\n", vec![data("a\n\nb")]),
        ("data\n\ndata:\n\n", vec![data(""), data("")]),
        ("event: error\ndata: {}\n\n", vec![named("error", "{}")]),
        ("data: {}\nevent:x\nevent: y\n\ndata: b\n\n", vec![named("y", "{}"), data("b")]),
        ("event: x\nevent:\ndata: a\n\n", vec![data("a")]),
        ("event: ping\n\ndata: a\n\n", vec![data("a")]),
        (":\n\n: keep-alive\n\n", vec![comment(""), comment(" keep-alive")]),
        ("data: a\n: between\ndata: b\n\n", vec![comment(" between"), data("a\nb")]),
        ("id: 1\nretry: 5\ndatum: x\nproxy error: y\ndata: a\n\n", vec![data("a")]),
        (" data: a\n\n", vec![]),
        ("data: a", vec![data("a")]),
        ("data: a\n", vec![data("a")]),
        ("data: a\n\ndata: b\r", vec![data("a"), data("b")]),
        ("data: a\n: x", vec![comment(" x"), data("a")]),
        ("event: x", vec![]),
        ("data: 🌱é\n\n", vec![data("🌱é")]),
        ("data: [DONE]\n\n\n", vec![data("[DONE]")]),
    ]
}

#[test]
fn streams_decode_as_the_standard_says() {
    for (stream, expected) in cases() {
        let expected: Vec<_> = expected.into_iter().map(Ok).collect();
        assert_eq!(whole(stream.as_bytes()), expected, "{stream:?}");
    }
}

#[test]
fn every_cut_into_up_to_three_chunks_gives_the_same_events() {
    for (stream, _) in cases() {
        let stream = stream.as_bytes();
        let expected = whole(stream);
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let chunks = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(decode(Decoder::default(), chunks), expected, "{stream:?} at {first}, {second}");
            }
        }
        assert_eq!(decode(Decoder::default(), stream.chunks(1)), expected, "{stream:?} in bytes");
    }
}

/// Every stream that was recorded from an engine.
fn recordings() -> Vec<(String, String)> {
    let root = env!("CARGO_MANIFEST_DIR");
    let directories = [format!("{root}/tests/fixtures"), format!("{root}/../gglib-testkit/fixtures")];
    let entries = directories.iter().flat_map(|directory| std::fs::read_dir(directory).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let streams = paths.filter(|path| path.extension().is_some_and(|extension| extension == "sse"));
    streams.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn recorded_streams_survive_every_cut_and_every_way_of_writing_them() {
    let recordings = recordings();
    assert!(recordings.len() >= 17, "{}", recordings.len());
    for (name, stream) in recordings {
        let expected = whole(stream.as_bytes());
        assert!(expected.len() > 2, "{name}");
        let written = [
            ("as it is", stream.clone()),
            ("CR LF", stream.replace('\n', "\r\n")),
            ("CR", stream.replace('\n', "\r")),
            ("no space", stream.replace("data: ", "data:")),
            ("byte order mark", format!("\u{FEFF}{stream}")),
            ("unterminated", stream.trim_end().to_owned()),
        ];
        for (how, stream) in written {
            let stream = stream.as_bytes();
            for cut in 0..=stream.len() {
                let events = decode(Decoder::default(), [&stream[..cut], &stream[cut..]]);
                assert_eq!(events, expected, "{name}, {how}, at {cut}");
            }
            for size in 1..50 {
                let events = decode(Decoder::default(), stream.chunks(size));
                assert_eq!(events, expected, "{name}, {how}, in chunks of {size}");
            }
        }
    }
}

#[test]
fn a_giant_event_comes_whole_and_one_beyond_the_limit_is_an_error() {
    for length in [1 << 20, 16 << 20] {
        let payload = "x".repeat(length - "data: ".len());
        let stream = format!("data: {payload}\n\ndata: b\n\n");
        let events = decode(Decoder::default(), stream.as_bytes().chunks(65_536));
        assert_eq!(events.len(), 2, "{length}");
        assert!(events[0] == Ok(data(&payload)), "{length}");
        let longer = format!("data: x{payload}\n\n");
        let events = decode(Decoder::default(), longer.as_bytes().chunks(65_536));
        let expected = if length < 16 << 20 {
            Ok(data(&format!("x{payload}")))
        } else {
            Err(SseError::TooLong { limit: 16 << 20 })
        };
        assert!(events == [expected], "{length}");
    }
}

#[test]
fn chunks_may_be_pushed_ahead_of_reading() {
    let mut decoder = Decoder::default();
    for chunk in ["da", "ta: a\r", "\n\r", "\ndata: b\n\n"] {
        decoder.push(Bytes::from(chunk));
    }
    assert_eq!(decoder.next_event(), Some(Ok(data("a"))));
    assert_eq!(decoder.next_event(), Some(Ok(data("b"))));
    assert_eq!(decoder.next_event(), None);
}

#[test]
fn an_event_in_one_chunk_is_not_copied() {
    let chunk = Bytes::from("data: hello\n\ndata: more\n\n");
    let mut decoder = Decoder::default();
    decoder.push(chunk.clone());
    for offset in [6, 19] {
        let Some(Ok(SseEvent::Message { data, .. })) = decoder.next_event() else { panic!("no event") };
        assert_eq!(data.as_ptr(), chunk[offset..].as_ptr());
    }
}

#[test]
fn an_event_beyond_the_limit_ends_the_stream() {
    let too_long = Err(SseError::TooLong { limit: 12 });
    let fits = "data: 123456\n\n";
    let cases = [
        ("data: 1234567\n\ndata: b\n\n", vec![too_long.clone()]),
        ("data: 12\ndata: 3\n\n", vec![too_long.clone()]),
        (": 34567890123\n", vec![too_long.clone()]),
        ("event: 123456\n", vec![too_long.clone()]),
        ("data: a\n\ndata: 1234567", vec![Ok(data("a")), too_long]),
    ];
    for (stream, expected) in cases {
        for chunks in [stream.len(), 1] {
            let events = decode(Decoder::with_limit(12), stream.as_bytes().chunks(chunks));
            assert_eq!(events, expected, "{stream:?}");
        }
    }
    let many = fits.repeat(100) + ": comments do not\n".get(..9).unwrap() + "\n";
    assert_eq!(decode(Decoder::with_limit(12), [many.as_bytes()]).len(), 101);
}

#[test]
fn a_line_that_never_ends_is_given_up_as_soon_as_it_is_too_long() {
    let mut decoder = Decoder::with_limit(12);
    decoder.push(Bytes::from("data: 123456"));
    assert_eq!(decoder.next_event(), None);
    decoder.push(Bytes::from("7"));
    assert_eq!(decoder.next_event(), Some(Err(SseError::TooLong { limit: 12 })));
    decoder.push(Bytes::from("\n\ndata: b\n\n"));
    assert_eq!(decoder.next_event(), None);
}

#[test]
fn encoded_payloads_decode_to_themselves() {
    assert_eq!(encode::data(b"a\nb\r\nc\rd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
    for payload in ["", "{}", " leading", "a\nb", "\n", "🌱"] {
        assert_eq!(whole(&encode::data(payload.as_bytes())), [Ok(data(payload))]);
    }
    assert_eq!(whole(encode::DONE), [Ok(data("[DONE]"))]);
    assert_eq!(whole(encode::KEEP_ALIVE), [Ok(comment(" keep-alive"))]);
}

proptest! {
    #[test]
    fn no_bytes_panic_and_no_cut_matters(
        stream in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "(data|event|id|:|\u{FEFF}|é|\r|\n| |x){0,60}".prop_map(String::into_bytes),
        ],
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<_> = cuts.drain(..).map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let mut start = 0;
        let mut chunks = Vec::new();
        for cut in cuts {
            chunks.push(&stream[start..cut]);
            start = cut;
        }
        chunks.push(&stream[start..]);
        prop_assert_eq!(decode(Decoder::default(), chunks), whole(&stream));
    }
}
