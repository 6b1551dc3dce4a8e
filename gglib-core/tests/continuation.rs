//! Two streams spliced into one: nothing repeated, nothing lost, one end, and usage that adds up.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use bytes::Bytes;
use gglib_core::api::chunk::PromptProgress;
use gglib_core::continuation::{Continuation, Delivered, NotContinuable, Splicer};
use proptest::prelude::*;
use serde_json::{Value, json};

fn chunk(id: &str, delta: &Value, finish_reason: Option<&str>) -> Bytes {
    json!({
        "choices": [{ "finish_reason": finish_reason, "index": 0, "delta": delta }],
        "created": id.len(), "id": id, "model": "m", "object": "chat.completion.chunk",
    })
    .to_string()
    .into()
}

fn text(id: &str, text: &str) -> Bytes {
    chunk(id, &json!({ "content": text }), None)
}

fn usage(prompt: u64, completion: u64) -> Bytes {
    json!({
        "choices": [], "id": "second", "timings": { "predicted_n": completion },
        "usage": { "completion_tokens": completion, "prompt_tokens": prompt, "total_tokens": prompt + completion,
            "prompt_tokens_details": { "cached_tokens": 0 } },
    })
    .to_string()
    .into()
}

fn progress(total: u64) -> PromptProgress {
    PromptProgress { total, cache: 0, processed: total, time_ms: 1.0 }
}

/// What a client was handed by the first engine: the role, then these pieces.
fn delivered<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Delivered {
    let mut delivered = Delivered::default();
    delivered.observe(&chunk("first", &json!({ "role": "assistant", "content": null }), None));
    for piece in pieces {
        delivered.observe(&text("first", piece));
    }
    delivered
}

fn request(more: &Value) -> Bytes {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "stream": true });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    body.to_string().into()
}

fn plan(more: &Value, delivered: Delivered) -> Result<Continuation, NotContinuable> {
    Continuation::new(request(more), delivered)
}

fn ask(more: &Value, delivered: Delivered) -> (Value, Splicer) {
    let continuation = plan(more, delivered).unwrap();
    assert_eq!(continuation.ending(), None, "{more}");
    let (body, splicer) = continuation.issue().unwrap();
    (serde_json::from_slice(&body).unwrap(), splicer)
}

/// What the client gets, as it would see it.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    text: String,
    ids: Vec<String>,
    roles: usize,
    finishes: Vec<String>,
    usage: Option<Value>,
}

impl Seen {
    fn take(&mut self, chunks: Vec<Bytes>) {
        for chunk in chunks {
            let chunk: Value = serde_json::from_slice(&chunk).unwrap();
            let choice = &chunk["choices"][0];
            self.text += choice["delta"]["content"].as_str().unwrap_or_default();
            self.ids.push(chunk["id"].as_str().unwrap().to_owned());
            self.roles += usize::from(!choice["delta"]["role"].is_null());
            self.finishes.extend(choice["finish_reason"].as_str().map(str::to_owned));
            if let Some(usage) = chunk.get("usage") {
                assert_eq!(self.usage, None, "one usage");
                self.usage = Some(usage.clone());
            }
        }
    }
}

fn splice(splicer: &mut Splicer, chunks: impl IntoIterator<Item = Bytes>) -> Seen {
    let mut seen = Seen::default();
    for chunk in chunks {
        seen.take(splicer.chunk(&chunk));
    }
    seen
}

/// How an engine repeats the prefix.
#[derive(Clone, Copy, Debug)]
enum Repeats {
    /// In the chunk with the first progress, as llama-server does.
    WithProgress,
    Whole,
    /// In one chunk with what is new, as llama-server does when it is not asked for its progress.
    Joined,
    Bytewise,
    /// Not, and it tells of its progress.
    Not,
    /// Not, and it tells nothing.
    NotSilently,
}

