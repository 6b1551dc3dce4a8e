//! One client's connection: bounded patience with a client that does not read, and word of what has gone out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

/// Fails when nothing of a write could be handed to the system for too long: the client lives, but does not
/// read. Without this, whoever stops reading would keep an engine for ever.
pub(crate) struct Connection<Io> {
    io: Io,
    patience: Duration,
    /// Runs while a write is blocked.
    blocked: Option<Pin<Box<Sleep>>>,
    /// How often everything there was to write has been handed to the system.
    flushes: watch::Sender<u64>,
}

/// Tells the response's body how far the connection under it has come.
#[derive(Clone)]
pub(crate) struct Outlet(watch::Receiver<u64>);

impl<Io> Connection<Io> {
    /// A connection whose writes may be blocked for `patience`.
    pub(crate) fn new(io: Io, patience: Duration) -> Self {
        Self { io, patience, blocked: None, flushes: watch::Sender::default() }
    }

    pub(crate) fn outlet(&self) -> Outlet {
        Outlet(self.flushes.subscribe())
    }

    /// What a write comes to, given what it came to below.
    fn within_patience<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let patience = self.patience;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(blocked.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer")))
    }
}

impl Outlet {
    /// Resolves when everything that was handed to the connection before the call has gone out.
    ///
    /// To be awaited by a response's body: the server flushes whenever its body has nothing more to give.
    pub(crate) async fn flushed(&mut self) {
        self.0.mark_unchanged();
        // A connection that is gone will not flush; what waits here goes with it.
        let _ = self.0.changed().await;
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Connection<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Connection<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.within_patience(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.within_patience(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        let flushed = self.within_patience(flushed, context);
        if let Poll::Ready(Ok(())) = flushed {
            self.flushes.send_modify(|flushes| *flushes += 1);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(context);
        self.within_patience(shut, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up_after_the_patience_since_its_last_read() {
        let (server, mut client) = tokio::io::duplex(8);
        let mut connection = Connection::new(server, PATIENCE);
        let started = Instant::now();
        connection.write_all(&[0; 8]).await.unwrap();
        let reader = async {
            sleep(Duration::from_secs(50)).await;
            client.read_exact(&mut [0; 4]).await.unwrap();
        };
        let (written, ()) = tokio::join!(connection.write_all(&[0; 8]), reader);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), Duration::from_secs(50 + 60));
    }

    #[tokio::test(start_paused = true)]
    async fn the_outlet_waits_for_a_flush_that_comes_after_the_question() {
        let (server, _client) = tokio::io::duplex(64);
        let mut connection = Connection::new(server, PATIENCE);
        let mut outlet = connection.outlet();
        connection.flush().await.unwrap();
        let started = Instant::now();
        let flush_later = async {
            sleep(Duration::from_secs(7)).await;
            connection.flush().await.unwrap();
        };
        tokio::join!(outlet.flushed(), flush_later);
        assert_eq!(started.elapsed(), Duration::from_secs(7));
    }
}
