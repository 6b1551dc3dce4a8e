//! The body of the second request.

use bytes::Bytes;
use gglib_core::repair::{Form, Verdict, assess, second_body};

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
