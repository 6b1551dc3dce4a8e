//! More connections than files.

use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use gglib_testkit::wire::{Wire, post};
use gglib_testkit::{Running, Script, Scripted, fake_engine};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

const BOUND: Duration = Duration::from_secs(60);

/// `gglib serve` with one model.
struct Served {
    _running: Running,
    _home: (tempfile::TempDir, Scripted),
    address: String,
}

impl Served {
    /// From a shell that has run `limits`.
    fn start(limits: &str) -> Self {
        let (data, script) =
            (tempfile::tempdir().expect("a directory can be made"), Script::default().place());
        let config = data.path().join("gglib.toml");
        let (engine, model, args) = (fake_engine(), script.model(), script.args());
        let [engine, model] = [engine, model].map(|path| path.display().to_string());
        let text = format!(
            "server.listen = \"127.0.0.1:0\"\nengine.binary = {engine:?}\n[models.m]\npath = {model:?}\nargs = {args:?}\n"
        );
        std::fs::write(&config, text).expect("writable");
        let mut command = Command::new("/bin/sh");
        command.args([
            "-c",
            &format!("{limits} && exec \"$@\""),
            "sh",
            env!("CARGO_BIN_EXE_gglib"),
            "serve",
            "--config",
        ]);
        command.arg(config).env("GGLIB_DATA_DIR", data.path());
        let running = Running::start_collecting_all(command);
        let line = running.until_line(|line| line.contains("http://"), BOUND);
        let (_, rest) = line.split_once("http://").expect("the line names it");
        let address = rest.split_once("/v1").expect("the base URL ends with /v1").0.to_owned();
        Self { _running: running, _home: (data, script), address }
    }

    async fn connect(&self) -> Wire<TcpStream> {
        Wire::new(TcpStream::connect(&self.address).await.expect("the endpoint listens"))
    }

    async fn crowd(&self, size: usize) -> Vec<Wire<TcpStream>> {
        join_all((0..size).map(|_| self.connect())).await
    }
}

async fn chat(client: &mut Wire<TcpStream>) -> u16 {
    let request = post("/v1/chat/completions", r#"{"model":"m","messages":[]}"#);
    timeout(BOUND, client.ask(request)).await.expect("an answer").head.status
}

async fn status(client: &mut Wire<TcpStream>) -> Value {
    client.ask("GET /status HTTP/1.1\r\nhost: gglib\r\n\r\n".to_owned()).await.json()
}

#[tokio::test]
async fn as_many_files_are_opened_as_may_be() {
    let served = Served::start("ulimit -Sn 96 && ulimit -Hn 4096");
    let crowd = served.crowd(300).await;
    assert_eq!(chat(&mut served.connect().await).await, 200);
    drop(crowd);
}

#[tokio::test]
async fn connections_leave_files_for_engines_and_wait_until_there_is_room() {
    let served = Served::start("ulimit -n 128");
    let mut early = served.connect().await;
    assert_eq!(status(&mut early).await["engines"].as_array().map(Vec::len), Some(0));
    let crowd = served.crowd(100).await;
    let mut late = served.connect().await;
    let waits = timeout(Duration::from_secs(1), chat(&mut late));
    // An engine is launched and asked although there are more clients than files.
    let (waits, answered) = tokio::join!(waits, chat(&mut early));
    assert!(waits.is_err() && answered == 200, "{waits:?} {answered}");
    let state = status(&mut early).await;
    assert_eq!((&state["totals"]["crashes"], &state["totals"]["loads"]), (&json!(0), &json!(1)));
    drop(crowd);
    assert_eq!(chat(&mut served.connect().await).await, 200);
}
