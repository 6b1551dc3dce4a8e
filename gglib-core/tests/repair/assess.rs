//! The verdict on turns, and what second turns make of broken ones.

use gglib_core::repair::{Broken, Choice, Tools, Turn, Verdict, assess};
use serde_json::json;

use crate::{AUTO, Members, REQUIRED, tools, turn};

/// The verdict in short: the calls when they are mended, the faults when they are broken.
fn verdict(turn: &Turn, choice: &str) -> String {
    match assess(turn, &tools(choice), &Members) {
        Verdict::Sound => "sound".to_owned(),
        Verdict::Mended(calls) => {
            calls.iter().map(|call| format!("{}{}", call.name, call.arguments)).collect::<Vec<_>>().join(" ")
        }
        Verdict::Broken(broken) => faults(&broken),
    }
}

fn faults(broken: &Broken) -> String {
    broken.faults().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn broken(turn: &Turn, choice: &str) -> Broken {
    match assess(turn, &tools(choice), &Members) {
        Verdict::Broken(broken) => broken,
        other => panic!("{other:?}"),
    }
}

/// What `second` makes of `first`: name, id and arguments of each call, or the faults.
fn completed(first: &Turn, second: &Turn) -> Result<String, String> {
    let calls = broken(first, AUTO).completed(second, &tools(AUTO), &Members);
    calls
        .map(|calls| {
            let call = |call: &gglib_core::repair::Call| {
                format!("{}:{}{}", call.id.as_deref().unwrap_or_default(), call.name, call.arguments)
            };
            calls.iter().map(call).collect::<Vec<_>>().join(" ")
        })
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

#[test]
fn calls_that_share_an_index_are_given_one_each() {
    let mut turn = Turn::default();
    for call in [
        r#"{"index":0,"id":"a","function":{"name":"ping","arguments":"{"}}"#,
        r#"{"index":0,"function":{"arguments":"}"}}"#,
        r#"{"index":0,"id":"b","function":{"name":"get_weather","arguments":"{\"city\":\"Bonn\"}"}}"#,
    ] {
        turn.push(format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}"#).as_bytes());
    }
    assert_eq!(verdict(&turn, AUTO), r#"ping{} get_weather{"city":"Bonn"}"#);
}

#[test]
fn what_is_blanked_out_in_later_fragments_begins_no_call() {
    for index in [json!(0), json!(null)] {
        let mut turn = Turn::default();
        for (id, name, arguments) in [("a", "get_weather", "{\"city\":"), ("", "", "\"Bo"), ("", "", "nn\"}")]
        {
            let call =
                json!({ "index": index, "id": id, "function": { "name": name, "arguments": arguments } });
            turn.push(json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }).to_string().as_bytes());
        }
        let calls: Vec<_> = turn
            .calls
            .iter()
            .map(|call| (call.id.as_deref(), call.name.as_str(), call.arguments.as_str()))
            .collect();
        assert_eq!(calls, [(Some("a"), "get_weather", r#"{"city":"Bonn"}"#)], "{index}");
    }
}

#[test]
fn calls_without_an_index_are_given_one() {
    let without = |calls: &[&str]| {
        let mut turn = Turn::default();
        for call in calls {
            turn.push(format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}"#).as_bytes());
        }
        verdict(&turn, AUTO)
    };
    let ping = r#"{"id":"a","function":{"name":"ping","arguments":"{}"}}"#;
    let weather =
        r#"{"index":0,"id":"b","function":{"name":"get_weather","arguments":"{\"city\":\"Bonn\"}"}}"#;
    assert_eq!(without(&[ping]), "ping{}");
    assert_eq!(without(&[ping, weather]), r#"ping{} get_weather{"city":"Bonn"}"#);
    assert_eq!(without(&[weather]), "sound");
}

#[test]
fn every_kind_of_fault_is_told() {
    let table = [
        (r#"{"city":"Berlin","unit":"c"}"#, "sound"),
        (r#"{"city":"Berlin"#, "not_json"),
        (r#""Berlin""#, "not_json"),
        (r#"{"unit":"c"}"#, "missing `/city`"),
        (r#"{"city":"Berlin","land":"de"}"#, "extra `/land`"),
        (r#"{"city":7}"#, "mistyped `/city`"),
        (r#"{"city":"Berlin","unit":"F"}"#, "invalid `/unit`"),
        (r#"{"city":"Berlin",}"#, r#"get_weather{"city":"Berlin"}"#),
        ("```json\n{\"unit\":\"c\"}\n```", "missing `/city`"),
        ("", "missing `/city`"),
    ];
    for (arguments, expected) in table {
        assert_eq!(
            verdict(&turn(&[("get_weather", arguments)], "tool_calls"), AUTO),
            expected,
            "{arguments}"
        );
    }
    assert_eq!(verdict(&turn(&[("get_wether", "{}")], "tool_calls"), AUTO), "unknown_function `get_wether`");
    assert_eq!(verdict(&turn(&[("ping", r#"{"any":1}"#)], "tool_calls"), AUTO), "sound");
    assert_eq!(verdict(&turn(&[("ping", "")], "tool_calls"), AUTO), "ping{}");
}

#[test]
fn only_the_last_call_can_have_been_cut_off() {
    let open = r#"{"city":"Berlin""#;
    assert_eq!(
        verdict(&turn(&[("get_weather", open)], "tool_calls"), AUTO),
        r#"get_weather{"city":"Berlin"}"#
    );
    assert_eq!(verdict(&turn(&[("get_weather", open)], "length"), AUTO), "not_json");
    assert_eq!(
        verdict(&turn(&[("get_weather", open), ("ping", "{}")], "length"), AUTO),
        r#"get_weather{"city":"Berlin"} ping{}"#
    );
}

#[test]
fn a_call_is_missed_only_where_the_client_insists_on_one() {
    let text = turn(&[], "stop");
    assert_eq!(verdict(&text, AUTO), "sound");
    assert_eq!(verdict(&text, "null"), "sound");
    assert_eq!(verdict(&text, REQUIRED), "no_call");
    let named = r#"{"type":"function","function":{"name":"ping"}}"#;
    assert_eq!(verdict(&text, named), "no_call");
    let other = turn(&[("get_weather", r#"{"city":"Berlin"}"#)], "tool_calls");
    assert_eq!(verdict(&other, named), "unknown_function `get_weather`");
    assert_eq!(Choice::read(Some(br#""none""#)), None);
}

#[test]
fn what_cannot_be_judged_is_not_repaired() {
    for tools in [
        json!([]),
        json!("all"),
        json!([{ "type": "web_search" }]),
        json!([{ "type": "function", "function": { "parameters": {} } }]),
    ] {
        assert_eq!(Tools::read(tools.to_string().as_bytes(), None), None, "{tools}");
    }
    assert_eq!(Tools::read(br#"[{"function":{"name":"f"}}]"#, Some(br#""none""#)), None);
    let odd = json!([
        { "function": { "name": "f", "parameters": { "type": "nonsense" } } },
        { "function": { "name": "g", "parameters": { "$ref": "https://example.com/schema" } } },
    ]);
    let odd = Tools::read(odd.to_string().as_bytes(), None).unwrap();
    for name in ["f", "g"] {
        assert_eq!(assess(&turn(&[(name, r#"{"a":1}"#)], "tool_calls"), &odd, &Members), Verdict::Sound);
    }
}

#[test]
fn good_calls_keep_their_places_and_the_second_turn_fills_the_others() {
    let berlin = ("get_weather", r#"{"city":"Berlin"}"#);
    let paris = ("get_weather", r#"{"city":"Paris"}"#);
    let torn = ("get_weather", r#"{"city":"Par"#);
    let first = turn(&[berlin, torn, ("ping", "{}")], "tool_calls");
    // The good call that it repeats does not count, however it is written.
    let second = turn(&[("get_weather", r#"{ "city": "Berlin" }"#), paris, ("ping", "{}")], "tool_calls");
    let whole = r#"id0:get_weather{"city":"Berlin"} id1:get_weather{"city":"Paris"} id2:ping{}"#;
    assert_eq!(completed(&first, &second).as_deref(), Ok(whole));
    assert_eq!(completed(&first, &turn(&[berlin], "stop")), Err("no_call".to_owned()));
    assert_eq!(completed(&first, &turn(&[torn], "stop")), Err("not_json, no_call".to_owned()));
    assert_eq!(completed(&first, &turn(&[("ping", r#"{"n":1}"#)], "stop")), Err("no_call".to_owned()));
    // Packaging is mended there too, but not what was cut off.
    let fenced = turn(&[("get_weather", r#"{"city":"Paris",}"#)], "tool_calls");
    assert_eq!(completed(&first, &fenced).as_deref(), Ok(whole));
    let cut = turn(&[("get_weather", r#"{"city":"Paris""#)], "tool_calls");
    assert_eq!(completed(&first, &cut), Err("not_json, no_call".to_owned()));
}

/// Whatever the order of the places, and of the calls that come for them.
#[test]
fn a_place_for_any_function_leaves_the_others_theirs() {
    let unknown = ("get_wether", "{}");
    let torn = ("get_weather", "{");
    let paris = ("get_weather", r#"{"city":"Paris"}"#);
    for second in [[paris, ("ping", "{}")], [("ping", "{}"), paris]] {
        let second = turn(&second, "tool_calls");
        let calls = completed(&turn(&[unknown, torn], "tool_calls"), &second);
        assert_eq!(calls.as_deref(), Ok(r#"id0:ping{} id1:get_weather{"city":"Paris"}"#));
        let calls = completed(&turn(&[torn, unknown], "tool_calls"), &second);
        assert_eq!(calls.as_deref(), Ok(r#"id0:get_weather{"city":"Paris"} id1:ping{}"#));
    }
}

#[test]
fn an_unknown_function_is_replaced_by_any_and_calls_in_text_are_read() {
    let first = turn(&[("get_wether", r#"{"city":"Berlin"}"#)], "tool_calls");
    let mut second = Turn::default();
    let text = r#"<tool_call>{"name":"get_weather","arguments":{"city":"Berlin"}}</tool_call>"#;
    second.push(json!({ "choices": [{ "delta": { "content": text } }] }).to_string().as_bytes());
    assert_eq!(completed(&first, &second).as_deref(), Ok(r#"id0:get_weather{"city":"Berlin"}"#));
    let torn = text.replace("}}", "}");
    let mut second = Turn::default();
    second.push(json!({ "choices": [{ "delta": { "content": torn } }] }).to_string().as_bytes());
    assert_eq!(completed(&first, &second), Err("no_call".to_owned()));
}

#[test]
fn fragments_are_put_together_and_other_choices_passed_over() {
    let mut turn = Turn::default();
    for chunk in [
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"other"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"Well, "}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":{"x":1}}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"é"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"\":1}"}}]}}]}"#,
        "no chunk",
        r#"{"choices":[],"usage":{"completion_tokens":12}}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
    ] {
        turn.push(chunk.as_bytes());
    }
    let calls: Vec<_> =
        turn.calls.iter().map(|call| (call.index, call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(calls, [(Some(1), "g", r#"{"x":1}"#), (Some(0), "f", r#"{"é":1}"#)]);
    assert_eq!((turn.text.as_str(), turn.tokens), ("Well, ", 12));
    assert_eq!(turn.finish_reason.as_deref(), Some("tool_calls"));
}
