//! The body of the second request.

use bytes::Bytes;
use gglib_core::repair::{Form, Verdict, assess, second_body};
use serde_json::{Value, json};

use crate::{AUTO, Members, tools, turn};

fn body(calls: &[(&str, &str)], form: Form) -> String {
    let Verdict::Broken(broken) = assess(&turn(calls, "tool_calls"), &tools(AUTO), &Members) else {
        panic!("not broken")
    };
    let body = r#"{"model":"m","tools":[1] , "tool_choice":"auto","seed":1e400}"#;
    let body = second_body(Bytes::from_static(body.as_bytes()), &broken, &tools(AUTO), form).unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

#[test]
fn a_template_that_knows_tools_is_made_to_call_and_a_lone_call_stays_alone() {
    let bad = ("get_weather", "{");
    assert_eq!(
        body(&[bad], Form::Required),
        r#"{"model":"m","tools":[1] , "tool_choice":"required","seed":1e400,"stream":true,"stream_options":{"include_usage":true},"parallel_tool_calls":false}"#
    );
    assert_eq!(
        body(&[bad, ("ping", "{}")], Form::Required),
        r#"{"model":"m","tools":[1] , "tool_choice":"required","seed":1e400,"stream":true,"stream_options":{"include_usage":true}}"#
    );
}

#[test]
fn a_template_that_does_not_gets_our_grammar_for_the_call_that_was_meant() {
    let body = body(&[("ping", "["), ("get_weather", r#"{"city":"x"}"#)], Form::Grammar);
    let (before, grammar) = body.split_once(r#","grammar":""#).unwrap();
    assert_eq!(
        before,
        r#"{"model":"m","tools":null , "tool_choice":null,"seed":1e400,"stream":true,"stream_options":{"include_usage":true}"#
    );
    assert!(
        grammar.starts_with(r"root ::= r1\n") && grammar.contains("ping") && !grammar.contains("get_weather")
    );
}

#[test]
fn the_engine_says_itself_which_form_it_needs() {
    let caps = |tools, calls| {
        Form::of(
            format!(r#"{{"x":1,"chat_template_caps":{{"y":true,"supports_tools":{tools},"supports_tool_calls":{calls}}}}}"#)
                .as_bytes(),
        )
    };
    assert_eq!(caps(false, false), Form::Grammar);
    assert_eq!(caps(true, false), Form::Required);
    assert_eq!(caps(false, true), Form::Required);
    assert_eq!(Form::of(b"proxy error"), Form::Required);
}

#[test]
fn a_model_whose_template_knows_no_tools_is_told_of_them_and_of_what_was_called() {
    let call = |name: &str, arguments: &str| json!({ "id": "1", "type": "function", "function": { "name": name, "arguments": arguments } });
    let result = |content: Value| json!({ "role": "tool", "tool_call_id": "1", "content": content });
    let told = |messages: Value| -> Value {
        let tool = json!({ "type": "function", "function": { "name": "ping" } });
        let body = json!({ "messages": messages, "tools": [tool] }).to_string();
        let Verdict::Broken(broken) = assess(&turn(&[("ping", "[")], "stop"), &tools(AUTO), &Members) else {
            panic!("not broken")
        };
        let body = second_body(Bytes::from(body), &broken, &tools(AUTO), Form::Grammar).unwrap();
        serde_json::from_slice::<Value>(&body).unwrap()["messages"].take()
    };
    let description = "# Tools\n\nThese functions may be called:\n<tools>\n\
        {\"type\":\"function\",\"function\":{\"name\":\"ping\"}}\n</tools>\n\n\
        A call is a JSON object with the name of the function and its arguments:\n\
        <tool_call>{\"name\":<function>,\"arguments\":<object>}</tool_call>";
    let user = json!({ "role": "user", "content": "Hi" });

    let earlier = json!([
        { "role": "system", "content": "Be brief." },
        user,
        { "role": "assistant", "content": null, "tool_calls": [call("ping", "{ \"a\" : 1.50 }"), call("ping", "{}")] },
        result(json!("one")),
        result(json!([{ "type": "text", "text": "two" }])),
        { "role": "assistant", "content": "And:", "tool_calls": [call("ping", "torn")] },
        result(Value::Null),
    ]);
    let written =
        |arguments: &str| format!("<tool_call>{{\"name\":\"ping\",\"arguments\":{arguments}}}</tool_call>");
    let response = |text: &str| format!("<tool_response>\n{text}\n</tool_response>");
    assert_eq!(
        told(earlier),
        json!([
            { "role": "system", "content": format!("Be brief.\n\n{description}") },
            user,
            { "role": "assistant", "content": format!("{}\n{}", written("{\"a\":1.50}"), written("{}")) },
            { "role": "user", "content": format!("{}\n{}", response("one"), response("two")) },
            { "role": "assistant", "content": format!("And:\n{}", written("\"torn\"")) },
            { "role": "user", "content": response("") },
        ])
    );
    // Many clients send every member of a message, also those that say nothing.
    let silent =
        json!({ "role": "assistant", "content": "Hello.", "tool_calls": null, "function_call": null });
    let none = json!({ "role": "assistant", "content": "Hello.", "tool_calls": [] });
    assert_eq!(
        told(json!([silent, none])),
        json!([
            { "role": "system", "content": description },
            { "role": "assistant", "content": "Hello.", "function_call": null },
            { "role": "assistant", "content": "Hello." },
        ])
    );
    // A system message is made where there is none; one in parts gets another part.
    assert_eq!(told(json!([user])), json!([{ "role": "system", "content": description }, user]));
    let parts = json!([{ "role": "developer", "content": [{ "type": "text", "text": "x" }] }]);
    assert_eq!(told(parts)[0]["content"][1], json!({ "type": "text", "text": description }));
    // What is not as the protocol says is the engine's to judge.
    for odd in [json!("x"), json!([{ "role": "assistant", "tool_calls": 1 }])] {
        assert_eq!(told(odd.clone()), odd);
    }
}
