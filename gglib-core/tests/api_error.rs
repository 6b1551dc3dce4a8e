//! The error taxonomy as clients see it.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::Duration;

use gglib_core::api::error::{ApiError, ErrorCode, table};
use http::StatusCode;
use serde_json::Value;

#[test]
fn every_code_has_its_row() {
    let mut rows = String::new();
    for row in table() {
        writeln!(rows, "{} | {} | {} | {}", row.code, row.status.as_u16(), row.kind, row.meaning).unwrap();
    }
    insta::assert_snapshot!(rows);
}

#[test]
fn codes_are_distinct_and_ordered_by_status() {
    let texts: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(texts.len(), ErrorCode::ALL.len());
    assert!(ErrorCode::ALL.is_sorted_by_key(|code| code.status()));
}

#[test]
fn the_body_has_metadata_only_when_there_is_some() {
    let error =
        ApiError::new(ErrorCode::ModelNotFound, "no model `x`; did you mean `\"y\"`?").with_param("model");
    assert_eq!(
        error.to_json(),
        r#"{"error":{"message":"no model `x`; did you mean `\"y\"`?","type":"invalid_request_error","code":"model_not_found","param":"model"}}"#
    );
    assert!(error.headers().is_empty());
    let error = error.with_metadata("near", vec!["y"]);
    let body: Value = serde_json::from_slice(&error.to_json()).unwrap();
    assert_eq!(body["error"]["metadata"], serde_json::json!({ "near": ["y"] }));
}

#[test]
fn as_an_event_it_is_one_line() {
    let error = ApiError::new(ErrorCode::UpstreamDied, "died:\nlast\r\nlines");
    let event = error.to_sse();
    let text = str::from_utf8(&event).unwrap();
    let json = text.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
    assert_eq!(json.as_bytes(), error.to_json());
    assert!(!json.contains(['\r', '\n']));
}

#[test]
fn advice_is_rounded_up_and_clamped_in_headers_and_exact_in_the_body() {
    let cases = [
        (Duration::ZERO, "1", "1", 0),
        (Duration::from_nanos(1), "1", "1", 1),
        (Duration::from_secs(1), "1", "1000", 1000),
        (Duration::from_micros(1_000_001), "2", "1001", 1001),
        (Duration::from_millis(2300), "3", "2300", 2300),
        (Duration::from_millis(59_999), "60", "59999", 59_999),
        (Duration::from_mins(5), "60", "60000", 300_000),
        (Duration::MAX, "60", "60000", u64::MAX),
    ];
    for (delay, seconds, millis, exact) in cases {
        let error = ApiError::new(ErrorCode::QueueFull, "full").with_retry_after(delay);
        let headers = error.headers();
        assert_eq!(headers["retry-after"], seconds, "{delay:?}");
        assert_eq!(headers["retry-after-ms"], millis, "{delay:?}");
        assert!(!headers.contains_key("x-should-retry"));
        let body: Value = serde_json::from_slice(&error.to_json()).unwrap();
        assert_eq!(body["error"]["metadata"]["retry_after_ms"].as_u64(), Some(exact), "{delay:?}");
    }
    let spent = ApiError::new(ErrorCode::UpstreamDied, "died twice").not_worth_retrying();
    assert_eq!(spent.headers()["x-should-retry"], "false");
    assert!(!spent.headers().contains_key("retry-after"));
}

#[test]
fn upstream_bodies_are_read_into_the_taxonomy() {
    let cases: &[(&str, u16, &str)] = &[
        (
            "llama-server, context",
            400,
            r#"{"error":{"code":400,"message":"request (3031 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":3031,"n_ctx":2048}}"#,
        ),
        (
            "llama-server, bad JSON",
            500,
            r#"{"error":{"code":500,"message":"[json.exception.parse_error.101] parse error","type":"server_error"}}"#,
        ),
        (
            "llama-server, wrong type",
            400,
            r#"{"error":{"code":400,"message":"Field 'temperature': type must be number","type":"invalid_request_error"}}"#,
        ),
        (
            "llama-server, unknown route",
            404,
            r#"{"error":{"message":"File Not Found","type":"not_found_error","code":404}}"#,
        ),
        (
            "llama-server, no embeddings",
            501,
            r#"{"error":{"code":501,"message":"This server does not support embeddings. Start it with `--embeddings`","type":"not_supported_error"}}"#,
        ),
        (
            "llama-server, loading",
            503,
            r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
        ),
        (
            "llama-server, wrong key",
            401,
            r#"{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}"#,
        ),
        (
            "llama-server, in a stream",
            200,
            r#"{"error":{"code":500,"message":"The model produced output that does not match the expected peg-native format","type":"server_error"}}"#,
        ),
        (
            "string code kept, type too",
            429,
            r#"{"error":{"message":"You exceeded your quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
        ),
        (
            "string code kept, metadata merged",
            400,
            r#"{"error":{"message":"m","type":"invalid_request_error","param":"messages","code":"context_length_exceeded","metadata":{"provider":"p"},"x":1e400}}"#,
        ),
        (
            "null code",
            400,
            r#"{"error":{"message":"m","type":"invalid_request_error","param":"n","code":null}}"#,
        ),
        (
            "code in a stream without a status",
            200,
            r#"{"error":{"message":"m","type":"exceed_context_size_error"}}"#,
        ),
        ("code that is no status", 200, r#"{"error":{"message":"m","code":7}}"#),
        ("error as a string", 500, r#"{"error":"model runner has crashed"}"#),
        ("detail", 422, r#"{"detail":[{"loc":["body"],"msg":"missing"}]}"#),
        (
            "top-level message",
            400,
            r#"{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}"#,
        ),
        ("empty message", 500, r#"{"error":{"message":"","code":500}}"#),
        ("message that is no string", 500, r#"{"error":{"message":{"a":1}}}"#),
        ("other JSON", 502, r#"{"ok":false}"#),
        ("plain text labelled JSON", 500, "proxy error: Could not establish connection\n"),
        ("HTML", 502, "<html>\n<h1>502 Bad Gateway</h1>\n</html>"),
        ("nothing", 503, " \n"),
        ("not UTF-8", 500, "\u{FFFD}"),
    ];
    let mut report = String::new();
    for (name, status, body) in cases {
        let body = if *name == "not UTF-8" { &b"\xFF"[..] } else { body.as_bytes() };
        let error = ApiError::from_upstream(StatusCode::from_u16(*status).unwrap(), body);
        writeln!(
            report,
            "{name}: {status} -> {}\n{}",
            error.status.as_u16(),
            str::from_utf8(&error.to_json()).unwrap()
        )
        .unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn a_quoted_body_is_cut_at_a_character_within_2_kib() {
    let quote = |body: &[u8]| ApiError::from_upstream(StatusCode::BAD_GATEWAY, body).message;
    assert_eq!(quote(format!("{}é tail", "x".repeat(2047)).as_bytes()), "x".repeat(2047));
    assert_eq!(quote(format!("  {}é tail", "x".repeat(2046)).as_bytes()), "x".repeat(2046) + "é");
    assert_eq!(quote(&vec![0xFF; 100_000]), "\u{FFFD}".repeat(682));
}
