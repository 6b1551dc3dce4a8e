//! Edits of a request body change what they name and nothing else.

use bytes::Bytes;
use gglib_core::api::body::{BodyError, JsonObject, MAX_DEPTH, MAX_MEMBERS};
use gglib_core::api::error::ApiError;
use proptest::prelude::*;
use serde_json::value::RawValue;

fn parse(text: &str) -> Result<JsonObject, BodyError> {
    JsonObject::parse(Bytes::copy_from_slice(text.as_bytes()))
}

fn object(text: &str) -> JsonObject {
    parse(text).expect("a JSON object")
}

#[test]
fn a_body_that_is_no_object_is_refused_with_its_place() {
    let cases = [
        ("", "the body is empty; send one JSON object"),
        (" \r\n\t", "the body is empty; send one JSON object"),
        ("[1]", "the body is an array; send one JSON object"),
        (" \"x\"", "the body is a string; send one JSON object"),
        ("1e400", "the body is a number; send one JSON object"),
        ("null", "the body is null; send one JSON object"),
        ("true", "the body is a boolean; send one JSON object"),
        ("{bad", "the body is not valid JSON: key must be a string at line 1 column 2"),
        ("{\n  \"a\": 1,\n}", "the body is not valid JSON: trailing comma at line 3 column 1"),
        ("{\"a\": 01}", "the body is not valid JSON: invalid number at line 1 column 8"),
        ("{\"a\": 1", "the body is not valid JSON: EOF while parsing an object at line 1 column 7"),
        ("{\"a\": 1} x", "the body is not valid JSON: trailing characters at line 1 column 10"),
        ("{} {}", "the body is not valid JSON: trailing characters at line 1 column 4"),
        ("[1,", "the body is not valid JSON: EOF while parsing a value at line 1 column 3"),
        (
            "{\"a\": \"\u{1}\"}",
            "the body is not valid JSON: control character (\\u0000-\\u001F) found while parsing a string at line 1 column 7",
        ),
        (
            "{\"a\":\n \"é\\ud83c\"}",
            "the escape at line 2 column 5 is half of a surrogate pair; the other half is missing",
        ),
        (
            "{\"a\": \"\\udf31\\ud83c\"}",
            "the escape at line 1 column 8 is half of a surrogate pair; the other half is missing",
        ),
        (
            "{\"a\": {\"\\ud83c\\n\": 1}}",
            "the escape at line 1 column 9 is half of a surrogate pair; the other half is missing",
        ),
    ];
    for (body, expected) in cases {
        let error = parse(body).map(JsonObject::into_bytes).expect_err(body);
        assert_eq!(error.to_string(), expected, "{body:?}");
    }
}

#[test]
fn a_body_of_more_members_than_can_be_meant_is_refused() {
    let body = |members: usize| format!("{{{}\"\":[1,2]}}", "\"\":1,".repeat(members - 1));
    assert_eq!(object(&body(MAX_MEMBERS)).raw_member(""), Some(&b"[1,2]"[..]));
    let error = parse(&body(MAX_MEMBERS + 1)).unwrap_err();
    assert_eq!(error.to_string(), "the body has more than 10000 members");
    assert_eq!(ApiError::from(error).status, 400);
    // What is wrong with the syntax comes first, wherever it stands.
    let error = parse(&format!("{},", body(MAX_MEMBERS + 9))).unwrap_err();
    assert!(matches!(error, BodyError::Syntax(_)), "{error}");
}

#[test]
fn bytes_that_are_no_utf_8_are_refused_with_their_place() {
    let error = JsonObject::parse(Bytes::from_static(b"{\n\"a\": \"\xFF\"}")).unwrap_err();
    assert_eq!(error.to_string(), "the body is not UTF-8 at line 2 column 7");
    let error = JsonObject::parse(Bytes::from_static(b"\xFF")).unwrap_err();
    assert_eq!(error.to_string(), "the body is not UTF-8 at line 1 column 1");
}

