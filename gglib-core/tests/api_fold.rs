//! A folded stream is the answer that the engine gives to a plain request.

use bytes::Bytes;
use gglib_core::api::fold::Fold;
use gglib_core::sse::{Decoder, SseEvent};
use proptest::prelude::*;
use serde_json::{Value, json};

fn fold<'a>(chunks: impl IntoIterator<Item = &'a str>) -> Value {
    let mut fold = Fold::default();
    for chunk in chunks {
        fold.push(chunk.as_bytes()).expect(chunk);
    }
    serde_json::from_slice(&fold.finish()).expect("JSON")
}

/// The message that `deltas` of one choice fold to.
fn message(deltas: &[&str]) -> Value {
    let chunks: Vec<_> = deltas
        .iter()
        .map(|delta| {
            format!(r#"{{"object":"chat.completion.chunk","choices":[{{"index":0,"delta":{delta}}}]}}"#)
        })
        .collect();
    fold(chunks.iter().map(String::as_str))["choices"][0]["message"].take()
}

fn fold_stream(stream: &'static [u8]) -> Value {
    let mut decoder = Decoder::default();
    decoder.push(Bytes::from_static(stream));
    decoder.finish();
    let mut fold = Fold::default();
    while let Some(event) = decoder.next_event() {
        match event.expect("within the limit") {
            SseEvent::Message { data, .. } if data != "[DONE]" => fold.push(&data).expect("a chunk"),
            _ => {}
        }
    }
    serde_json::from_slice(&fold.finish()).expect("JSON")
}

/// Blanks what differs from one run to the next: ids, the second, and the measured times (not the counts).
fn comparable(mut answer: Value) -> Value {
    answer["id"] = "id".into();
    answer["created"] = 0.into();
    let timings = answer["timings"].as_object_mut().expect("timings");
    timings.iter_mut().filter(|(name, _)| !name.ends_with("_n")).for_each(|(_, value)| *value = Value::Null);
    for choice in answer["choices"].as_array_mut().expect("choices") {
        if let Some(Value::Array(calls)) = choice.pointer_mut("/message/tool_calls") {
            for call in calls {
                call["id"] = "id".into();
            }
            // llama-server says "" where OpenAI, and so the fold, says null.
            choice["message"]["content"] = Value::Null;
        }
    }
    answer
}

macro_rules! recorded {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                let plain = include_bytes!(concat!("fixtures/", stringify!($name), ".json"));
                let stream = include_bytes!(concat!("fixtures/", stringify!($name), ".sse"));
                let plain: Value = serde_json::from_slice(plain).unwrap();
                assert_eq!(comparable(fold_stream(stream)), comparable(plain));
            }
        )+
    };
}

mod agrees_with_the_engine {
    use super::*;

    recorded!(
        chat_text,
        chat_empty,
        chat_logprobs,
        chat_two_choices,
        chat_split_character,
        chat_reasoning,
        chat_tool_call,
        chat_tool_calls,
        text_completion,
        text_completion_logprobs,
    );
}

