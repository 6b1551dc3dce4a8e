//! Values pass through a fold as they were written, and an event that is no chunk leaves no trace.

use gglib_core::api::fold::Fold;
use proptest::prelude::*;
use serde_json::{Value, json};

fn fold<'a>(chunks: impl IntoIterator<Item = &'a str>) -> Value {
    let mut fold = Fold::default();
    for chunk in chunks {
        fold.push(chunk.as_bytes()).expect(chunk);
    }
    serde_json::from_slice(&fold.finish()).expect("JSON")
}

#[test]
fn values_keep_their_spelling_wherever_they_stand() {
    let chunks = [
        r#"{ "x" : @, "choices":[ {"index":0,"x":@ ,"logprobs":{"l":[@],"e":[ ]},"delta":{"x":@,"tool_calls":[{"x":@,"function":{"x": @}}]}}],"usage":@}"#,
        r#"{"choices":[{"index":0,"logprobs":{"l":[]},"delta":{}}, 7]}"#,
        r#"{"choices":[{"index":0,"logprobs":{"l":[ @, @ ],"e":[@]},"delta":{}}]}"#,
    ];
    let answer = r#"{"x":@,"choices":[{"index":0,"x":@,"logprobs":{"l":[@, @, @ ],"e":[ @]},"message":{"role":"assistant","content":null,"x":@,"tool_calls":[{"x":@,"function":{"x":@}}]}}],"usage":@,"object":"chat.completion"}"#;
    let strings = r#""\u00e9\/\"\\""#;
    let nested = r#"{ "b" : [1.0 , -0],"a":1E5, "a":"}\\" }"#;
    for value in ["1e400", "18446744073709551616", "1.0", "-0", "1E5", strings, nested, "[ ]"] {
        let mut fold = Fold::default();
        for chunk in chunks {
            fold.push(chunk.replace('@', value).as_bytes()).unwrap();
        }
        assert_eq!(fold.finish(), answer.replace('@', value));
    }
    let call =
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":{"y":1e400, "z":[1.0,-0]}}}]}}]}"#;
    let arguments = &fold([call])["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(arguments, r#"{"y":1e400, "z":[1.0,-0]}"#);
}

#[test]
fn escaped_text_is_told_apart_by_what_it_says() {
    let answer = fold([
        r#"{"choices":[{"delta":{"cont\u0065nt":"a\n","tool_calls":[{"id":"\u0061","function":{"name":"f"}}]}}]}"#,
        r#"{"choices":[{"delta":{"content":"\u00e9\"","tool_calls":[{"id":"b","x":1},{"id":"a","x":2}]}}]}"#,
    ]);
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["content"], "a\né\"");
    let calls = json!([{"id":"a","function":{"name":"f"},"x":2},{"id":"b","x":1}]);
    assert_eq!(message["tool_calls"], calls);
}

#[test]
fn members_around_the_choices_may_change_at_any_time() {
    let chunk = |before: &str, text: &str, behind: &str| {
        format!(r#"{{{before}"choices":[{{"index":0,"text":"{text}"}}]{behind}}}"#)
    };
    let chunks = [
        chunk(r#""x":1,"#, "a", r#","y":1"#),
        chunk(r#""x":1,"#, "b", r#","y":1"#),
        chunk(r#""x":1,"#, "c", r#","z":1,"y":1"#),
        chunk(r#""x":2,"#, "d", r#","z":1,"y":1"#),
        chunk(r#""x":2,"#, "e", r#","z":1,"y":2"#),
        chunk(r#""x":1,"#, "f", r#","y":null"#),
        r#"{"x":3}"#.to_owned(),
        chunk(r#""x":1,"#, "g", r#","y":null"#),
    ];
    let mut answer = fold(chunks.iter().map(String::as_str));
    assert_eq!(answer["choices"][0]["text"].take(), "abcdefg");
    answer.as_object_mut().unwrap().remove("usage");
    assert_eq!(answer, json!({"x":1,"choices":[{"index":0,"text":null}],"y":2,"z":1}));

    let twice = r#"{"choices":[{"text":"a"}],"choices":[{"text":"b"}]}"#;
    let text =
        |chunks: &[&str]| fold(chunks.iter().copied())["choices"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(text(&[twice, twice]), text(&[twice]).repeat(2));
}

#[test]
fn nothing_of_an_event_that_is_no_chunk_is_taken() {
    let chunk = |choices: &str| format!(r#"{{"x":1,"choices":{choices},"y":1}}"#);
    let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let text = r#"[{"text":"a"}]"#;
    let mut fold = Fold::default();
    for choices in [text, &deep(126)] {
        fold.push(chunk(choices).as_bytes()).expect(choices);
    }
    for wrong in [r#"[{"text":"b"}"#, r#"[{"text":"b"}]]"#, r#"[{"text":"b\ud83c"}]"#, "", &deep(127)] {
        fold.push(chunk(wrong).as_bytes()).expect_err(wrong);
    }
    fold.push(b"{\"x\":1,\"choices\":[{\"text\":\"\xf0\x9f\"}],\"y\":1}").unwrap_err();
    fold.push(chunk(text).as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&fold.finish()).unwrap();
    assert_eq!(answer["choices"], json!([{"index":0,"text":"aa"}]));
}

proptest! {
    #[test]
    fn any_value_is_found_whole(value in any_value(), pretty in any::<bool>()) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        let chunk = format!(r#"{{"x":{text},"choices":[{{"x":{text},"l":[{text}]}}],"usage":{text}}}"#);
        let mut fold = Fold::default();
        fold.push(chunk.as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&fold.finish()).unwrap();
        prop_assert_eq!(&answer["x"], &value);
        prop_assert_eq!(&answer["choices"], &json!([{"index":0,"x":value,"l":[value]}]));
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = "[a\"\\\\{}\\[\\]:, \n\u{e9}]{0,6}";
    let leaf = prop_oneof![Just(Value::Null), any::<f64>().prop_map(Value::from), text.prop_map(Value::from)];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((text, inner), 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}