#[test]
fn a_refused_body_is_a_400_in_the_protocol() {
    let error = ApiError::from(parse("{").unwrap_err());
    assert_eq!((error.status.as_u16(), error.code.as_str()), (400, "invalid_json"));

    let error = ApiError::from(object(r#"{"model": 7}"#).str_member("model").unwrap_err());
    assert_eq!((error.status.as_u16(), error.code.as_str()), (400, "invalid_request"));
    assert_eq!(
        (error.param.as_deref(), error.to_string().as_str()),
        (Some("model"), "`model` must be a string, not 7")
    );
}

#[test]
fn nesting_is_bounded_and_never_overflows_the_stack() {
    let nested = |open: &str, levels: usize, close: &str| {
        format!("{{\"a\":{}1{}}}", open.repeat(levels), close.repeat(levels))
    };
    for (open, close) in [("[", "]"), ("{\"b\":", "}")] {
        object(&nested(open, MAX_DEPTH - 1, close));
        for levels in [MAX_DEPTH, 300_000] {
            let error = parse(&nested(open, levels, close)).unwrap_err();
            assert!(matches!(error, BodyError::TooDeep { line: 1, .. }), "{error}");
        }
        assert!(matches!(parse(&format!("{{\"a\":{}", open.repeat(300_000))), Err(BodyError::Syntax(_))));
    }
    let error = parse(&nested("[", MAX_DEPTH, "]")).unwrap_err();
    assert_eq!(error.to_string(), "the body is nested deeper than 512 levels at line 1 column 517");
    object(&format!("{{\"brackets in strings\": \"{}\\\"{}\"}}", "[".repeat(2000), "{".repeat(2000)));
    object(&format!("{{\"siblings\": [{}0]}}", "[],{},".repeat(2000)));
}

#[test]
fn strings_end_where_they_end_at_every_alignment() {
    for plain in ["x", "é", "🌱", "\u{A2}\u{DC}"] {
        for length in 0..40 {
            let text = plain.repeat(length);
            let brackets = "[{".repeat(MAX_DEPTH);
            object(&format!(r#"{{"{text}":"{text}\"{brackets}\\","b":"\ud83c\udf31{text}{brackets}"}}"#));
            let error = parse(&format!(r#"{{"a":"{text}\ud83c{text}"}}"#)).unwrap_err();
            let at = 7 + text.len();
            assert!(
                matches!(error, BodyError::LoneSurrogate { line: 1, column } if column == at),
                "{text} {error}"
            );
        }
    }
}

#[test]
fn members_are_read_by_type() {
    let body = object(
        r#"{"model":"a","mod\u0065l":"sm\u006fl","stream":true,"n":2,"x":null,"o":{"k":[1]},"f":1.0}"#,
    );
    assert_eq!(body.str_member("model"), Ok(Some("smol".into())));
    assert_eq!(body.bool_member("stream"), Ok(Some(true)));
    assert_eq!(body.u64_member("n"), Ok(Some(2)));
    assert_eq!(body.raw_member("f"), Some(&b"1.0"[..]));
    assert_eq!(body.object_member("o").unwrap().unwrap().raw_member("k"), Some(&b"[1]"[..]));
    for absent in ["x", "y"] {
        assert_eq!(body.str_member(absent), Ok(None));
        assert_eq!(body.bool_member(absent), Ok(None));
        assert_eq!(body.u64_member(absent), Ok(None));
        assert!(body.object_member(absent).unwrap().is_none());
    }
    let wrong = |error: gglib_core::api::body::MemberError| error.to_string();
    assert_eq!(wrong(body.str_member("o").unwrap_err()), "`o` must be a string, not an object");
    assert_eq!(wrong(body.bool_member("model").unwrap_err()), "`model` must be a boolean, not a string");
    assert_eq!(wrong(body.u64_member("f").unwrap_err()), "`f` must be a non-negative integer, not 1.0");
    assert_eq!(
        wrong(body.u64_member("stream").unwrap_err()),
        "`stream` must be a non-negative integer, not a boolean"
    );
    assert_eq!(wrong(body.object_member("f").unwrap_err()), "`f` must be an object, not 1.0");
    for number in ["-1", "18446744073709551616", "1e400", "1e0"] {
        object(&format!("{{\"n\":{number}}}")).u64_member("n").unwrap_err();
    }
}

#[test]
fn an_edit_reaches_every_occurrence_and_is_read_back() {
    let mut body = object(r#"{"model":1, "mod\u0065l" :{ } ,"x":1}"#);
    body.set("model", "first");
    body.set("model", "é\"");
    assert_eq!(body.str_member("model"), Ok(Some("é\"".into())));
    assert_eq!(body.into_bytes(), r#"{"model":"é\"", "mod\u0065l" :"é\"" ,"x":1}"#);
}

#[test]
fn absent_members_are_added_behind_the_last_one() {
    let mut body = object(" { } \n");
    body.set("a\"b", 1);
    body.set_raw("c", &RawValue::from_string("[ 1e400 ]".into()).unwrap());
    assert_eq!(body.into_bytes(), " {\"a\\\"b\":1,\"c\":[ 1e400 ] } \n");

    let mut body = object(r#"{"stream_options":{"x":1e400 }}"#);
    let mut options = body.object_member("stream_options").unwrap().unwrap();
    options.set("include_usage", true);
    body.set_object("stream_options", options);
    assert_eq!(body.into_bytes(), r#"{"stream_options":{"x":1e400,"include_usage":true }}"#);
}

#[test]
fn without_edits_the_source_itself_comes_back() {
    let source = Bytes::from(r#"{"a": 1}"#);
    let same = JsonObject::parse(source.clone()).unwrap().into_bytes();
    assert_eq!(same.as_ptr(), source.as_ptr());
}

/// A key as written, and as read.
fn key() -> impl Strategy<Value = (String, String)> {
    prop_oneof![
        Just((r#""model""#, "model")),
        Just((r#""mod\u0065l""#, "model")),
        Just((r#""\u006D\u006F\u0064\u0065\u006C""#, "model")),
        Just((r#""stream""#, "stream")),
        Just((r#""str\u0065am""#, "stream")),
        Just((r#""\ud83c\udf31""#, "🌱")),
        Just((r#""🌱""#, "🌱")),
        Just((r#""a\"\\\/b""#, "a\"\\/b")),
        Just((r#""""#, "")),
        Just((r#""$serde_json::private::Number""#, "$serde_json::private::Number")),
        Just((r#""$serde_json::private::RawValue""#, "$serde_json::private::RawValue")),
    ]
    .prop_map(|(written, read)| (written.to_owned(), read.to_owned()))
}

fn space() -> impl Strategy<Value = String> {
    "[ \t\r\n]{0,3}"
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("18446744073709551616"),
        Just("1e400"),
        Just("-0"),
        Just("1E+05"),
        Just("0.10000000000000000000000000000001"),
        Just("null"),
        Just("false"),
        Just("\"\""),
        Just(r#""{\"model\": [1,2],} \\""#),
        Just(r#""\ud83c\udf31\u0000\/ é🌱""#),
        Just("\"\\\\\""),
    ]
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let element =
            (space(), inner, space()).prop_map(|(before, value, after)| before + &value + &after).boxed();
        let member = (space(), key(), space(), element.clone())
            .prop_map(|(before, (written, _), after, value)| format!("{before}{written}{after}:{value}"));
        prop_oneof![
            prop::collection::vec(element, 0..4).prop_map(|elements| format!("[{}]", elements.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

proptest! {
    /// The expected bytes are put together from the same pieces as the source, without any parsing.
    #[test]
    fn only_the_named_members_change(
        members in prop::collection::vec((space(), key(), space(), space(), value(), space()), 0..8),
        outer in (space(), space(), space()),
        edits in prop::collection::btree_map(
            prop_oneof![Just("model"), Just("stream"), Just("🌱"), Just("new")],
            value(),
            0..4,
        ),
    ) {
        let (before, inside, after) = outer;
        let write = |edits: &std::collections::BTreeMap<&str, String>| {
            let mut text = format!("{before}{{");
            let mut absent: Vec<_> = edits.iter()
                .filter(|(name, _)| members.iter().all(|(_, (_, read), ..)| read != *name))
                .map(|(name, value)| format!("\"{name}\":{value}"))
                .collect();
            if members.is_empty() {
                text += &absent.join(",");
                text += &inside;
            }
            for (position, (a, (written, read), b, c, value, d)) in members.iter().enumerate() {
                let value = edits.get(read.as_str()).unwrap_or(value);
                text.extend([a.as_str(), written, b, ":", c, value]);
                if position + 1 == members.len() && !absent.is_empty() {
                    absent.insert(0, String::new());
                    text += &absent.join(",");
                }
                text += d;
                text += if position + 1 == members.len() { "" } else { "," };
            }
            text + "}" + &after
        };
        let source = write(&std::collections::BTreeMap::new());
        let mut body = object(&source);
        for (name, (_, read)) in members.iter().map(|member| (&member.1.1, &member.1)) {
            let last = members.iter().rfind(|member| member.1.1 == *read).map(|member| member.4.as_bytes());
            prop_assert_eq!(body.raw_member(name), last);
        }
        for (name, value) in &edits {
            body.set_raw(name, &RawValue::from_string(value.clone()).unwrap());
        }
        let edited = body.into_bytes();
        prop_assert_eq!(str::from_utf8(&edited).unwrap(), write(&edits));

        let again = JsonObject::parse(edited).unwrap();
        for (name, value) in &edits {
            prop_assert_eq!(again.raw_member(name), Some(value.as_bytes()));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = JsonObject::parse(bytes.into());
    }

    #[test]
    fn what_looks_like_json_does_not_panic_and_agrees_with_the_parser(
        text in r#"[{}\[\]":,\\u0-9a-fD8 ]{0,40}"#,
    ) {
        let text = format!("{{\"a\":\"{text}\"}}");
        let valid = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text).is_ok();
        prop_assert_eq!(parse(&text).is_ok(), valid);
    }
}

#[test]
fn an_element_is_appended_to_an_array_and_to_nothing_else() {
    let appended = |body: &str| {
        let mut object = JsonObject::parse(Bytes::copy_from_slice(body.as_bytes())).unwrap();
        object.append("a", "x").map_err(|error| error.to_string())?;
        Ok::<_, String>(String::from_utf8(object.into_bytes().to_vec()).unwrap())
    };
    assert_eq!(appended(r#"{"a":[]}"#).unwrap(), r#"{"a":["x"]}"#);
    assert_eq!(appended(r#"{ "a" : [ ] }"#).unwrap(), r#"{ "a" : ["x" ] }"#);
    assert_eq!(appended("{\"a\":[1e400,\n [2]\n]}").unwrap(), "{\"a\":[1e400,\n [2],\"x\"\n]}");
    assert_eq!(appended(r#"{"a":[1],"a":[2]}"#).unwrap(), r#"{"a":[2,"x"],"a":[2,"x"]}"#);
    assert_eq!(appended(r#"{"a":"[]"}"#).unwrap_err(), "`a` must be an array, not a string");
    assert_eq!(appended("{}").unwrap_err(), "`a` must be an array, not null");
}
