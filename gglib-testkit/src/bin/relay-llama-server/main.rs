//! A stand-in for `llama-server` that runs the real one and takes its word for calls: no grammar holds the model, and
//! what it writes between `<tool_call>` and `</tool_call>` is the call, broken or not. So do servers that only parse.
//!
//! Its command line is llama-server's, with the real one's path after [`TO_FLAG`]; it listens on a socket only. With
//! [`UNTAUGHT_FLAG`] it says of the chat template that it knows no tools.

mod calls;
mod chat;
mod relay;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use gglib_testkit::{TO_FLAG, UNTAUGHT_FLAG};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::UnixListener;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use self::relay::Relay;

#[tokio::main]
async fn main() -> io::Result<ExitCode> {
    let Args { engine, own_socket, socket, passed, untaught } = Args::parse(std::env::args().skip(1))
        .ok_or_else(|| io::Error::other(format!("{TO_FLAG} PATH and --host PATH.sock are needed")))?;
    let mut engine = Command::new(engine).args(passed).kill_on_drop(true).spawn()?;
    let relay = Arc::new(Relay { socket: socket.clone(), untaught });
    let listener = UnixListener::bind(own_socket)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let ended = loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let relay = Arc::clone(&relay);
                let service = service_fn(move |request| Arc::clone(&relay).pass(request));
                // An error of one connection is its own affair.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
            ended = engine.wait() => break ended?.success(),
            _ = terminate.recv() => {
                engine.kill().await?;
                break true;
            }
        }
    };
    let _ = std::fs::remove_file(socket);
    Ok(if ended { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Args {
    engine: PathBuf,
    own_socket: PathBuf,
    /// The engine's own.
    socket: PathBuf,
    /// The engine's own.
    passed: Vec<String>,
    untaught: bool,
}

impl Args {
    fn parse(mut given: impl Iterator<Item = String>) -> Option<Self> {
        let (mut engine, mut sockets, mut passed, mut untaught) = (None, None, Vec::new(), false);
        while let Some(arg) = given.next() {
            match arg.as_str() {
                TO_FLAG => engine = given.next(),
                UNTAUGHT_FLAG => untaught = true,
                "--host" => {
                    let own = given.next()?;
                    let socket = Path::new(&own).with_extension("real.sock");
                    passed.extend([arg, socket.to_str()?.to_owned()]);
                    sockets = Some((PathBuf::from(own), socket));
                }
                _ => passed.push(arg),
            }
        }
        let (own_socket, socket) = sockets?;
        Some(Self { engine: engine?.into(), own_socket, socket, passed, untaught })
    }
}
