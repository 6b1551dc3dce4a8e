//! Mending: what it does, what it leaves alone, and that no value changes.

use std::borrow::Cow;

use gglib_core::repair::{Ending, mend};
use proptest::prelude::*;
use serde_json::{Map, Value};

/// What becomes of arguments when the model ended by itself.
fn mended(arguments: &str) -> Option<String> {
    mend(arguments, Ending::Complete).map(Cow::into_owned)
}

#[test]
fn packaging_goes_and_values_stay() {
    let table = [
        ("", "{}"),
        (" \n", "{}"),
        ("```json\n{\"a\": 1}\n```", "{\"a\": 1}"),
        ("```{\"a\": 1}```\n", "{\"a\": 1}"),
        (r#"{"a": [1, 2, ], "b": {"c": 1e400,},}"#, r#"{"a": [1, 2 ], "b": {"c": 1e400}}"#),
        (r#""{\"a\": \"x\"}""#, r#"{"a": "x"}"#),
        (r#"{"a": "x""#, r#"{"a": "x"}"#),
        (r#"{"a": {"b": [1]"#, r#"{"a": {"b": [1]}}"#),
        (r#"{"a": true"#, r#"{"a": true}"#),
        ("```json\n{\"a\": \",}\"\n```", "{\"a\": \",}\"}"),
    ];
    for (arguments, expected) in table {
        assert_eq!(mended(arguments).as_deref(), Some(expected), "{arguments}");
    }
}

#[test]
fn whatever_has_two_readings_is_left_alone() {
    let table = [
        "{",
        r#"{"a""#,
        r#"{"a":"#,
        r#"{"a": 1"#,
        r#"{"a": "x","#,
        r#"{"a": "x"#,
        r#"{"a": "2}}"#,
        r#"{"a": ["x""#,
        r#"{"a": [1, 2"#,
        r#"{"a": tru"#,
        r"{'a': 1}",
        "{a: 1}",
        r#"{"a": ,}"#,
        r#"{"a": [,]}"#,
        r#"{"a": 1,,}"#,
        r#"{"a": 1}}"#,
        r#"Sure: {"a": 1}"#,
        "```json\n```",
        "[1]",
        "3",
        "null",
        r#""text""#,
    ];
    for arguments in table {
        assert_eq!(mended(arguments), None, "{arguments}");
    }
}

#[test]
fn what_was_cut_off_lacks_more_than_a_brace() {
    assert_eq!(mend(r#"{"a": "x""#, Ending::CutOff), None);
    assert_eq!(mend("", Ending::CutOff), None);
    assert_eq!(mend(r#"{"a": "x",}"#, Ending::CutOff).as_deref(), Some(r#"{"a": "x"}"#));
}

/// JSON objects, printed with or without whitespace.
fn objects() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c,{}\\[\\]\"\\\\` é]{0,6}".prop_map(Value::from),
    ];
    let value = scalar.prop_recursive(3, 12, 4, |inner| {
        let names = "[a-c,}\"]{0,3}";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..4)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    });
    let members = prop::collection::vec(("[a-c,}\"]{0,3}", value), 0..4);
    (members, any::<bool>()).prop_map(|(members, pretty)| {
        let object = Value::Object(Map::from_iter(members));
        if pretty { format!("{object:#}") } else { object.to_string() }
    })
}

/// Strings, names of members and everything else that is neither punctuation nor whitespace, as written.
fn scalars(text: &str) -> Vec<String> {
    let mut scalars = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '"' => {
                let mut escaped = false;
                1 + rest[1..]
                    .find(|c| {
                        let end = c == '"' && !escaped;
                        escaped = c == '\\' && !escaped;
                        end
                    })
                    .map_or(rest.len() - 1, |end| end + 1)
            }
            '{' | '}' | '[' | ']' | ',' | ':' => 0,
            c if c.is_whitespace() => 0,
            _ => rest.find(|c: char| "{}[],:\" \n".contains(c)).unwrap_or(rest.len()),
        };
        if len == 0 {
            rest = &rest[first.len_utf8()..];
        } else {
            scalars.push(rest[..len].to_owned());
            rest = &rest[len..];
        }
    }
    scalars
}

proptest! {
    #[test]
    fn an_object_is_never_changed(object in objects(), cut_off in any::<bool>()) {
        let ending = if cut_off { Ending::CutOff } else { Ending::Complete };
        prop_assert_eq!(mend(&object, ending), Some(Cow::Borrowed(&*object)));
    }

    #[test]
    fn no_scalar_is_invented_dropped_or_moved(object in objects(), cut in any::<prop::sample::Index>(), comma in any::<bool>()) {
        let mut at = cut.index(object.len() + 1);
        while !object.is_char_boundary(at) {
            at -= 1;
        }
        let mut broken = object[..at].to_owned();
        if comma {
            broken.push_str(",}");
        }
        if let Some(mended) = mended(&broken) {
            prop_assert!(serde_json::from_str::<Map<String, Value>>(&mended).is_ok(), "{}", mended);
            prop_assert_eq!(scalars(&mended), scalars(&broken), "{}", broken);
        }
    }

    #[test]
    fn a_missing_end_is_restored_to_the_letter_or_not_at_all(object in objects()) {
        let cut = object.strip_suffix('}').unwrap();
        if let Some(mended) = mended(cut) {
            prop_assert_eq!(
                serde_json::from_str::<Value>(&mended).unwrap(),
                serde_json::from_str::<Value>(&object).unwrap()
            );
        }
    }

    #[test]
    fn any_text_at_all_is_an_object_afterwards_or_left_alone(text in "[a{}\\[\\]\",:1` \\\\]{0,12}") {
        if let Some(mended) = mended(&text) {
            prop_assert!(serde_json::from_str::<Map<String, Value>>(&mended).is_ok(), "{} {}", text, mended);
        }
    }
}