/// A fresh engine's answer to a conversation that ends in `prefix`.
fn fresh(prefix: &str, tail: &[String], repeats: Repeats) -> Vec<Bytes> {
    let role = json!({ "role": "assistant", "content": null });
    let mut chunks = vec![chunk("second", &role, None)];
    let with_progress = |delta: &Value| {
        let mut value: Value = serde_json::from_slice(&chunk("second", delta, None)).unwrap();
        value["prompt_progress"] = json!({ "total": 9, "cache": 0, "processed": 3, "time_ms": 0 });
        Bytes::from(value.to_string())
    };
    match repeats {
        Repeats::WithProgress => chunks.push(with_progress(&json!({ "content": prefix }))),
        Repeats::Whole => chunks.push(text("second", prefix)),
        Repeats::Bytewise => chunks.extend(prefix.chars().map(|char| text("second", &char.to_string()))),
        Repeats::Not => chunks.push(with_progress(&role)),
        Repeats::Joined | Repeats::NotSilently => {}
    }
    chunks.push(chunk("second", &role, None));
    if let (Repeats::Joined, Some((first, rest))) = (repeats, tail.split_first()) {
        chunks.push(text("second", &(prefix.to_owned() + first)));
        chunks.extend(rest.iter().map(|piece| text("second", piece)));
        return chunks;
    }
    chunks.extend(tail.iter().map(|piece| text("second", piece)));
    chunks
}

fn end() -> Bytes {
    chunk("second", &json!({}), Some("stop"))
}

#[test]
fn the_request_is_the_conversation_with_the_text_behind_it_and_the_rest_byte_for_byte() {
    let body =
        r#"{ "seed":1e400, "messages": [ {"role":"user","content":"a\u00e9"} ] ,"max_tokens":7, "x":{}}"#;
    let continuation = Continuation::new(Bytes::from(body), delivered(["The \"", "é\n", "🌱"])).unwrap();
    let (body, _) = continuation.issue().unwrap();
    assert_eq!(
        body,
        r#"{ "seed":1e400, "messages": [ {"role":"user","content":"a\u00e9"},{"role":"assistant","content":"The \"é\n🌱"} ] ,"max_tokens":4, "x":{}}"#
    );
}

#[test]
fn every_limit_is_reduced_and_the_answer_ends_when_the_one_that_counts_is_spent() {
    let two = || delivered(["a", "b"]);
    let limits = |more: Value| {
        let (body, _) = ask(&more, two());
        [&body["max_completion_tokens"], &body["max_tokens"], &body["n_predict"]].map(Value::as_i64)
    };
    assert_eq!(limits(json!({})), [None, None, None]);
    assert_eq!(limits(json!({ "max_tokens": 3 })), [None, Some(1), None]);
    assert_eq!(limits(json!({ "max_tokens": -1, "n_predict": 9 })), [None, Some(-1), Some(7)]);
    let all = json!({ "max_completion_tokens": 1, "max_tokens": 8, "n_predict": 4 });
    assert_eq!(limits(all), [Some(1), Some(6), Some(2)]);
    // A negative number is no bound, and decides nonetheless.
    assert_eq!(limits(json!({ "max_tokens": 2, "n_predict": -1 })), [None, Some(1), Some(-1)]);
    let unbounded = json!({ "max_completion_tokens": -1, "max_tokens": 2, "n_predict": null });
    assert_eq!(limits(unbounded), [Some(-1), Some(1), None]);

    for spent in [
        json!({ "max_tokens": 2 }),
        json!({ "max_completion_tokens": 1, "max_tokens": 9 }),
        json!({ "n_predict": 2, "max_completion_tokens": 9, "max_tokens": -1 }),
        json!({ "n_predict": null, "max_tokens": 2 }),
    ] {
        for include_usage in [false, true] {
            let mut more = spent.clone();
            more["stream_options"] = json!({ "include_usage": include_usage });
            let mut heard = two();
            heard.observe_progress(&progress(30));
            let mut seen = Seen::default();
            seen.take(plan(&more, heard).unwrap().ending().unwrap());
            assert_eq!((seen.finishes, seen.text.as_str()), (vec!["length".to_owned()], ""));
            let expected = json!({ "prompt_tokens": 30, "completion_tokens": 2, "total_tokens": 32 });
            assert_eq!(seen.usage, include_usage.then_some(expected));
            assert!(seen.ids.iter().all(|id| id == "first"));
        }
    }
}

