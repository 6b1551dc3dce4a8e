//! An upstream that answers at once: what is left of a request's time is the gateway's.
//!
//! It takes the command line of `llama-server`, so that gglib launches it as an engine; with `--port` and no
//! gglib it is the direct side of the comparison.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

/// Content chunks of an answer.
const CONTENTS: usize = 50;

/// Listens as the command line says and answers until it is killed.
///
/// # Errors
/// When it cannot listen.
pub fn run(args: &[String]) -> Result<()> {
    let after = |flag: &str| args.iter().position(|arg| arg == flag).and_then(|at| args.get(at + 1));
    let host = after("--host").map_or("127.0.0.1", String::as_str);
    let port = after("--port").map_or("0", String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        if host.contains('/') {
            let listener = UnixListener::bind(PathBuf::from(host))?;
            loop {
                let (stream, _) = listener.accept().await?;
                tokio::spawn(answer_all(stream));
            }
        }
        let listener = TcpListener::bind(format!("{host}:{port}")).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(answer_all(stream));
        }
    })
}

/// A program in `scratch` that gglib can launch as an engine: this upstream. `xtask` is this program.
pub(super) fn as_engine(xtask: &Path, scratch: &Path) -> io::Result<PathBuf> {
    let engine = scratch.join("llama-server");
    fs::write(&engine, format!("#!/bin/sh\nexec '{}' bench-upstream \"$@\"\n", xtask.display()))?;
    fs::set_permissions(&engine, fs::Permissions::from_mode(0o755))?;
    Ok(engine)
}

async fn answer_all(stream: impl AsyncRead + AsyncWrite + Unpin) {
    // A connection that breaks is its client's business.
    let _ = answer_each(stream).await;
}

async fn answer_each(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let (plain, streamed) = (plain(), streamed());
    let mut buffer = Vec::new();
    while let Some(request) = next_request(&mut stream, &mut buffer).await? {
        let answer: &[u8] = if request.starts_with(b"GET ") {
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}"
        } else if contains(&request, b"\"stream\":true") {
            &streamed
        } else {
            &plain
        };
        stream.write_all(answer).await?;
    }
    Ok(())
}

/// Head and body of the next request; `None` when the client has closed.
async fn next_request(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(end) = find(buffer, b"\r\n\r\n") {
            let total = end + 4 + content_length(&buffer[..end]);
            if buffer.len() >= total {
                let rest = buffer.split_off(total);
                return Ok(Some(std::mem::replace(buffer, rest)));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn plain() -> Vec<u8> {
    let body = format!(
        r#"{{"choices":[{{"finish_reason":"stop","index":0,"message":{{"role":"assistant","content":"{}"}}}}],"created":1,"id":"chatcmpl-1","model":"bench","object":"chat.completion","usage":{{"completion_tokens":{CONTENTS},"prompt_tokens":9,"total_tokens":59}}}}"#,
        "word ".repeat(CONTENTS)
    );
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The whole stream in one write, each event a chunk of its own, as an engine that is infinitely fast.
fn streamed() -> Vec<u8> {
    let chunk = |choice: &str, more: &str| {
        format!(
            r#"data: {{"choices":[{choice}],"created":1,"id":"chatcmpl-1","model":"bench","object":"chat.completion.chunk"{more}}}"#
        ) + "\n\n"
    };
    let mut events =
        vec![chunk(r#"{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}"#, "")];
    for _ in 0..CONTENTS {
        events.push(chunk(r#"{"finish_reason":null,"index":0,"delta":{"content":"word "}}"#, ""));
    }
    events.push(chunk(r#"{"finish_reason":"stop","index":0,"delta":{}}"#, ""));
    events.push(chunk("", r#","usage":{"completion_tokens":50,"prompt_tokens":9,"total_tokens":59}"#));
    events.push("data: [DONE]\n\n".to_owned());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body: Vec<String> = events.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len())).collect();
    format!("{head}{}0\r\n\r\n", body.concat()).into_bytes()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    find(haystack, needle).is_some()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
