//! Calls in a client's history.

use gglib_core::repair::mend_history;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A history whose second message has calls with these arguments.
fn history(arguments: &[Value]) -> String {
    let calls: Vec<Value> = arguments
        .iter()
        .map(|arguments| json!({ "id": "1", "function": { "name": "f", "arguments": arguments } }))
        .collect();
    json!([{ "role": "user", "content": "\"tool_calls\"" }, { "role": "assistant", "tool_calls": calls }])
        .to_string()
}

#[test]
fn bad_arguments_are_mended_or_named() {
    let good =
        [r"{}", r#"{"a":1}"#, "[]", r#"{"a":1e300,"b":123456789012345678901234567890}"#, r#""\ud83c\udf31""#];
    for good in good.map(Value::from).into_iter().chain([json!({ "a": 1 }), json!(null), json!(3)]) {
        assert_eq!(mend_history(&history(&[good])), Ok(None));
    }
    let mended = mend_history(&history(&[json!("{}"), json!(""), json!("```\n{\"a\": \"é\",}\n```")]));
    assert_eq!(mended, Ok(Some(history(&[json!("{}"), json!("{}"), json!("{\"a\": \"é\"}")]))));
    // How that answer ended is not known any more.
    for bad in ["{", "{\"a\": \"x\"", "{\"a\": 1, \"b"] {
        let error = mend_history(&history(&[json!("{}"), json!(bad)])).unwrap_err();
        assert_eq!(error.member, "messages[1].tool_calls[1].function.arguments", "{bad}");
    }
    // What skipping over a value does not see, and an engine answers 500 to, or dies of.
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(9999), "]".repeat(9999));
    for (bad, expected) in [
        (r#"{"a":"\ud83d"}"#, "hex escape"),
        (r#"{"a":[{"b":1e400}]}"#, "number out of range"),
        (&deep, "recursion limit exceeded"),
    ] {
        let error = mend_history(&history(&[json!(bad)])).unwrap_err();
        assert_eq!(error.member, "messages[1].tool_calls[0].function.arguments", "{bad}");
        assert!(error.problem.contains(expected), "{}", error.problem);
    }
    assert_eq!(
        mend_history(&history(&[json!("{")])).unwrap_err().to_string(),
        "`messages[1].tool_calls[0].function.arguments` is not JSON (EOF while parsing an object at line 1 \
         column 1); correct these arguments, or remove the call and its answer from the conversation"
    );
}

#[test]
fn what_is_not_as_the_protocol_says_is_left_to_the_engine() {
    for odd in [
        r#""tool_calls""#,
        r#"{"tool_calls":[]}"#,
        r#"[3,{"tool_calls":3},{"tool_calls":[3,{"function":3},{"function":{}},{}]}]"#,
        r#"[{"tool_calls":null}]"#,
    ] {
        assert_eq!(mend_history(odd), Ok(None), "{odd}");
    }
}

proptest! {
    #[test]
    fn everything_around_the_arguments_stays_byte_for_byte(content in ".{0,20}", space in " {0,3}") {
        let text = |arguments: &str| format!(
            "[ {{\"x\":1e400,{space}\"content\":{},\"tool_calls\":[{{\"function\":{{\"arguments\":{space}{}}}}}{space}]}}]",
            Value::from(&*content), Value::from(arguments),
        );
        prop_assert_eq!(mend_history(&text("{\"a\":[1,]}")), Ok(Some(text("{\"a\":[1]}"))));
    }
}
