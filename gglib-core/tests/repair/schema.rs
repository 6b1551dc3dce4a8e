//! Schemas written out, and those that are refused.

use gglib_core::repair::{SchemaError, Tools, flatten};
use serde_json::{Value, json};

#[test]
fn references_are_written_out_and_names_and_values_are_none() {
    let schema = json!({
        "type": "object",
        "properties": {
            "$ref": { "$ref": "#/definitions/name" },
            "list": { "items": [{ "$ref": "#/$defs/point" }], "default": { "$ref": "left alone" } },
            "pair": { "allOf": [{ "minProperties": 1 }], "$ref": "#/$defs/point" },
        },
        "enum": [{ "$ref": "left alone" }],
        "definitions": { "name": { "type": "string" } },
        "$defs": { "point": { "properties": { "x": { "$ref": "#/definitions/name" } } } },
    });
    let point = json!({ "properties": { "x": { "type": "string" } } });
    let expected = json!({
        "type": "object",
        "properties": {
            "$ref": { "type": "string" },
            "list": { "items": [point], "default": { "$ref": "left alone" } },
            "pair": { "allOf": [{ "minProperties": 1 }, point] },
        },
        "enum": [{ "$ref": "left alone" }],
    });
    assert_eq!(flatten(&schema), Ok(expected));
    assert_eq!(flatten(&json!(true)), Ok(json!(true)));
}

#[test]
fn what_leads_outside_or_has_no_end_is_refused() {
    let reference = |text: &str| Err(SchemaError::Reference(format!("\"{text}\"")));
    for target in ["https://example.com/a", "other.json#/a", "#name", "#/nowhere"] {
        assert_eq!(flatten(&json!({ "items": { "$ref": target } })), reference(target));
    }
    assert_eq!(flatten(&json!({ "$ref": 3 })), Err(SchemaError::Reference("3".to_owned())));
    for recursive in [
        json!({ "$ref": "#" }),
        json!({ "items": { "$ref": "#" } }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "not": { "$ref": "#/$defs/b" } }, "b": { "$ref": "#/$defs/a" } } }),
        json!({ "$dynamicRef": "#x" }),
    ] {
        assert_eq!(flatten(&recursive), Err(SchemaError::Recursive), "{recursive}");
    }
}

#[test]
fn doubling_at_every_level_and_endless_depth_are_too_large() {
    let mut definitions = json!({ "d0": { "type": "string" } });
    for level in 1..40 {
        let below = json!({ "$ref": format!("#/$defs/d{}", level - 1) });
        definitions[format!("d{level}")] = json!({ "allOf": [below, below] });
    }
    let doubling = json!({ "$ref": "#/$defs/d39", "$defs": definitions });
    assert_eq!(flatten(&doubling), Err(SchemaError::TooLarge));

    let deep = (0..200).fold(json!(true), |inner, _| json!({ "items": inner }));
    assert_eq!(flatten(&deep), Err(SchemaError::TooLarge));
    let long: Vec<Value> = (0..100_000).map(Value::from).collect();
    assert_eq!(flatten(&json!({ "enum": long })), Err(SchemaError::TooLarge));
}

#[test]
fn what_says_nothing_takes_place_too() {
    // Short, and a million schemas when written out.
    for nothing in [json!({}), json!(true), json!({ "$ref": "#/$defs/any" })] {
        let list = json!({ "allOf": vec![nothing; 1000] });
        let schema = json!({
            "anyOf": vec![json!({ "$ref": "#/$defs/list" }); 1000],
            "$defs": { "any": {}, "list": list },
        });
        assert_eq!(flatten(&schema), Err(SchemaError::TooLarge));
    }
    // A pointer takes as long as it is, wherever it stands.
    let name = "n".repeat(2000);
    let pointer = json!({ "$ref": format!("#/$defs/{name}") });
    let mut schema = json!({ "anyOf": vec![json!({ "$ref": "#/$defs/a" }); 200], "$defs": { "a": pointer } });
    schema["$defs"][name] = json!({});
    assert_eq!(flatten(&schema), Err(SchemaError::TooLarge));
}

#[test]
fn the_schemas_of_many_functions_are_bounded_together() {
    // 200 kB each when written out.
    let parameters = json!({
        "anyOf": vec![json!({ "$ref": "#/$defs/a" }); 100],
        "$defs": { "a": { "const": "x".repeat(2000) } },
    });
    let named = |number| json!({ "function": { "name": format!("f{number}"), "parameters": parameters } });
    let tools: Value = (0..20).map(named).collect();
    let tools = Tools::read(tools.to_string().as_bytes(), None).unwrap();
    let judged = tools.functions.iter().map(|function| function.parameters.is_some());
    assert_eq!(judged.collect::<Vec<_>>(), [[true; 5], [false; 5], [false; 5], [false; 5]].concat());
}
