//! Every outcome by its right bytes, and every breach by its own.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};

use super::*;

const BOUND: Duration = Duration::from_secs(60);
const ROLE: &str =
    r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#;
const TEXT: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#;
const FINISH: &str = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const DONE: &str = "data: [DONE]";
const DIED: &str =
    r#"data: {"error":{"message":"gone","type":"server_error","code":"upstream_died","param":null}}"#;
const WHOLE: &str =
    r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}"#;
const JSON: &str = "application/json";

fn seen(asked: Asked, status: u16, kind: &str, body: &str, end: End) -> Seen {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(kind).unwrap())]);
    Seen {
        asked,
        head: Some(Head { status: StatusCode::from_u16(status).unwrap(), headers }),
        body: body.as_bytes().to_vec(),
        end,
        first_content: None,
        took: Duration::from_secs(1),
    }
}

fn stream(events: &[&str], end: End) -> Seen {
    let body: String = events.iter().flat_map(|event| [event, "\n\n"]).collect();
    seen(Asked::Stream, 200, "text/event-stream", &body, end)
}

fn plain(body: &str) -> Seen {
    seen(Asked::Plain, 200, JSON, body, End::Clean)
}

fn error(status: u16, code: &str) -> Seen {
    let body =
        format!(r#"{{"error":{{"message":"no","type":"server_error","code":"{code}","param":null}}}}"#);
    seen(Asked::Stream, status, JSON, &body, End::Clean)
}

fn with(mut seen: Seen, name: &'static str, value: &'static str) -> Seen {
    let headers = &mut seen.head.as_mut().unwrap().headers;
    headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    seen
}

fn broken(why: Breach) -> Outcome {
    Outcome::Broken { why }
}

fn recovered(how: &str) -> Outcome {
    Outcome::Answered { recovery: Some(how.to_owned()) }
}

#[test]
fn a_full_answer_is_whole_and_ends_once() {
    let whole = Outcome::Answered { recovery: None };
    assert_eq!(plain(WHOLE).judge(BOUND), whole);
    assert_eq!(with(plain(WHOLE), "x-gglib-recovery", "relaunch").judge(BOUND), recovered("relaunch"));
    let answer = [": keep-alive", ROLE, TEXT, FINISH, DONE];
    assert_eq!(stream(&answer, End::Clean).judge(BOUND), whole);
    let resent = with(stream(&answer, End::Clean), "x-gglib-recovery", "resend");
    assert_eq!(resent.judge(BOUND), recovered("resend"));
    let continued = stream(&[ROLE, TEXT, ": gglib-recovery continuation", TEXT, FINISH, DONE], End::Clean);
    assert_eq!(continued.judge(BOUND), recovered("continuation"));
    assert_eq!((continued.content(), plain(WHOLE).content()), ("HelHel".to_owned(), "Hi".to_owned()));
}

#[test]
fn an_explicit_error_is_a_status_with_a_body_or_the_last_event_before_the_cut() {
    let died = |status| Outcome::Failed { status, code: "upstream_died".to_owned() };
    assert_eq!(error(502, "upstream_died").judge(BOUND), died(StatusCode::BAD_GATEWAY));
    assert_eq!(stream(&[ROLE, TEXT, DIED], End::Cut).judge(BOUND), died(StatusCode::OK));
}

#[test]
fn a_refusal_says_when_to_come_back() {
    let refused = |status: StatusCode, code: &str, millis| Outcome::Refused {
        status,
        code: code.to_owned(),
        retry_after: Duration::from_millis(millis),
    };
    let full = with(error(429, "queue_full"), "retry-after", "3");
    assert_eq!(full.judge(BOUND), refused(StatusCode::TOO_MANY_REQUESTS, "queue_full", 3000));
    let none = |code: &str| broken(Breach::NoRetryAfter { code: code.to_owned() });
    assert_eq!(error(429, "queue_full").judge(BOUND), none("queue_full"));
    assert_eq!(error(503, "model_loading").judge(BOUND), none("model_loading"));
    for wrong in ["0", "61", "1.5", "-1", "soon", ""] {
        let seen = with(error(503, "model_loading"), "retry-after", wrong);
        assert_eq!(seen.judge(BOUND), broken(Breach::RetryAfter(wrong.to_owned())));
    }
    // A 502 need not say so.
    assert!(error(502, "upstream_died").judge(BOUND).is_kept());

    let event = |metadata: &str| {
        let error = format!(
            r#"data: {{"error":{{"message":"full","type":"rate_limit_error","code":"queue_full","param":null{metadata}}}}}"#
        );
        stream(&[&error], End::Cut).judge(BOUND)
    };
    let told = event(r#","metadata":{"retry_after_ms":1200}"#);
    assert_eq!(told, refused(StatusCode::TOO_MANY_REQUESTS, "queue_full", 1200));
    assert_eq!(event(""), none("queue_full"));
}

#[test]
fn a_stream_that_breaks_the_promise_is_told_in_which_way() {
    let cases: [(&[&str], End, Breach); 15] = [
        (&[], End::Clean, Breach::Unfinished),
        (&[ROLE, TEXT], End::Clean, Breach::Unfinished),
        (&[ROLE, TEXT, DONE], End::Clean, Breach::Unfinished),
        (&[ROLE, TEXT], End::Cut, Breach::CutWithoutError),
        (&[ROLE, TEXT, FINISH, DONE], End::Cut, Breach::CutWithoutError),
        (&[ROLE, TEXT, FINISH], End::Clean, Breach::Done(0)),
        (&[ROLE, TEXT, FINISH, DONE, DONE], End::Clean, Breach::Done(2)),
        (&[ROLE, TEXT, DONE, FINISH], End::Clean, Breach::Done(1)),
        (&[ROLE, TEXT, DIED, DONE], End::Clean, Breach::AfterError),
        (&[ROLE, TEXT, DIED, DIED], End::Cut, Breach::AfterError),
        (&[ROLE, TEXT, DIED], End::Clean, Breach::CleanAfterError),
        (&[TEXT, FINISH, DONE], End::Clean, Breach::Role(0)),
        (&[ROLE, TEXT, ROLE, FINISH, DONE], End::Clean, Breach::Role(2)),
        (&[ROLE, "data: {\"choices\":"], End::Clean, Breach::Malformed),
        (&[ROLE, "data: upstream error"], End::Cut, Breach::Malformed),
    ];
    for (events, end, why) in cases {
        assert_eq!(stream(events, end).judge(BOUND), broken(why), "{events:?} {end:?}");
    }
}

#[test]
fn an_error_that_clients_cannot_read_breaks_the_promise() {
    for (body, problem) in [
        ("Bad Gateway", "it is not JSON"),
        (r#"{"error":"no"}"#, "`error` is not an object"),
        (r#"{"error":{"message":"","type":"x","code":"x","param":null}}"#, "`error.message` is no text"),
        (r#"{"error":{"message":"a","code":"x","param":null}}"#, "`error.type` is not a string"),
        (r#"{"error":{"message":"a","type":"x","code":502,"param":null}}"#, "`error.code` is not a string"),
        (r#"{"error":{"message":"a","type":"x","code":"x"}}"#, "`error.param` is missing or not a string"),
    ] {
        let expected = broken(Breach::NotAnError(problem));
        assert_eq!(seen(Asked::Plain, 502, JSON, body, End::Clean).judge(BOUND), expected);
        if problem != "it is not JSON" {
            assert_eq!(stream(&[&format!("data: {body}")], End::Cut).judge(BOUND), expected);
        }
    }
    let html = seen(Asked::Plain, 502, "text/html", "<p>", End::Clean);
    let why = Breach::ContentType { found: "text/html".to_owned(), expected: JSON };
    assert_eq!(html.judge(BOUND), broken(why));
    let cut = Seen { end: End::Cut, ..error(502, "upstream_died") };
    assert_eq!(cut.judge(BOUND), broken(Breach::CutBody));
    let odd = seen(Asked::Plain, 302, JSON, "", End::Clean);
    assert_eq!(odd.judge(BOUND), broken(Breach::Status(StatusCode::FOUND)));
}

#[test]
fn a_plain_answer_has_a_message_and_a_finish_reason() {
    for (body, problem) in [
        ("", "it is not JSON"),
        (r#"{"choices":[]}"#, "it has no message"),
        (r#"{"choices":[{"message":{},"finish_reason":null}]}"#, "it has no finish_reason"),
    ] {
        assert_eq!(plain(body).judge(BOUND), broken(Breach::NotWhole(problem)));
    }
    let cut = Seen { end: End::Cut, ..plain(WHOLE) };
    assert_eq!(cut.judge(BOUND), broken(Breach::CutBody));
    // A stream that nobody asked for, and none where one was asked for.
    let stream = Seen { asked: Asked::Plain, ..stream(&[ROLE, TEXT, FINISH, DONE], End::Clean) };
    let why = Breach::ContentType { found: "text/event-stream".to_owned(), expected: JSON };
    assert_eq!(stream.judge(BOUND), broken(why));
    let plain = Seen { asked: Asked::Stream, ..plain(WHOLE) };
    let why = Breach::ContentType { found: JSON.to_owned(), expected: "text/event-stream" };
    assert_eq!(plain.judge(BOUND), broken(why));
}

#[test]
fn an_end_comes_within_the_bound_or_the_promise_is_broken() {
    let took = |seconds| Seen { took: Duration::from_secs(seconds), ..plain(WHOLE) };
    assert!(took(60).judge(BOUND).is_kept());
    let late = Breach::TooLate { took: Duration::from_secs(61), bound: BOUND };
    assert_eq!(took(61).judge(BOUND), broken(late));
    let open = Seen { end: End::Open, ..took(5) };
    assert_eq!(open.judge(BOUND), broken(Breach::Endless { after: Duration::from_secs(5) }));
    let nothing = Seen { head: None, end: End::Cut, ..took(5) };
    assert_eq!(nothing.judge(BOUND), broken(Breach::NoAnswer));
    let left = Seen { head: None, end: End::Left, ..took(5) };
    assert_eq!(left.judge(BOUND), Outcome::LeftByClient);
    assert_eq!(stream(&[ROLE, TEXT], End::Left).judge(BOUND), Outcome::LeftByClient);
}
