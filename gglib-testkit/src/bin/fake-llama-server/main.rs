//! A stand-in for `llama-server`: it takes the same command line, answers with recorded shapes, and misbehaves as its
//! script says. See `gglib_testkit::Script`.

mod args;
mod chat;
mod connection;
mod engine;
mod http;
mod recording;
mod routes;
mod slots;
mod stream;

use std::{env, io, path::Path, process::ExitCode, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    signal::unix::{SignalKind, signal},
};

use self::{args::Args, connection::Connection, engine::Engine};

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list-devices") {
        engine::say("Available devices:\n  (none)");
        return ExitCode::SUCCESS;
    }
    match run(Args::parse(args)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            engine::say(&format!("E srv  llama_server: exiting due to HTTP server error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGTERM.
async fn run(args: Args) -> io::Result<()> {
    let engine = Arc::new(Engine::launch(args)?);
    let terminate = signal(SignalKind::terminate())?;
    tokio::time::sleep(engine.launch.binds_after).await;
    let mut listener = Listener::bind(&engine.args)?;
    tokio::spawn(Arc::clone(&engine).load());
    let terminated = tokio::spawn(Arc::clone(&engine).until_terminated(terminate));
    tokio::select! {
        never = listener.serve(&engine) => never,
        _ = terminated => Ok(()),
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// As the real engine does: a host that ends in `.sock` is a socket path, and one that exists is an error.
    fn bind(args: &Args) -> io::Result<Self> {
        let bound = if Path::new(&args.host).extension().is_some_and(|extension| extension == "sock") {
            UnixListener::bind(&args.host).map(Listener::Unix)
        } else {
            std::net::TcpListener::bind((args.host.as_str(), args.port)).and_then(|listener| {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Listener::Tcp)
            })
        };
        bound.inspect_err(|_| {
            let (host, port) = (&args.host, args.port);
            engine::say(&format!(
                "E srv         start: couldn't bind HTTP server socket, hostname: {host}, port: {port}"
            ));
        })
    }

    async fn serve(&mut self, engine: &Arc<Engine>) -> io::Result<()> {
        loop {
            match self {
                Listener::Tcp(listener) => {
                    let (stream, _) = listener.accept().await?;
                    stream.set_nodelay(true)?;
                    converse(engine, stream);
                }
                Listener::Unix(listener) => converse(engine, listener.accept().await?.0),
            }
        }
    }
}

fn converse(engine: &Arc<Engine>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let engine = Arc::clone(engine);
    // An error of one connection is its own affair.
    tokio::spawn(async move { routes::serve(&engine, Connection::new(stream)).await });
}
