//! Performing a plan on a connection.

use std::{io, time::Duration};

use gglib_testkit::Entry;
use rustix::process::{Signal, getpid, kill_process};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{self, Instant},
};

use crate::{
    chat::{Ask, Step},
    connection::Connection,
    engine::Engine,
    http::{LAST_CHUNK, chunk, stream_head},
};

/// How the performance of a step ends it all, or not.
#[derive(Debug, PartialEq, Eq)]
enum After {
    Next,
    Finished,
    /// The client left.
    Cancelled,
    /// The connection is to be closed without a word.
    Cut,
}

/// Waits for a slot, then sends what `steps` say. An error ends the connection.
pub(crate) async fn perform<S>(
    engine: &Engine,
    connection: &mut Connection<S>,
    request: usize,
    ask: &Ask,
    steps: Vec<Step>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut performance = Performance { engine, connection, streams: ask.stream };
    let after = performance.run(request, steps).await;
    match &after {
        Ok(After::Next | After::Finished) => engine.note(|launch| Entry::Finished { launch, request }),
        // A plain answer was worked on to its end, though nobody waited for it.
        Err(_) if !ask.stream => engine.note(|launch| Entry::Finished { launch, request }),
        Ok(After::Cancelled) | Err(_) => engine.note(|launch| Entry::Cancelled { launch, request }),
        Ok(After::Cut) => {}
    }
    match after? {
        After::Next | After::Finished => Ok(()),
        After::Cancelled | After::Cut => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

struct Performance<'a, S> {
    engine: &'a Engine,
    connection: &'a mut Connection<S>,
    streams: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Performance<'_, S> {
    async fn run(&mut self, request: usize, steps: Vec<Step>) -> io::Result<After> {
        // As in the real engine, a queued request hears nothing, no headers and no pings.
        let _slot = tokio::select! {
            slot = self.engine.slots.acquire() => slot,
            () = self.connection.gone(), if self.streams => return Ok(After::Cancelled),
            () = self.engine.terminating() => return Ok(After::Cut),
        };
        self.engine.note(|launch| Entry::Started { launch, request });
        for step in steps {
            match self.step(step).await? {
                After::Next => {}
                end => return Ok(end),
            }
        }
        Ok(After::Finished)
    }

    async fn step(&mut self, step: Step) -> io::Result<After> {
        let idle = self.engine.launch.idle_close;
        match step {
            Step::Respond(response) => self.connection.respond(&response, idle).await?,
            Step::Head => {
                let head = stream_head(&self.connection.connection_header(idle));
                self.connection.send(&head).await?;
            }
            Step::Send(events) => self.connection.send(&chunk(&events)).await?,
            Step::End => self.connection.send(LAST_CHUNK).await?,
            Step::Wait(duration) => return self.pass(Some(duration)).await,
            Step::Ping => return self.pass(None).await,
            Step::Silence => {
                self.connection.gone().await;
                return Ok(After::Cancelled);
            }
            Step::Die => self.engine.die(),
            Step::Stop => {
                let _ = kill_process(getpid(), Signal::STOP);
                self.connection.gone().await;
                return Ok(After::Cancelled);
            }
            Step::Cut => return Ok(After::Cut),
        }
        Ok(After::Next)
    }

    /// Lets `duration` pass, or all time. A stream pings when it has been silent for long and notices that its client
    /// leaves; a plain request does neither.
    async fn pass(&mut self, duration: Option<Duration>) -> io::Result<After> {
        let end = duration.map(|duration| Instant::now() + duration);
        loop {
            let ping = self.streams.then(|| self.connection.last_write() + self.engine.ping_every());
            let wake = [end, ping].into_iter().flatten().min();
            tokio::select! {
                () = until(wake) => {}
                () = self.connection.gone(), if self.streams => return Ok(After::Cancelled),
                () = self.engine.terminating() => return Ok(self.freeze().await),
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                return Ok(After::Next);
            }
            self.connection.send(&chunk(":\n\n")).await?;
        }
    }

    /// What SIGTERM does to a request in flight: nothing more comes; a stream is cut at its next ping, a plain request
    /// hangs until its client leaves.
    async fn freeze(&mut self) -> After {
        let cut = self.streams.then(|| Instant::now() + self.engine.ping_every());
        tokio::select! {
            () = until(cut) => {}
            () = self.connection.gone() => {}
        }
        After::Cut
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
