//! Running until somebody says stop.

use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::exit::Exit;
use crate::reload::Reload;
use crate::ui;

/// Ctrl-C and SIGTERM, and where it is asked for, SIGHUP.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl Stop {
    /// Listens from now on: the default reaction, to die at once, is switched off.
    pub(crate) fn listen() -> io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hangup: None })
    }

    /// Listens to SIGHUP too, which comes when the terminal is closed: for what leaves something to put away.
    pub(crate) fn or_hangup(self) -> io::Result<Self> {
        Ok(Self { hangup: Some(signal(SignalKind::hangup())?), ..self })
    }

    pub(crate) async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = came(&mut self.hangup) => {}
        }
    }
}

/// Resolves when the signal has come; never if none is listened to.
async fn came(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => pending().await,
    }
}

/// Serves until a stop is requested, by the configuration that `reload` brings, then shuts down in order; a second
/// request cuts that short, and the guards see to the engines.
pub(crate) async fn serve_until_stopped(
    mut endpoint: Endpoint,
    reload: &mut Reload,
    stop: &mut Stop,
) -> Result<Exit, CliError> {
    loop {
        tokio::select! {
            () = stop.requested() => break,
            error = endpoint.failed() => return Err(error),
            () = reload.requested() => reload.apply(&mut endpoint).await,
        }
    }
    ui::stopping();
    tokio::select! {
        () = endpoint.shut_down() => ui::stopped(),
        () = stop.requested() => ui::cut_short(),
    }
    Ok(Exit::Success)
}
