//! Grammars made of schemas.

use bytes::Bytes;
use gglib_core::repair::{Form, Tools, Turn, Verdict, assess, second_body};
use serde_json::{Value, json};

use crate::Members;

/// The rules that are made of the schema of one function's arguments, without those of JSON.
fn rules(parameters: &Value) -> String {
    let tools = json!([{ "function": { "name": "f\"", "parameters": parameters } }]);
    let tools = Tools::read(tools.to_string().as_bytes(), Some(br#""required""#)).unwrap();
    let Verdict::Broken(broken) = assess(&Turn::default(), &tools, &Members) else { panic!("not broken") };
    let body = second_body(Bytes::from_static(b"{}"), &broken, &tools, Form::Grammar).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let grammar = body["grammar"].as_str().unwrap();
    let own = |line: &&str| line.starts_with('r') && line[1..].starts_with(|c: char| c.is_ascii_digit());
    grammar.lines().filter(own).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_common_keywords_are_said_in_the_grammar() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string" },
            "unit": { "enum": ["c", "f", 1, null] },
            "days": { "type": "integer", "minimum": 1, "maximum": 3 },
            "count": { "type": "integer", "minimum": 0 },
            "note": { "type": ["string", "null"], "maxLength": 20 },
            "tags": { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 3 },
            "spot": { "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x", "y\n"] },
            "any": {},
            "either": { "anyOf": [{ "type": "boolean" }, { "const": "no" }] },
        },
        "required": ["unit", "city"],
    });
    insta::assert_snapshot!(rules(&schema));
}

#[test]
fn members_that_may_be_left_out_never_leave_a_comma_behind() {
    let three = json!({ "properties": { "a": { "type": "integer" }, "b": { "type": "integer" }, "c": { "type": "integer" } } });
    insta::assert_snapshot!(rules(&three));
}

#[test]
fn what_a_grammar_cannot_say_is_any_json() {
    for odd in [json!(true), json!({ "allOf": [{}, {}] }), json!({ "type": "nonsense" })] {
        assert_eq!(
            rules(&odd),
            r#"r1 ::= "<tool_call>{\"name\":\"f\\\"\",\"arguments\":" object "}</tool_call>""#.to_owned()
        );
    }
    let of = |count: usize| {
        let members = (0..count).map(|number| (format!("m{number}"), json!({ "const": number })));
        rules(&json!({ "properties": members.collect::<Value>() }))
    };
    assert!(of(200).contains("m199"));
    assert_eq!(of(201), rules(&json!(true)));
    // Lists of lists: beyond a thousand rules, any value will do.
    let wide = |inner: Value| json!({ "anyOf": vec![inner; 40] });
    let rules = rules(&json!({ "properties": { "a": wide(wide(json!({ "const": 1 }))) } }));
    assert!(rules.contains("value") && rules.lines().count() < 1100, "{rules}");
}

#[test]
fn each_type_of_a_list_is_an_alternative_once() {
    let of = |types: Value| rules(&json!({ "properties": { "a": { "type": types, "maxLength": 9 } } }));
    let twice = of(json!(["string", "null", "string"]));
    assert_eq!(twice, of(json!(["string", "null"])));
    assert!(twice.contains("r1 | r2"), "{twice}");
    assert_eq!(of(json!([["string"], "nonsense", "string", "null"])), twice, "what is no type says nothing");
    assert_eq!(of(json!(vec!["string"; 20_000])), of(json!(["string"])));
    assert!(of(json!(["nonsense"])).contains("\\\"a\\\":\" value"), "{}", of(json!(["nonsense"])));
}