#[test]
fn where_there_is_a_bound_the_tokens_can_be_counted() {
    let uncounted =
        |more: Value, text| plan(&more, delivered([text])).unwrap().uncounted().map(str::to_owned);
    let limited = json!({ "max_tokens": 9 });
    assert_eq!(uncounted(limited.clone(), "🌱").as_deref(), Some("🌱"));
    // Text that was held back comes as one chunk.
    for more in [json!({ "stop": "\nUser:" }), json!({ "tools": [{}] }), json!({})] {
        let mut more = more;
        more["n_predict"] = 9.into();
        assert_eq!(uncounted(more, "\nUse a").as_deref(), Some("\nUse a"));
    }
    assert_eq!(uncounted(json!({}), "🌱"), None);
    assert_eq!(uncounted(json!({ "n_predict": -1, "max_tokens": 9 }), "🌱"), None);
    let mut continuation = plan(&limited, delivered(["🌱", "a"])).unwrap();
    continuation.count(4);
    let (body, _) = continuation.issue().unwrap();
    assert!(body.ends_with(br#""max_tokens":5}"#), "{body:?}");
    let mut continuation = plan(&limited, delivered(["🌱"])).unwrap();
    continuation.count(9);
    assert_eq!(continuation.ending().map(|chunks| chunks.len()), Some(1));
}

#[test]
fn what_asks_for_more_than_text_is_not_continued() {
    let refused = |more: Value| plan(&more, delivered(["a"])).unwrap_err().to_string();
    for (member, value) in [
        ("n", json!(2)),
        ("n_cmpl", json!(2)),
        ("logprobs", json!(true)),
        ("top_logprobs", json!(3)),
        ("n_probs", json!(1)),
        ("json_schema", json!({ "type": "object" })),
        ("grammar", json!("root ::= [a-z]")),
        ("response_format", json!({ "type": "json_object" })),
        ("response_format", json!({ "type": "json_schema", "json_schema": {} })),
        ("tool_choice", json!("required")),
        ("tool_choice", json!({ "type": "function", "function": { "name": "f" } })),
        ("function_call", json!({ "name": "f" })),
        ("stop", json!(7)),
        ("max_tokens", json!("many")),
        ("messages", json!([])),
        ("messages", json!("Hi")),
    ] {
        assert_eq!(refused(json!({ member: value })), format!("`{member}` of the request rules it out"));
    }
    let messages = json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "So" }]);
    assert_eq!(refused(json!({ "messages": messages })), "the last message is the assistant's own");
    for fine in [
        json!({ "n": 2, "n_cmpl": 1 }),
        json!({ "n": 1, "n_cmpl": null }),
        json!({ "n": 1, "logprobs": false, "top_logprobs": 0, "grammar": "", "stop": null, "max_tokens": null }),
        json!({ "response_format": { "type": "text" }, "stop": ["a", "b"] }),
        json!({ "tools": [{}], "tool_choice": "auto" }),
        json!({ "tools": [{}], "tool_choice": "none", "function_call": "auto" }),
    ] {
        ask(&fine, delivered(["a"]));
    }
}

