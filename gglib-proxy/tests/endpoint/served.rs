//! An endpoint on a port of its own, with a pool of engines behind it.

use std::net::SocketAddr;
use std::time::Duration;

use gglib_core::config::{self, Sources};
use gglib_proxy::{App, Settings};
use gglib_testkit::Engines;
use gglib_testkit::wire::{Answer, Wire, post};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

/// Far longer than anything here takes, also on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

pub(crate) struct Served {
    address: SocketAddr,
    /// Holds the model files of fakes.
    _engines: Engines,
}

/// The settings that gglib ships with.
pub(crate) fn shipped() -> Settings {
    let sources = Sources { file: None, env: &|_| None, flags: &[] };
    Settings::new(&config::load(&sources).expect("the defaults are valid"))
}

impl Served {
    pub(crate) async fn start(engines: Engines, settings: Settings) -> Self {
        let mut app = App::new(engines.start(), engines.catalog(), settings);
        if let Some(slots) = &engines.slots {
            app = app.with_slots(slots.clone());
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(gglib_proxy::serve(listener, app, std::future::pending()));
        Self { address, _engines: engines }
    }

    pub(crate) async fn connect(&self) -> Wire<TcpStream> {
        Wire::new(TcpStream::connect(self.address).await.unwrap()).within(5 * BOUND)
    }

    pub(crate) async fn chat(&self, body: &str) -> Answer {
        self.ask("/v1/chat/completions", body).await
    }

    pub(crate) async fn ask(&self, path: &str, body: &str) -> Answer {
        self.connect().await.ask(post(path, body)).await
    }

    pub(crate) async fn status(&self) -> Value {
        self.connect().await.ask("GET /status HTTP/1.1\r\nhost: gglib\r\n\r\n").await.json()
    }

    /// Waits until `/status` fulfils `condition`; how long that took.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Duration {
        let started = Instant::now();
        loop {
            let status = self.status().await;
            if condition(&status) {
                return started.elapsed();
            }
            assert!(started.elapsed() < BOUND, "waited in vain for {what}: {status}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// How many requests use the only engine.
pub(crate) fn in_flight(status: &Value) -> u64 {
    status["engines"][0]["in_flight"].as_u64().unwrap_or_default()
}
