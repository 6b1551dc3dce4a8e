//! An endpoint on pipes instead of sockets, so that the clock can be paused, with scripted ports behind it.

use std::io;
use std::sync::Arc;

use axum::serve::Listener;
use gglib_core::model::{Catalog, ModelName, ModelSpec};
use gglib_proxy::{App, Settings, serve_on};
use gglib_testkit::wire::{Answer, Wire, post};
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::ports::Ports;

/// What a pipe holds of what its reader has not read, in bytes.
pub(crate) const PIPE: usize = 4096;

pub(crate) struct Piped {
    connect: mpsc::UnboundedSender<DuplexStream>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    pub(crate) app: App,
    pub(crate) ports: Arc<Ports>,
}

/// The model that the endpoint knows.
pub(crate) const MODEL: &str = "m";

impl Piped {
    pub(crate) fn start(ports: Ports, settings: Settings) -> Self {
        let ports = Arc::new(ports);
        let spec = ModelSpec::new("m.gguf");
        let catalog = Catalog::new([(ModelName::new(MODEL), spec)].into());
        let app = App::new(ports.clone(), catalog, settings);
        let (connect, connections) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let server = tokio::spawn(serve_on(Pipes(connections), app.clone(), stopped));
        Self { connect, stop, server, app, ports }
    }

    /// Shuts the endpoint down and waits for its end.
    pub(crate) async fn shut_down(self) {
        self.stop.send(()).unwrap();
        self.server.await.unwrap();
    }

    pub(crate) fn connect(&self) -> Wire<DuplexStream> {
        let (client, server) = tokio::io::duplex(PIPE);
        self.connect.send(server).unwrap();
        Wire::new(client)
    }

    pub(crate) async fn chat(&self, body: &str) -> Answer {
        self.connect().ask(post("/v1/chat/completions", body)).await
    }

    pub(crate) async fn totals(&self) -> Value {
        self.status().await["totals"].take()
    }

    pub(crate) async fn status(&self) -> Value {
        self.connect().ask("GET /status HTTP/1.1\r\nhost: gglib\r\n\r\n").await.json()
    }
}

struct Pipes(mpsc::UnboundedReceiver<DuplexStream>);

impl Listener for Pipes {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(connection) => (connection, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}