#[test]
fn what_was_delivered_must_be_text_and_nothing_else() {
    let after = |deltas: &[Value]| {
        let mut delivered = Delivered::default();
        for delta in deltas {
            delivered.observe(&chunk("first", delta, None));
        }
        plan(&json!({}), delivered).map(|_| ()).map_err(|reason| reason.to_string())
    };
    let word = json!({ "content": "a" });
    assert_eq!(after(&[word.clone(), json!({}), word.clone()]), Ok(()));
    assert!(after(&[]).unwrap_err().starts_with("nothing"));
    assert!(after(&[json!({ "content": "" }), json!({})]).unwrap_err().starts_with("nothing"));
    for (delta, kind) in [
        (json!({ "reasoning_content": "hm" }), "(Reasoning)"),
        (json!({ "refusal": "no" }), "(Refusal)"),
        (json!({ "content": "b", "tool_calls": [{ "index": 0 }] }), "(ToolCall)"),
    ] {
        let reason = after(&[delta, word.clone()]).unwrap_err();
        assert!(reason.ends_with(kind), "{reason}");
    }
    assert!(after(&[word, json!({ "content": [{ "text": "b" }] })]).unwrap_err().contains("shape"));
}

#[test]
fn texts_of_two_choices_are_not_joined() {
    for delta in [json!({ "content": "b" }), json!({ "role": "assistant" })] {
        let mut heard = delivered(["a"]);
        let other = json!({ "id": "first", "choices": [{ "index": 1, "delta": delta }] });
        heard.observe(other.to_string().as_bytes());
        let reason = plan(&json!({}), heard).unwrap_err().to_string();
        assert_eq!(reason, "more than one choice has been delivered");
    }
    // One that the second engine adds is its own affair: nothing of it is taken for a repetition.
    let (_, mut splicer) = ask(&json!({}), delivered(["a"]));
    let other = json!({ "id": "first", "choices": [{ "index": 1, "delta": { "content": "a" } }] });
    let other = Bytes::from(other.to_string());
    assert_eq!(splicer.chunk(&other), [other]);
}

#[test]
fn usage_counts_the_first_prompt_and_both_answers() {
    let with_usage = json!({ "stream_options": { "include_usage": true } });
    // What the first engine told of its prompt is exact, also where one chunk held several tokens.
    for (told, expected) in [(Some(30), [30, 5, 35]), (None, [31, 4, 35])] {
        let mut heard = delivered(["🌱"]);
        if let Some(total) = told {
            heard.observe_progress(&progress(total));
        }
        let (_, mut splicer) = ask(&with_usage, heard);
        let seen = splice(&mut splicer, [text("second", "x"), end(), usage(32, 3)]);
        let usage = seen.usage.unwrap();
        let counts = ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| &usage[name]);
        assert_eq!(counts, expected, "{told:?}");
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    }
}

#[test]
fn absurd_counts_saturate() {
    let with_usage = json!({ "stream_options": { "include_usage": true } });
    let (_, mut splicer) = ask(&with_usage, delivered(["a"]));
    let absurd = json!({ "choices": [], "id": "second",
        "usage": { "prompt_tokens": u64::MAX, "completion_tokens": u64::MAX } });
    let usage = splice(&mut splicer, [end(), absurd.to_string().into()]).usage.unwrap();
    let counts = ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| &usage[name]);
    assert_eq!(counts, [u64::MAX - 1, u64::MAX, u64::MAX]);
}

/// The bytes of the real engine, which repeats the prefix with its first progress.
#[test]
fn a_recorded_continuation_is_spliced() {
    let mut heard = delivered(["The", " sea", " is", " a", " vast"]);
    heard.observe_progress(&progress(36));
    let (_, mut splicer) = ask(&json!({ "stream_options": { "include_usage": true } }), heard);
    let recorded = include_str!("fixtures/chat_prefix.sse");
    let data =
        recorded.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let seen = splice(&mut splicer, data.map(Bytes::from));
    assert_eq!((seen.text.as_str(), seen.roles), (" and mysterious realm that", 0));
    assert_eq!(seen.finishes, ["length"]);
    let usage = seen.usage.unwrap();
    let counts = ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| &usage[name]);
    assert_eq!(counts, [36, 9, 45]);
    assert!(seen.ids.iter().all(|id| id == "first"));
}

