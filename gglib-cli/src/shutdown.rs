//! Running until somebody says stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::exit::Exit;
use crate::reload::Reload;
use crate::ui;

/// Ctrl-C and SIGTERM.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Listens from now on: the default reaction, to die at once, is switched off.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
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
