//! What chunks are taken for, and which ends of a stream are honest.

use gglib_core::api::chunk::{ContentKind, Frame, Probe, PromptProgress, StreamState};
use gglib_core::api::error::ApiError;
use gglib_core::slots::PromptCounts;
use gglib_core::sse::{Decoder, SseEvent};

fn probe(json: &str) -> Probe {
    Probe::parse(json.as_bytes()).expect(json)
}

fn with_delta(delta: &str) -> Probe {
    probe(&format!(r#"{{"id":"x","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#))
}

#[test]
fn content_is_what_a_client_could_show_or_act_on() {
    let cases = [
        (r#"{"role":"assistant"}"#, None),
        (r#"{"role":"assistant","content":null}"#, None),
        (r#"{"role":"assistant","content":"","refusal":null,"tool_calls":[],"function_call":null}"#, None),
        (r#"{"reasoning_content":"","content":[],"unknown":"x"}"#, None),
        ("{}", None),
        ("null", None),
        (r#"{"content":"a"}"#, Some(ContentKind::Text)),
        (r#"{"content":" "}"#, Some(ContentKind::Text)),
        (r#"{"content":"\""}"#, Some(ContentKind::Text)),
        (r#"{"content":[{"type":"text","text":"a"}]}"#, Some(ContentKind::Text)),
        (r#"{"refusal":"I"}"#, Some(ContentKind::Refusal)),
        (r#"{"reasoning_content":"hm","content":null}"#, Some(ContentKind::Reasoning)),
        (r#"{"reasoning":"hm"}"#, Some(ContentKind::Reasoning)),
        (r#"{"reasoning":"hm","content":"a"}"#, Some(ContentKind::Reasoning)),
        (r#"{"tool_calls":[{"index":0}]}"#, Some(ContentKind::ToolCall)),
        (r#"{"content":"a","function_call":{"name":"f"}}"#, Some(ContentKind::ToolCall)),
    ];
    for (delta, expected) in cases {
        assert_eq!(with_delta(delta).content(), expected, "{delta}");
    }
    assert_eq!(probe(r#"{"choices":[{"text":"a","index":0}]}"#).content(), Some(ContentKind::Text));
    assert_eq!(probe(r#"{"choices":[{"text":"","index":0}]}"#).content(), None);
    let two = probe(r#"{"choices":[{"index":1,"delta":{"content":"a"}},{"delta":{"tool_calls":[{}]}}]}"#);
    assert_eq!(two.content(), Some(ContentKind::ToolCall));
    assert_eq!(two.choices[0].index, 1);
    assert_eq!(two.choices[1].index, 0);
}

#[test]
fn a_role_is_seen_where_one_is_named() {
    let cases = [
        (r#"{"role":"assistant","content":null}"#, true),
        (r#"{"role":"","content":"a"}"#, false),
        (r#"{"role":null}"#, false),
        (r#"{"content":"a"}"#, false),
        ("null", false),
    ];
    for (delta, expected) in cases {
        assert_eq!(with_delta(delta).choices[0].role, expected, "{delta}");
    }
}

#[test]
fn choices_may_be_missing_null_or_empty() {
    for json in ["{}", r#"{"choices":null}"#, r#"{"choices":[],"error":null,"usage":null}"#] {
        assert_eq!(probe(json), Probe::default(), "{json}");
    }
}

#[test]
fn ends_errors_and_usage_are_seen() {
    let reason = |json| probe(json).choices[0].finish_reason.clone();
    assert_eq!(reason(r#"{"choices":[{"finish_reason":"stop","delta":{}}]}"#).as_deref(), Some("stop"));
    assert_eq!(reason(r#"{"choices":[{"finish_reason":"","delta":{}}]}"#), None);
    assert_eq!(reason(r#"{"choices":[{"delta":{}}]}"#), None);
    assert!(probe(r#"{"error":{"code":500}}"#).error);
    assert!(probe(r#"{"error":"boom"}"#).error);
    assert!(probe(r#"{"choices":[],"usage":{"total_tokens":1}}"#).is_usage_only());
    assert!(!probe(r#"{"choices":[{"finish_reason":"stop"}],"usage":{"total_tokens":1}}"#).is_usage_only());
}

#[test]
fn progress_is_read_leniently_and_told_apart_from_content() {
    let chunk = |rest: &str| {
        probe(&format!(r#"{{"choices":[{{"index":0,"delta":{{"role":"assistant"}}}}],{rest}}}"#))
    };
    let full = chunk(r#""prompt_progress":{"total":32,"cache":8,"processed":20,"time_ms":81}"#);
    let expected = PromptProgress { total: 32, cache: 8, processed: 20, time_ms: 81.0 };
    assert_eq!(full.progress, Some(expected));
    assert!(full.is_progress_only());
    assert!(
        chunk(r#""prompt_progress":{"total":32,"processed":20,"time_ms":8.5,"new":[]}"#).is_progress_only()
    );
    assert_eq!(chunk(r#""prompt_progress":"soon""#).progress, None);
    assert!(!chunk(r#""id":"x""#).is_progress_only());
    for (rest, delta, finish) in
        [("", r#"{"content":"a"}"#, "null"), ("", "{}", "\"stop\""), (r#","error":{}"#, "{}", "null")]
    {
        let json = format!(
            r#"{{"choices":[{{"delta":{delta},"finish_reason":{finish}}}],"prompt_progress":{{"total":1,"processed":1}}{rest}}}"#
        );
        assert!(!probe(&json).is_progress_only(), "{json}");
    }
}

#[test]
fn what_is_no_chunk_is_an_error() {
    for json in [
        "",
        "{",
        "x",
        "7",
        r#"{"choices":{}}"#,
        r#"{"choices":[7]}"#,
        r#"{"choices":[{"index":"a"}]}"#,
        "{} {}",
    ] {
        assert!(Probe::parse(json.as_bytes()).is_err(), "{json}");
    }
}

const A: &str = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
const B: &str = r#"{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":null}]}"#;
const STOP_A: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const STOP_B: &str = r#"{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}"#;
const USAGE: &str = r#"{"choices":[],"usage":{"total_tokens":1}}"#;
const ERROR: &str = r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;

/// The code of the verdict on a stream of `events` for a request with `n` choices.
fn verdict(n: u64, events: &[&str]) -> Result<(), String> {
    let mut state = StreamState::new(n);
    let mut first = None;
    for event in events {
        if let Err(error) = state.observe(event.as_bytes()) {
            first.get_or_insert(error);
        }
    }
    assert_eq!(state.is_whole(), state.clone().end().is_ok());
    let end = state.end();
    if first.is_some() {
        assert_eq!(first.as_ref(), end.as_ref().err());
    }
    end.map_err(|error: ApiError| error.code.as_str().to_owned())
}

#[test]
fn an_end_is_honest_when_every_choice_has_finished() {
    let incomplete = || Err("upstream_incomplete".to_owned());
    assert_eq!(verdict(1, &[A, STOP_A, USAGE, "[DONE]"]), Ok(()));
    assert_eq!(verdict(1, &[A, STOP_A]), Ok(()), "without [DONE]");
    assert_eq!(verdict(1, &[STOP_A, A, "[DONE] "]), Ok(()), "a choice stays finished");
    assert_eq!(verdict(1, &[A, "[DONE]"]), incomplete());
    assert_eq!(verdict(1, &[A, USAGE]), incomplete());
    assert_eq!(verdict(1, &["[DONE]"]), incomplete());
    assert_eq!(verdict(1, &[]), incomplete());
    assert_eq!(verdict(2, &[A, B, STOP_B, STOP_A]), Ok(()));
    assert_eq!(verdict(2, &[A, B, STOP_A]), incomplete());
    assert_eq!(verdict(2, &[A, STOP_A]), incomplete(), "the second choice never came");
    assert_eq!(verdict(1, &[A, B, STOP_A]), incomplete(), "a choice that was not asked for");
    assert_eq!(verdict(1, &[A, STOP_A, ERROR]), Err("model_loading".to_owned()));
    assert_eq!(verdict(1, &[ERROR, A, STOP_A, "[DONE]"]), Err("model_loading".to_owned()));
    assert_eq!(verdict(1, &[A, r#"{"choi"#]), Err("upstream_malformed".to_owned()));
    assert_eq!(
        verdict(1, &[r#"{"error":"x"}"#, "{", STOP_A]),
        Err("upstream_error".to_owned()),
        "the first counts"
    );
}

#[test]
fn the_message_of_an_incomplete_end_counts_choices() {
    let mut state = StreamState::new(3);
    state.observe(STOP_A.as_bytes()).unwrap();
    state.observe(B.as_bytes()).unwrap();
    let error = state.end().unwrap_err();
    assert_eq!(error.status, 502);
    assert_eq!(error.message, "the upstream's answer ended without a finish_reason for 2 of 3 choices");
}

#[test]
fn recorded_streams_are_judged_rightly() {
    let cases = [
        ("chat_text", &include_bytes!("fixtures/chat_text.sse")[..], 1, Some(ContentKind::Text)),
        ("chat_empty", include_bytes!("fixtures/chat_empty.sse"), 1, None),
        ("chat_two_choices", include_bytes!("fixtures/chat_two_choices.sse"), 2, Some(ContentKind::Text)),
        (
            "chat_split_character",
            include_bytes!("fixtures/chat_split_character.sse"),
            1,
            Some(ContentKind::Text),
        ),
        ("chat_reasoning", include_bytes!("fixtures/chat_reasoning.sse"), 1, Some(ContentKind::Reasoning)),
        ("chat_tool_calls", include_bytes!("fixtures/chat_tool_calls.sse"), 1, Some(ContentKind::ToolCall)),
        ("text_completion", include_bytes!("fixtures/text_completion.sse"), 1, Some(ContentKind::Text)),
    ];
    for (name, stream, n, content) in cases {
        let events = messages(stream);
        let mut state = StreamState::new(n);
        let mut progress = Vec::new();
        for data in &events {
            if let Frame::Chunk(probe) = state.observe(data).expect(name) {
                progress.extend(probe.progress.filter(|_| probe.is_progress_only()));
            }
        }
        assert!(state.is_done(), "{name}");
        assert_eq!(state.content(), content, "{name}");
        assert_eq!(state.end(), Ok(()), "{name}");
        assert!(progress.iter().any(|progress| progress.processed == progress.total), "{name}: {progress:?}");

        for cut in 0..events.len() - 1 {
            let mut state = StreamState::new(n);
            for data in &events[..cut] {
                state.observe(data).expect(name);
            }
            let finished = events[..cut].iter().filter(|data| is_last_of_its_choice(data));
            assert_eq!(state.is_whole(), finished.count() as u64 >= n, "{name} cut after {cut} events");
        }
    }
}

fn is_last_of_its_choice(data: &[u8]) -> bool {
    let text = str::from_utf8(data).expect("JSON");
    text.contains(r#""finish_reason":""#)
}

#[test]
fn an_error_inside_a_recorded_stream_is_told() {
    let mut state = StreamState::new(1);
    let mut verdicts: Vec<_> = messages(include_bytes!("fixtures/chat_error_after_content.sse"))
        .iter()
        .map(|data| state.observe(data))
        .collect();
    let error = verdicts.pop().unwrap().unwrap_err();
    assert!(verdicts.iter().all(Result::is_ok));
    assert_eq!(
        (error.status.as_u16(), error.code.as_str(), error.kind()),
        (500, "upstream_error", "server_error")
    );
    assert_eq!(state.content(), Some(ContentKind::ToolCall));
    assert_eq!(state.end(), Err(error));
}

fn messages(stream: &'static [u8]) -> Vec<bytes::Bytes> {
    let mut decoder = Decoder::default();
    decoder.push(stream.into());
    decoder.finish();
    let events = std::iter::from_fn(|| decoder.next_event()).map(|event| event.expect("within the limit"));
    events
        .filter_map(|event| match event {
            SseEvent::Message { data, .. } => Some(data),
            SseEvent::Comment(_) => None,
        })
        .collect()
}

#[test]
fn what_was_cached_stands_in_the_timings_of_the_last_chunk() {
    let last = probe(
        r#"{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"timings":{"cache_n":1456,"prompt_n":15,"predicted_n":3}}"#,
    );
    assert_eq!(last.counts, Some(PromptCounts { prompt_tokens: 1471, cached_tokens: 1456 }));
    for none in [r"{}", r#"{"timings":null}"#, r#"{"timings":{"prompt_n":15}}"#, r#"{"timings":[1]}"#] {
        assert_eq!(probe(none).counts, None, "{none}");
    }
}
