//! The register of engines that run, beside an engine that is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gglib_testkit::engines::{Orphan, freeze, is_running, parent_of, signal};
use gglib_testkit::wire::{Wire, post};
use gglib_testkit::{Launch, Running, Script, Scripted, fake_engine, until};
use rustix::process::Signal;
use serde_json::Value;
use tokio::net::TcpStream;

const BOUND: Duration = Duration::from_secs(60);

/// `gglib serve` with the data directory `data`.
struct Served {
    running: Running,
    address: String,
}

impl Served {
    fn start(data: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gglib"));
        command.args(["serve", "--config"]).arg(data.join("gglib.toml")).env("GGLIB_DATA_DIR", data);
        let running = Running::start_collecting_all(command);
        let line = running.until_line(|line| line.contains("http://"), BOUND);
        let (_, rest) = line.split_once("http://").expect("the line names it");
        let address = rest.split_once("/v1").expect("the base URL ends with /v1").0.to_owned();
        Self { running, address }
    }

    async fn connect(&self) -> Wire<TcpStream> {
        Wire::new(TcpStream::connect(&self.address).await.expect("the endpoint listens")).within(5 * BOUND)
    }

    /// The process of the engine that has answered a request.
    async fn engine(&self) -> u32 {
        let body = r#"{"model":"m","messages":[]}"#;
        let answer = self.connect().await.ask(post("/v1/chat/completions", body)).await;
        assert_eq!(answer.head.status, 200);
        let status = "GET /status HTTP/1.1\r\nhost: gglib\r\n\r\n".to_owned();
        let status: Value = self.connect().await.ask(status).await.json();
        let pid = status["engines"][0]["pid"].as_u64().expect("there is an engine");
        u32::try_from(pid).expect("it is a process")
    }
}

fn configured(data: &Path, script: &Scripted) {
    let (engine, model) = (fake_engine(), script.model());
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[engine]\nbinary = \"{}\"\n[models.m]\npath = \"{}\"\nargs = {:?}\n",
        engine.display(),
        model.display(),
        script.args()
    );
    fs::write(data.join("gglib.toml"), text).expect("writable");
}

/// The names of the entries.
fn entries(data: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(data.join("running")).expect("the register is there");
    files.map(|file| file.expect("it can be listed").path()).collect()
}

#[tokio::test]
async fn an_engine_is_entered_and_found_at_the_next_start_although_one_is_installed() {
    let data = tempfile::tempdir().expect("a temporary directory can be made");
    let data = data.path();
    let installed = data.join("engines/llama-server-1.0");
    fs::create_dir_all(&installed).expect("writable");
    for foreign in [installed.join("llama-server"), data.join("engines/1-1.json")] {
        fs::write(foreign, "installed").expect("writable");
    }
    let stubborn = Launch { ignores_sigterm: true, ..Launch::default() };
    let script = Script::always(stubborn).place();
    configured(data, &script);

    let mut first = Served::start(data);
    let left = first.engine().await;
    assert_eq!(entries(data).len(), 1);
    let _orphan = Orphan::of(left);
    // In the same instant: neither can do the work of the other.
    let guard = parent_of(left);
    freeze(first.running.id()).await;
    freeze(guard).await;
    signal(guard, Signal::KILL);
    first.running.signal(Signal::KILL);
    first.running.until_end(BOUND);
    until("the guard to go", BOUND, || !is_running(guard)).await;
    assert!(is_running(left), "it is left behind");

    let second = Served::start(data);
    assert!(!is_running(left));
    let engine = second.engine().await;
    assert!(is_running(engine));
    assert_eq!(entries(data).len(), 1);
    assert_eq!(fs::read_to_string(installed.join("llama-server")).expect("it stays"), "installed");
    assert!(data.join("engines/1-1.json").exists());
}
