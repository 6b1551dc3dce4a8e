//! The main job with the real engine and a real model, as a person runs it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use gglib_testkit::engines::is_running;
use gglib_testkit::{Running, real, target_dir};
use rustix::process::Signal;
use serde_json::Value;

/// Downloads, if this is the first test of all, and a cold load on a busy machine.
const UP: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(20);

/// An empty home, and the data directory that all tests share so that nothing is fetched twice.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        real::engine();
        real::smollm2();
        Self(tempfile::tempdir().expect("a temporary directory can be made"))
    }

    fn gglib(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gglib"));
        command
            .args(args)
            .env("HOME", self.0.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("GGLIB_LLAMA_SERVER")
            // See `real::one_thread`: engines of several tests run at once here.
            .env("LLAMA_ARG_THREADS", "1")
            .env("GGLIB_DATA_DIR", target_dir().join("test-assets"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        gglib_testkit::output(&mut self.gglib(args), UP)
    }

    /// Starts `gglib up` on a free port and waits for its answer; the endpoint's address.
    fn up(&self) -> (Running, String) {
        let running = Running::start_collecting_all(self.gglib(&["up", "--yes", "--port", "0"]));
        running.until_line(|line| line.starts_with("Ctrl-C stops"), UP);
        let address = address(&running);
        (running, address)
    }

    /// Starts `gglib serve` with a model that answers the same every time; the endpoint's address.
    fn serve(&self) -> (Running, String) {
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[models.smollm2]\npath = \"{}\"\ncontext = 2048\n\
             args = [\"--temp\", \"0\"]\n",
            real::smollm2().display()
        );
        let path = self.0.path().join("served.toml");
        std::fs::write(&path, config).expect("writable");
        let serve = self.gglib(&["serve", "--config", path.to_str().expect("UTF-8")]);
        let running = Running::start_collecting_all(serve);
        let address = address(&running);
        (running, address)
    }

    fn config(&self) -> PathBuf {
        self.0.path().join(".config/gglib/gglib.toml")
    }
}

/// `127.0.0.1:4711` out of the line that names the endpoint.
fn address(running: &Running) -> String {
    let line = running.until_line(|line| line.contains("http://"), UP);
    let (_, rest) = line.split_once("http://").expect("the line names it");
    rest.split_once("/v1").expect("the base URL ends with /v1").0.to_owned()
}

fn status(address: &str) -> Value {
    let mut stream = TcpStream::connect(address).expect("the endpoint listens");
    let request = format!("GET /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("it answers");
    let (_, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str(body).expect("JSON")
}

fn engine_pid(address: &str) -> u32 {
    let pid = status(address)["engines"][0]["pid"].as_u64().expect("an engine is loaded");
    u32::try_from(pid).expect("a process id")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn up_ends_with_a_real_answer_and_running_it_again_changes_nothing() {
    let home = Home::new();
    let (running, address) = home.up();
    let answer = running.until_line(|line| line.starts_with("[5/5] answer"), UP);
    assert!(answer.contains("Paris"), "{answer}");

    let before = std::fs::read_to_string(home.config()).expect("up has written it");
    let port = address.rsplit_once(':').expect("host and port").1;
    let again = home.run(&["up", "--port", port]);
    let printed = text(&again.stdout);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(printed.contains("(unchanged)") && printed.contains("(was running already)"), "{printed}");
    assert!(printed.contains("Paris"), "{printed}");
    assert_eq!(std::fs::read_to_string(home.config()).expect("still there"), before);
}

#[test]
fn q_answers_with_what_was_piped_in() {
    let home = Home::new();
    let (_running, address) = home.serve();
    let mut question = home.gglib(&["q", "Repeat the word above.", "--url", &format!("http://{address}/v1")]);
    let mut child = question
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gglib starts");
    child.stdin.take().expect("piped").write_all(b"Lighthouse").expect("it reads");
    let output = gglib_testkit::output_of(child, UP);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).to_lowercase().contains("lighthouse"), "{}", text(&output.stdout));
}

#[test]
fn sigterm_stops_everything_in_order() {
    let home = Home::new();
    let (mut running, address) = home.up();
    let engine = engine_pid(&address);
    running.signal(Signal::TERM);
    assert!(running.until_end(SOON).success());
    assert!(running.stderr().iter().any(|line| line == "Stopped; no engine is left."));
    assert!(!is_running(engine));
}

#[test]
fn kill_9_of_gglib_leaves_no_engine() {
    let home = Home::new();
    let (mut running, address) = home.up();
    let engine = engine_pid(&address);
    let socket = status(&address)["engines"][0]["address"].as_str().expect("it has one").to_owned();
    let directory = Path::new(socket.trim_start_matches("unix:")).parent().expect("in one").to_owned();
    running.signal(Signal::KILL);
    running.until_end(SOON);
    wait_until("the engine and its directory to be gone", || !is_running(engine) && !directory.exists());
}

#[test]
fn kill_9_of_the_idle_engine_is_not_noticed_by_the_next_client() {
    let home = Home::new();
    let (_running, address) = home.serve();
    let ask = || home.run(&["q", "Say hi", "--no-retry", "--url", &format!("http://{address}/v1")]);
    assert!(ask().status.success());
    let engine = engine_pid(&address);
    let killed = Command::new("kill").args(["-9", &engine.to_string()]).status().expect("kill exists");
    assert!(killed.success());
    let output = ask();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_ne!(engine_pid(&address), engine);
}

#[test]
fn a_taken_address_is_named_with_the_way_out() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound");
    let output = home.run(&["serve", "--listen", &address.to_string()]);
    assert_eq!(output.status.code(), Some(6));
    let expected = format!(
        "error: another program already listens at {address}; stop it, or choose another port \
         (`gglib up --port`, `gglib serve --listen`)\n"
    );
    assert!(text(&output.stderr).ends_with(&expected), "{}", text(&output.stderr));
}

#[test]
fn an_engine_that_exits_at_once_is_quoted_and_not_started_over_and_over() {
    let home = Home::new();
    let engine = home.0.path().join("llama-server");
    let starts = home.0.path().join("starts");
    let script = format!("#!/bin/sh\necho x >> {}\necho no such instruction >&2\nexit 3\n", starts.display());
    std::fs::write(&engine, script).expect("writable");
    std::fs::set_permissions(&engine, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[engine]\nbinary = \"{}\"\n[models.m]\npath = \"{}\"\n",
        engine.display(),
        real::smollm2().display()
    );
    let path = home.0.path().join("gglib.toml");
    std::fs::write(&path, config).expect("writable");
    let serve = home.gglib(&["serve", "--config", path.to_str().expect("UTF-8")]);
    let running = Running::start_collecting_all(serve);
    let url = format!("http://{}/v1", address(&running));

    let output = home.run(&["q", "Say hi", "--url", &url]);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    let error = text(&output.stderr);
    assert!(error.contains("503 model_load_failed: `m`: the model could not be loaded"), "{error}");
    assert!(error.contains("llama-server ended with exit status 3 while loading"), "{error}");
    assert!(error.contains("no such instruction"), "{error}");
    let starts = std::fs::read_to_string(starts).expect("it was started");
    assert_eq!(starts.lines().count(), 1, "one request, one start: another would fail the same way");
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(gglib_testkit::until(what, SOON, condition));
}