#[test]
fn content_is_null_only_beside_calls_or_a_refusal() {
    assert_eq!(message(&["{}"]), json!({"role":"assistant","content":""}));
    assert_eq!(message(&[r#"{"content":null}"#, r#"{"role":"user"}"#]), json!({"role":"user","content":""}));
    assert_eq!(
        message(&[r#"{"reasoning_content":"h"}"#, r#"{"reasoning_content":"m","content":null}"#]),
        json!({"role":"assistant","content":"","reasoning_content":"hm"})
    );
    assert_eq!(
        message(&[r#"{"refusal":"I "}"#, r#"{"refusal":"can't"}"#]),
        json!({"role":"assistant","content":null,"refusal":"I can't"})
    );
    assert_eq!(
        message(&[r#"{"refusal":null,"content":""}"#]),
        json!({"role":"assistant","content":"","refusal":null})
    );
    let call = r#"{"content":"","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let expected = json!({"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]});
    assert_eq!(message(&[call]), expected);
    assert_eq!(message(&[r#"{"content":"I look."}"#, call])["content"], "I look.");
    assert_eq!(
        message(&[
            r#"{"role":"assistant","content":"a","tool_calls":[]}"#,
            r#"{"role":"","content":"b","tool_calls":[]}"#
        ]),
        json!({"role":"assistant","content":"ab"})
    );
}

#[test]
fn calls_are_collected_by_index() {
    let folded = message(&[
        r#"{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""}},{"index":1,"function":{"arguments":"{}"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":":1}"},"extra":2}]}"#,
        r#"{"tool_calls":[{"index":0,"id":null,"type":"","function":{"name":null,"arguments":null}}]}"#,
    ]);
    assert_eq!(
        folded["tool_calls"],
        json!([
            {"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"},"extra":2},
            {"id":"b","type":"function","function":{"name":"g","arguments":"{}"}},
        ])
    );
}

#[test]
fn calls_without_index_are_told_apart_by_id() {
    let folded = message(&[
        r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}"#,
        r#"{"tool_calls":[{"function":{"arguments":"}"}},{"id":"b","function":{"name":"g","arguments":{"y":1e+400}}}]}"#,
    ]);
    assert_eq!(
        folded["tool_calls"],
        json!([
            {"id":"a","function":{"name":"f","arguments":"{}"}},
            {"id":"b","function":{"name":"g","arguments":"{\"y\":1e+400}"}},
        ])
    );
}

#[test]
fn calls_that_share_an_index_are_told_apart_by_id() {
    let folded = message(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"c","function":{"arguments":"}"}}]}"#,
    ]);
    assert_eq!(
        folded["tool_calls"],
        json!([
            {"id":"a","function":{"name":"f","arguments":"{}"}},
            {"id":"b","function":{"name":"g","arguments":"{}"}},
        ])
    );
}

#[test]
fn what_is_blanked_out_in_later_fragments_begins_no_call() {
    let blank = |index: &str, arguments: &str| {
        format!(
            r#"{{"tool_calls":[{{{index}"id":"","type":"","function":{{"name":"","arguments":"{arguments}"}}}}]}}"#
        )
    };
    for index in ["\"index\":0,", ""] {
        let first =
            blank(index, "{").replace(r#""id":"""#, r#""id":"a""#).replace(r#""name":"""#, r#""name":"f""#);
        let folded = message(&[&first, &blank(index, "\\\"x\\\":"), &blank(index, "1}")]);
        assert_eq!(
            folded["tool_calls"],
            json!([{"id":"a","type":"","function":{"name":"f","arguments":"{\"x\":1}"}}])
        );
    }
}

#[test]
fn the_older_function_call_is_merged_too() {
    let folded = message(&[
        r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{"}}"#,
        r#"{"function_call":{"name":"f","arguments":"}"}}"#,
    ]);
    assert_eq!(
        folded,
        json!({"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}})
    );
}

#[test]
fn unknown_members_survive_at_every_level() {
    let answer = fold([
        r#"{"id":"1","object":"chat.completion.chunk","service_tier":null,"x_top":[1],"prompt_progress":{"total":1},"choices":[{"index":0,"x_choice":1,"delta":{"x_delta":"a","x_list":[1],"x_null":null}}]}"#,
        r#"{"id":"1","object":"chat.completion.chunk","service_tier":"default","x_top":[2],"usage":null,"choices":[{"index":0,"x_choice":null,"delta":{"x_delta":"b","x_list":[2]}}]}"#,
        r#"{"usage":{"total_tokens":18446744073709551616},"x_top":null}"#,
    ]);
    assert_eq!(
        answer.to_string(),
        concat!(
            r#"{"id":"1","object":"chat.completion","service_tier":"default","x_top":[2],"choices":[{"index":0,"x_choice":1,"#,
            r#""message":{"role":"assistant","content":"","x_delta":"b","x_list":[1,2],"x_null":null}}],"#,
            r#""usage":{"total_tokens":18446744073709551616}}"#
        )
    );
}

#[test]
fn numbers_keep_their_digits() {
    for number in
        ["-0", "1e+400", "-7.2e-05", "18446744073709551616", "0.10000000000000000000000000000001", "131.0"]
    {
        let chunk = format!(r#"{{"choices":[],"timings":{{"x":{number}}}}}"#);
        let mut fold = Fold::default();
        fold.push(chunk.as_bytes()).unwrap();
        let answer = fold.finish();
        let text = str::from_utf8(&answer).unwrap();
        assert!(text.contains(&format!(r#""timings":{{"x":{number}}}"#)), "{text}");
    }
}

#[test]
fn logprobs_are_concatenated_whatever_their_arrays_are_called() {
    let answer = fold([
        r#"{"object":"text_completion","choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"],"text_offset":[0],"content":null}}]}"#,
        r#"{"object":"text_completion","choices":[{"index":0,"text":"b","logprobs":{"tokens":["b"],"text_offset":[1],"content":[]}}]}"#,
        r#"{"object":"text_completion","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}"#,
    ]);
    let expected = json!({"index":0,"text":"ab","logprobs":{"tokens":["a","b"],"text_offset":[0,1],"content":[]},"finish_reason":"stop"});
    assert_eq!(answer["choices"], json!([expected]));
    assert_eq!(answer["object"], "text_completion");
}

#[test]
fn usage_comes_from_the_engine_else_its_timings_else_is_zero() {
    let sent = r#"{"choices":[],"usage":{"total_tokens":7},"timings":{"prompt_n":1}}"#;
    assert_eq!(fold([sent])["usage"], json!({"total_tokens":7}));
    let timings = r#"{"choices":[],"usage":null,"timings":{"cache_n":30,"prompt_n":2,"predicted_n":5}}"#;
    let from_timings = json!({"completion_tokens":5,"prompt_tokens":32,"total_tokens":37,"prompt_tokens_details":{"cached_tokens":30}});
    assert_eq!(fold([timings])["usage"], from_timings);
    let zeros = json!({"completion_tokens":0,"prompt_tokens":0,"total_tokens":0,"prompt_tokens_details":{"cached_tokens":0}});
    assert_eq!(fold([r#"{"choices":null}"#])["usage"], zeros);
    assert_eq!(fold([])["choices"], json!([]));
}

#[test]
fn what_is_no_chunk_is_an_error() {
    for chunk in ["", "[]", "7", "{", &format!("{{\"a\":{}{}}}", "[".repeat(9999), "]".repeat(9999))] {
        assert_eq!(Fold::default().push(chunk.as_bytes()).unwrap_err().code.as_str(), "upstream_malformed");
    }
}

proptest! {
    /// Fragments of several choices, mixed in any order, come out as each choice's own concatenation.
    #[test]
    fn interleaved_choices_are_put_together(
        fragments in prop::collection::vec((0..3_u64, ".{0,4}", ".{0,4}"), 1..30),
    ) {
        let mut fold = Fold::default();
        for (index, content, arguments) in &fragments {
            let call = json!([{"index": 0, "function": {"arguments": arguments}}]);
            let delta = json!({"content": content, "tool_calls": call});
            fold.push(json!({"choices": [{"index": index, "delta": delta}]}).to_string().as_bytes()).unwrap();
        }
        let answer: Value = serde_json::from_slice(&fold.finish()).unwrap();
        let mut seen: Vec<_> = fragments.iter().map(|fragment| fragment.0).collect();
        seen.sort_unstable();
        seen.dedup();
        let choices = answer["choices"].as_array().unwrap();
        prop_assert_eq!(choices.iter().map(|choice| choice["index"].as_u64().unwrap()).collect::<Vec<_>>(), seen.clone());
        for (choice, index) in choices.iter().zip(seen) {
            let own = || fragments.iter().filter(|fragment| fragment.0 == index);
            let content: String = own().map(|fragment| fragment.1.as_str()).collect();
            let arguments: String = own().map(|fragment| fragment.2.as_str()).collect();
            let message = &choice["message"];
            prop_assert_eq!(message["content"].as_str().unwrap_or(""), content);
            prop_assert_eq!(message["tool_calls"][0]["function"]["arguments"].as_str(), Some(arguments.as_str()));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Fold::default().push(&bytes);
    }
}
