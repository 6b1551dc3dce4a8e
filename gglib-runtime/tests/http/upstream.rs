//! One send is at most one request on the wire.

use std::process::Command;

use bytes::Bytes;
use futures_util::TryStreamExt;
use gglib_core::ports::{Phase, Upstream, UpstreamError};
use gglib_runtime::http::{HttpError, HttpUpstream};
use http::{HeaderMap, Request, StatusCode};

use crate::server::{Reply, Server, response};

/// The answer to one request, read to its end.
async fn send(upstream: &HttpUpstream) -> Result<(StatusCode, HeaderMap, Bytes), UpstreamError> {
    let request = Request::post("/v1/chat/completions?a=1")
        .header("host", "elsewhere")
        .header("x-trace", "7")
        .body(Bytes::from("{}"))
        .unwrap();
    let (head, body) = upstream.send(request).await?.into_parts();
    let chunks: Vec<Bytes> = body.try_collect().await?;
    Ok((head.status, head.headers, chunks.concat().into()))
}

fn ok(_: usize) -> Reply {
    Reply::Keep(response("200 OK", "", "hello"))
}

#[tokio::test]
async fn a_connection_that_goes_stale_is_not_met_twice() {
    // Promises to keep the connection, and closes it upon the second request.
    let server = Server::start(|before| if before == 0 { ok(0) } else { Reply::Close(String::new()) }).await;
    let upstream = HttpUpstream::new(&server.url(), None).unwrap();
    for _ in 0..3 {
        let (status, _, body) = send(&upstream).await.unwrap();
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"hello"[..]));
    }
    let connections: Vec<_> = server.hits().iter().map(|hit| hit.connection).collect();
    assert_eq!(connections, [0, 1, 2], "one request on each, three in all");
}

#[tokio::test]
async fn a_request_that_found_no_answer_is_not_sent_again() {
    let replies: [fn(usize) -> Reply; 2] = [|_| Reply::Reset, |_| Reply::Close(String::new())];
    for reply in replies {
        let server = Server::start(reply).await;
        let upstream = HttpUpstream::new(&server.url(), None).unwrap();
        let error = send(&upstream).await.unwrap_err();
        assert_eq!(error.phase(), Phase::BeforeHeaders);
        assert_eq!(server.hits().len(), 1);
    }
}

#[tokio::test]
async fn the_phase_says_how_far_the_answer_came() {
    let only_head: fn(usize) -> Reply =
        |_| Reply::Close("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".into());
    let half: fn(usize) -> Reply =
        |_| Reply::Close("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".into());
    for (reply, phase) in [(only_head, Phase::AfterHeaders), (half, Phase::MidBody)] {
        let server = Server::start(reply).await;
        let upstream = HttpUpstream::new(&server.url(), None).unwrap();
        assert_eq!(send(&upstream).await.unwrap_err().phase(), phase);
        assert_eq!(server.hits().len(), 1);
    }

    let nobody = Server::start(ok).await.address;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_ne!(closed, nobody);
    let upstream = HttpUpstream::new(&format!("http://{closed}"), None).unwrap();
    assert_eq!(send(&upstream).await.unwrap_err().phase(), Phase::Connect);
}

#[tokio::test]
async fn a_redirect_is_an_answer_like_any_other() {
    let server =
        Server::start(|_| Reply::Keep(response("307 Temporary Redirect", "location: /v1/other\r\n", "")))
            .await;
    let upstream = HttpUpstream::new(&server.url(), None).unwrap();
    let (status, headers, _) = send(&upstream).await.unwrap();
    assert_eq!(
        (status, &headers["location"]),
        (StatusCode::TEMPORARY_REDIRECT, &"/v1/other".parse().unwrap())
    );
    assert_eq!(server.hits().len(), 1);
}

#[tokio::test]
async fn a_request_keeps_its_headers_and_gets_our_address_and_key() {
    let server = Server::start(ok).await;
    let upstream = HttpUpstream::new(&format!("http://{}/api/v1/", server.address), Some(" key\n")).unwrap();
    send(&upstream).await.unwrap();
    let text = &server.hits()[0].text;
    assert!(text.starts_with("POST /api/v1/chat/completions?a=1 HTTP/1.1\r\n"), "{text}");
    for line in [format!("host: {}", server.address), "authorization: Bearer key".into(), "x-trace: 7".into()]
    {
        assert!(text.lines().any(|present| present == line), "{line} in {text}");
    }
    assert!(!text.contains("elsewhere"), "{text}");
    assert!(!format!("{upstream:?}").contains("key\""), "a key is not printed");
}

#[tokio::test]
async fn a_get_gives_status_and_body_whatever_the_status() {
    let server = Server::start(|_| Reply::Keep(response("401 Unauthorized", "", "who?"))).await;
    let upstream = HttpUpstream::new(&server.url(), Some("key")).unwrap();
    let (status, body) = upstream.get("/status").await.unwrap();
    assert_eq!((status, &body[..]), (StatusCode::UNAUTHORIZED, &b"who?"[..]));
    let text = &server.hits()[0].text;
    assert!(text.starts_with("GET /status HTTP/1.1\r\n"), "{text}");
    assert!(text.contains("authorization: Bearer key\r\n"), "{text}");
}

#[tokio::test]
async fn loopback_is_reached() {
    let server = Server::start(ok).await;
    let upstream = HttpUpstream::new(&server.url(), None).unwrap();
    assert_eq!(upstream.get("/status").await.unwrap().1, "hello");
}

/// The environment of a test cannot be changed while it runs, so another process runs the test above.
#[test]
fn loopback_is_reached_past_a_proxy_and_without_certificates() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "upstream::loopback_is_reached"])
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        // The discard port of this machine: whoever goes there comes to nothing.
        .envs(["HTTP_PROXY", "http_proxy", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:9")))
        .envs(["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| (name, "/nonexistent")))
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{stdout}");
}

#[test]
fn a_key_that_no_header_can_hold_is_refused_without_being_repeated() {
    for key in ["", "sk-a b", "sk-a\nb", "sk-…"] {
        let error = HttpUpstream::new("http://127.0.0.1:8080", Some(key)).unwrap_err();
        assert!(matches!(error, HttpError::ApiKey), "{error:?}");
        assert_eq!(error.to_string(), "the API key must consist of visible ASCII characters without spaces");
    }
}
