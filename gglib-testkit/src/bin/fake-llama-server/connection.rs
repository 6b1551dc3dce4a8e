//! One client's connection, with raw control over when bytes go out and when it ends.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{self, Instant},
};

use crate::http::{Request, Response};

/// After this many answers the real engine closes a connection.
const MAX_ANSWERS: usize = 100;

pub(crate) struct Connection<S> {
    stream: S,
    /// Bytes that arrived and were not taken.
    buffer: Vec<u8>,
    answers: usize,
    last_write: Instant,
    closing: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new(), answers: 0, last_write: Instant::now(), closing: false }
    }

    /// The next request; none when the client is gone, idle for longer than `idle`, or was told to close.
    pub(crate) async fn request(&mut self, idle: Duration) -> io::Result<Option<Request>> {
        while !self.closing {
            if let Some(request) = Request::take(&mut self.buffer) {
                self.answers += 1;
                self.closing = request.closes || self.answers == MAX_ANSWERS;
                return Ok(Some(request));
            }
            match time::timeout(idle, self.stream.read_buf(&mut self.buffer)).await {
                Err(_) | Ok(Ok(0)) => break,
                Ok(read) => read?,
            };
        }
        Ok(None)
    }

    /// Whether the current request came after another on this connection.
    pub(crate) fn is_reused(&self) -> bool {
        self.answers > 1
    }

    pub(crate) async fn respond(&mut self, response: &Response, idle: Duration) -> io::Result<()> {
        self.closing |= response.closes();
        let head = self.connection_header(idle);
        self.send(&response.bytes(&head)).await
    }

    /// The header by which the engine says whether it keeps the connection.
    pub(crate) fn connection_header(&self, idle: Duration) -> String {
        if self.closing {
            "Connection: close".to_owned()
        } else {
            format!("Keep-Alive: timeout={}, max={MAX_ANSWERS}", idle.as_secs())
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.last_write = Instant::now();
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// When bytes last went out.
    pub(crate) fn last_write(&self) -> Instant {
        self.last_write
    }

    /// Resolves when the client has closed the connection. What it sends meanwhile is kept.
    pub(crate) async fn gone(&mut self) {
        while self.stream.read_buf(&mut self.buffer).await.is_ok_and(|read| read > 0) {}
    }
}