#[test]
fn a_call_that_comes_after_the_seam_passes_as_it_is() {
    let (_, mut splicer) = ask(&json!({ "tools": [{}], "stop": ["ab"] }), delivered(["a"]));
    let call =
        json!({ "tool_calls": [{ "index": 0, "id": "1", "function": { "name": "f", "arguments": "" } }] });
    let calls = chunk("second", &call, Some("tool_calls"));
    let out = splicer.chunk(&calls);
    assert_eq!(out, [chunk("first", &call, Some("tool_calls"))]);
}

#[test]
fn an_end_in_the_chunk_of_the_last_text_is_kept() {
    for stop in [json!(null), json!("aXY")] {
        let (_, mut splicer) = ask(&json!({ "stop": stop }), delivered(["a"]));
        let last = chunk("second", &json!({ "role": "assistant", "content": "X" }), Some("length"));
        let seen = splice(&mut splicer, [last]);
        assert_eq!((seen.text.as_str(), seen.roles), ("X", 0), "{stop}");
        assert_eq!(seen.finishes, ["length"], "{stop}");
    }
}

#[test]
fn a_text_that_repeats_itself_is_no_echo_where_progress_was_told() {
    let (_, mut splicer) = ask(&json!({}), delivered(["1\n"]));
    let tail = ["1\n".to_owned(), "1\n".to_owned()];
    assert_eq!(splice(&mut splicer, fresh("1\n", &tail, Repeats::Not)).text, "1\n1\n");
    let (_, mut splicer) = ask(&json!({}), delivered(["1\n"]));
    assert_eq!(splice(&mut splicer, fresh("1\n", &tail, Repeats::WithProgress)).text, "1\n1\n");
    // Progress that the client is not told of.
    let (_, mut splicer) = ask(&json!({}), delivered(["1\n"]));
    splicer.observe_progress();
    assert_eq!(splice(&mut splicer, fresh("1\n", &tail, Repeats::NotSilently)).text, "1\n1\n");
}

#[test]
fn progress_reaches_a_client_that_asked_for_it_without_a_second_role() {
    let (_, mut splicer) = ask(&json!({}), delivered(["a"]));
    let chunks = fresh("a", &["b".to_owned()], Repeats::Not);
    let out: Vec<_> = chunks.iter().flat_map(|chunk| splicer.chunk(chunk)).collect();
    assert_eq!(out.len(), 2);
    let told: Value = serde_json::from_slice(&out[0]).unwrap();
    assert_eq!((&told["prompt_progress"]["total"], &told["choices"][0]["delta"]), (&json!(9), &json!({})));
}

/// One of these members of a chunk or delta, or none.
fn members(of: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    prop::sample::subsequence(of.to_vec(), 0..=of.len()).prop_map(|members| members.join(","))
}

