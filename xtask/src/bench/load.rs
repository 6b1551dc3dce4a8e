//! Closed-loop load: some connections, each with one request at a time, for a while.

#![expect(clippy::disallowed_methods, reason = "measures real time")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// What one load came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Answers per second.
    pub(super) rate: f64,
    /// Half of the answers were whole within this time.
    pub(super) p50: Duration,
    /// All but one in a hundred were.
    pub(super) p99: Duration,
    /// Half of the answers had begun within this time.
    pub(super) first_p50: Duration,
}

/// Sends `body` over and over on `connections` connections for `length`.
pub(super) async fn run(
    address: SocketAddr,
    connections: usize,
    body: &'static str,
    length: Duration,
) -> Result<Outcome> {
    let start = Instant::now();
    let clients: Vec<_> =
        (0..connections).map(|_| tokio::spawn(client(address, body, start + length))).collect();
    let mut wholes = Vec::new();
    let mut firsts = Vec::new();
    for client in clients {
        for (first, whole) in client.await?? {
            firsts.push(first);
            wholes.push(whole);
        }
    }
    let rate = f64::from(u32::try_from(wholes.len())?) / start.elapsed().as_secs_f64();
    wholes.sort_unstable();
    firsts.sort_unstable();
    if wholes.is_empty() {
        bail!("no answer came within {length:?}");
    }
    let at = |share: usize| wholes[(wholes.len() * share / 100).min(wholes.len() - 1)];
    Ok(Outcome { rate, p50: at(50), p99: at(99), first_p50: firsts[firsts.len() / 2] })
}

/// One connection's requests: time to the first byte of the body, and to the last.
async fn client(address: SocketAddr, body: &'static str, end: Instant) -> Result<Vec<(Duration, Duration)>> {
    let mut sender = connect(address).await?;
    let mut times = Vec::new();
    while Instant::now() < end {
        let request = hyper::Request::post("/v1/chat/completions")
            .header("host", "bench")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from_static(body.as_bytes())))?;
        let start = Instant::now();
        let mut response = sender.send_request(request).await?;
        if response.status() != 200 {
            bail!("the answer was {}", response.status());
        }
        let mut first = None;
        while let Some(frame) = response.frame().await {
            frame?;
            first.get_or_insert_with(|| start.elapsed());
        }
        times.push((first.unwrap_or_default(), start.elapsed()));
        sender.ready().await?;
    }
    Ok(times)
}

pub(super) async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
