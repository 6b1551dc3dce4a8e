//! An engine on a unix socket of its own, fake or real, and ways to talk to it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use gglib_testkit::{Running, until};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use tokio::{io::AsyncReadExt, net::UnixStream};

/// Far longer than anything here takes, also on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_mins(1);

pub(crate) struct Served {
    pub(crate) process: Running,
    pub(crate) socket: PathBuf,
    pub(crate) client: Client,
    _directory: tempfile::TempDir,
}

impl Served {
    /// Starts `program` with the arguments that gglib gives to engines, and `more`.
    pub(crate) fn start(program: &Path, model: &Path, more: &[String]) -> Self {
        Self::start_with(program, model, more, None)
    }

    /// The same, with an API key.
    pub(crate) fn start_with(program: &Path, model: &Path, more: &[String], key: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("engine.sock");
        let mut command = Self::command(program, model, &socket, more);
        command.env_remove("LLAMA_API_KEY").envs(key.map(|key| ("LLAMA_API_KEY", key)));
        let process = Running::start(command);
        let client = Client::builder().unix_socket(socket.as_path()).no_proxy().pool_max_idle_per_host(0);
        Self { process, socket, client: client.build().unwrap(), _directory: directory }
    }

    pub(crate) fn command(program: &Path, model: &Path, socket: &Path, more: &[String]) -> Command {
        let mut command = Command::new(program);
        command.arg("--host").arg(socket).arg("-m").arg(model);
        command.args(["-a", "smollm2", "-c", "2048", "-np", "1", "--sse-ping-interval", "1"]).args(more);
        command
    }

    /// Waits until `/health` says 200 and returns every other answer on the way.
    pub(crate) async fn ready(&self) -> Vec<Response> {
        let listening = || std::os::unix::net::UnixStream::connect(&self.socket).is_ok();
        until("the engine to listen", BOUND, listening).await;
        let mut others = Vec::new();
        let ready = async {
            loop {
                match self.client.get("http://engine/health").send().await {
                    Ok(answer) if answer.status() == StatusCode::OK => return,
                    Ok(answer) => others.push(answer),
                    Err(error) => {
                        panic!("the engine does not answer: {error:?}: {:#?}", self.process.stderr())
                    }
                }
                // A small model is loaded in less than the blink of an eye.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(tokio::time::timeout(BOUND, ready).await.is_ok(), "the engine does not become ready");
        others
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.client.get(format!("http://engine{path}")).send().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<String>) -> reqwest::Result<Response> {
        self.client.post(format!("http://engine{path}")).body(body.into()).send().await
    }

    pub(crate) async fn chat(&self, body: &Value) -> Response {
        self.post("/v1/chat/completions", body.to_string()).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.unwrap()
    }
}

/// A chat request for a connection of its own.
pub(crate) fn raw_request(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Length:";
    format!("{head} {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Reads until the other side closes; a reset is an end like any other.
pub(crate) async fn until_end(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(BOUND, stream.read_to_end(&mut bytes)).await;
    assert!(read.is_ok(), "the connection does not end; so far: {}", String::from_utf8_lossy(&bytes));
    String::from_utf8(bytes).unwrap()
}

/// The `data:` of each event, comments left out.
pub(crate) fn data(body: &str) -> Vec<&str> {
    body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
}