/// Chunks that are JSON, made of what servers send, of the wrong type here and there.
fn odd_chunks() -> impl Strategy<Value = Vec<String>> {
    let delta = members(&[
        r#""content":"b""#,
        r#""content":"a""#,
        r#""content":null"#,
        r#""content":[1]"#,
        r#""role":"assistant""#,
        r#""reasoning_content":"h""#,
        r#""tool_calls":[{"index":0}]"#,
    ]);
    let choice = (delta, members(&[r#""index":0"#, r#""index":1"#, r#""finish_reason":"stop""#])).prop_map(
        |(delta, more)| format!(r#"{{"delta":{{{delta}}}{}{more}}}"#, if more.is_empty() { "" } else { "," }),
    );
    let choices = prop::collection::vec(choice, 0..3)
        .prop_map(|choices| format!(r#""choices":[{}]"#, choices.join(",")));
    let more = members(&[
        r#""id":"second""#,
        r#""id":7"#,
        r#""usage":{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615}"#,
        r#""usage":{"prompt_tokens":-1}"#,
        r#""usage":[]"#,
        r#""prompt_progress":{"total":18446744073709551615,"processed":0}"#,
        r#""timings":{}"#,
        r#""error":{}"#,
    ]);
    let chunk = (choices, more).prop_map(|(choices, more)| {
        if more.is_empty() { format!("{{{choices}}}") } else { format!("{{{choices},{more}}}") }
    });
    prop::collection::vec(chunk, 0..8)
}

/// Pieces of text, with characters of one to four bytes.
fn pieces() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ab .\"\\\\\né🌱]{1,4}", 1..12)
}

proptest! {
    #[test]
    fn nothing_is_repeated_or_lost_at_the_seam(
        first in pieces(),
        tail in pieces(),
        repeats in prop::sample::select(vec![
            Repeats::WithProgress, Repeats::Whole, Repeats::Joined, Repeats::Bytewise, Repeats::Not, Repeats::NotSilently,
        ]),
    ) {
        let prefix = first.concat();
        // Without progress only the text can tell: what begins with all of the prefix is taken for its repetition.
        let ambiguous = matches!(repeats, Repeats::NotSilently) && tail.concat().starts_with(&prefix);
        prop_assume!(!ambiguous);
        let (body, mut splicer) = ask(&json!({}), delivered(first.iter().map(String::as_str)));
        prop_assert_eq!(&body["messages"][1], &json!({ "role": "assistant", "content": prefix }));
        let chunks = fresh(&prefix, &tail, repeats).into_iter().chain([end()]);
        let seen = splice(&mut splicer, chunks);
        prop_assert_eq!(&seen.text, &tail.concat());
        prop_assert_eq!(seen.roles, 0);
        prop_assert_eq!(&seen.finishes, &["stop"]);
        prop_assert!(seen.ids.iter().all(|id| id == "first"));
    }

    /// With one stop string that does not overlap with itself, see `Seam`.
    #[test]
    fn a_stop_string_stops_wherever_the_engine_died(
        whole in prop::collection::vec("[abc🌱]{1,2}", 2..14),
        died_after in any::<prop::sample::Index>(),
        stop in Just(vec!['a', 'b', 'c', '🌱']).prop_shuffle(),
        letters in 3_usize..=4,
        repeats in prop::sample::select(vec![Repeats::WithProgress, Repeats::Not]),
    ) {
        let stop: String = stop.into_iter().take(letters).collect();
        let mut died_after = 1 + died_after.index(whole.len() - 1);
        while whole[..died_after].concat().contains(&stop) {
            died_after -= 1;
        }
        let (first, tail) = whole.split_at(died_after);
        let prefix = first.concat();

        // The engine knows only its own text, of which it sends nothing that a stop string ends.
        let tail = tail.concat();
        let sent = &tail[..tail.find(&stop).unwrap_or(tail.len())];
        let sent: Vec<String> = sent.chars().map(|char| char.to_string()).collect();
        let (_, mut splicer) = ask(&json!({ "stop": stop }), delivered(first.iter().map(String::as_str)));
        let chunks = fresh(&prefix, &sent, repeats).into_iter().chain([end()]);
        let seen = splice(&mut splicer, chunks);

        // What was delivered of the stop string cannot be taken back.
        let whole = whole.concat();
        let end = whole.find(&stop).unwrap_or(whole.len()).max(prefix.len());
        prop_assert_eq!(&seen.text, &whole[prefix.len()..end], "{:?} after {:?}", stop, prefix);
        prop_assert_eq!(&seen.finishes, &["stop"]);
    }

    #[test]
    fn no_chunks_make_it_panic(odd in odd_chunks(), noise in any::<Vec<u8>>()) {
        let mut heard = Delivered::default();
        for chunk in &odd {
            prop_assert!(serde_json::from_str::<Value>(chunk).is_ok(), "{}", chunk);
            heard.observe(chunk.as_bytes());
        }
        let more = json!({ "stop": "ab", "max_tokens": 9, "stream_options": { "include_usage": true } });
        for heard in [heard, delivered(["a"])] {
            let Ok(continuation) = plan(&more, heard) else { continue };
            let (_, mut splicer) = continuation.issue().unwrap();
            for chunk in odd.iter().map(String::as_bytes).chain([&*noise]) {
                splicer.chunk(&Bytes::copy_from_slice(chunk));
            }
        }
    }
}
