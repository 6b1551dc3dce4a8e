//! `gglib drill` with fake engines: how it goes, what it prints, how it ends.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use gglib_testkit::engines::is_running;
use gglib_testkit::{Death, End, Entry, Launch, Reply, Running, Script, Scripted, fake_engine};
use rustix::process::Signal;
use serde_json::Value;

const BOUND: Duration = Duration::from_secs(60);
/// For a drill of many scenarios.
const LONG: Duration = Duration::from_secs(300);
const MS: Duration = Duration::from_millis(1);

/// A configuration of its own, with fake engines.
struct Home {
    directory: tempfile::TempDir,
    script: Scripted,
}

/// An engine that takes its time for prompts and for each piece of its answers.
fn steady() -> Launch {
    let reply = Reply { prefill: 1500 * MS, prefill_steps: 3, pace: 40 * MS, ..Reply::numbered(25) };
    Launch { replies: vec![reply], ..Launch::default() }
}

impl Home {
    fn new(script: &Script, more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let script = script.place();
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[engine]\nbinary = \"{}\"\n[models.m]\npath = \"{}\"\nargs = {:?}\n{more}",
            fake_engine().display(),
            script.model().display(),
            script.args(),
        );
        let home = Self { directory, script };
        std::fs::write(home.config(), text).expect("writable");
        home
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("gglib.toml")
    }

    fn gglib(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gglib"));
        let data = self.directory.path().join("data");
        command.args(args).arg("--config").arg(self.config()).env("GGLIB_DATA_DIR", data);
        command
    }

    fn drill(&self, args: &[&str]) -> Output {
        gglib_testkit::output(&mut self.gglib(&[&["drill"], args].concat()), LONG)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr)))
}

/// The rows of a drill without their times.
fn outcomes(card: &Value) -> String {
    let rows = card["rows"].as_array().expect("a list").iter().map(|row| {
        let [scenario, asked, outcome] =
            ["scenario", "asked", "outcome"].map(|key| row[key].as_str().expect(key));
        // Whether the death of an idle engine is known before the next request comes is a matter of luck.
        let told = row["recovery"].as_str().filter(|_| !scenario.ends_with("idle"));
        let recovery = told.unwrap_or("-");
        format!("{scenario:<25} {asked:<6} {outcome:<14} {recovery:<12} {}", row["held"])
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn whatever_happens_to_the_engine_every_request_ends_as_promised() {
    let home = Home::new(&Script::always(steady()), "");
    let scenarios = [
        "kill-idle",
        "kill-prefill",
        "kill-stream",
        "kill-plain",
        "leave-queue",
        "leave-prefill",
        "leave-stream",
        "two-models",
    ];
    let args: Vec<&str> = scenarios.iter().flat_map(|scenario| ["--scenario", scenario]).collect();
    let output = home.drill(&[&["--json"], &args[..]].concat());
    let card = json(&output);
    insta::assert_snapshot!(outcomes(&card), @"
    kill -9, idle             plain  answered       -            true
    kill -9, reading a prompt stream answered       relaunch     true
    kill -9, in a stream      stream answered       continuation true
    kill -9, in an answer     plain  answered       relaunch     true
    client leaves the queue   plain  left_by_client -            true
    client leaves a prompt    stream left_by_client -            true
    client leaves a stream    stream left_by_client -            true
    two models, one place     stream answered       -            true
    two models, one place     plain  answered       -            true
    ");
    assert_eq!(output.status.code(), Some(0), "{card} {}", text(&output.stderr));
    assert_eq!([&card["held"], &card["engines_left"]], [&Value::Bool(true), &0.into()]);
    assert_eq!([&card["not_played"], &card["changed_settings"]], [&Value::Array(Vec::new()); 2]);
    // The person's own directory has not been used.
    assert!(!home.directory.path().join("data").exists());
    // Loaded at first, after each of four kills, and for the change of models and back.
    assert_eq!(home.script.log().launches(), 7);
}

#[test]
fn an_engine_that_hangs_is_found_out_by_the_clocks_which_are_told_when_they_are_not_the_shipped_ones() {
    let brief =
        "[timeouts]\nconnect = \"1s\"\nresponse_headers = \"2s\"\nfirst_content = \"2s\"\nidle = \"2s\"";
    let home = Home::new(&Script::always(steady()), brief);
    let output = home.drill(&["--scenario", "stop-idle", "--scenario", "stop-stream"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed} {}", text(&output.stderr));
    assert!(
        printed.lines().all(|line| line.chars().count() <= 80 || line.starts_with("Engine: ")),
        "{printed}"
    );
    let (head, rows) = printed.split_once("SCENARIO").expect("a table");
    let head: Vec<&str> = head.lines().filter(|line| !line.starts_with("Engine: ")).collect();
    insta::assert_snapshot!(head.join("\n"), @"
    Drill of m on an endpoint of its own
    Promise: every request ends within 45m (at most 3 waits, 4 attempts, 1 repair)
    Settings that are not as shipped:
      timeouts.connect = 1s (shipped: 2s)
      timeouts.response_headers = 2s (shipped: 30s)
      timeouts.first_content = 2s (shipped: 5m)
      timeouts.idle = 2s (shipped: 1m)
    ");
    for row in
        ["SIGSTOP, idle             plain  full answer (relaunch)", "SIGSTOP, in a stream      stream "]
    {
        assert!(rows.contains(row), "{printed}");
    }
    assert!(printed.ends_with("\nThe promise was held in 2 of 2 requests.\n"), "{printed}");
}

#[test]
fn an_endpoint_that_does_not_recover_breaks_the_promise_and_that_is_the_exit_code() {
    let dead = Launch { death: Some(Death::BeforeBind), end: End::Exit(3), ..Launch::default() };
    let script = Script { launches: vec![steady(), dead] };
    let home = Home::new(&script, "[retry]\nmax_attempts = 1");
    let output = home.drill(&["--scenario", "kill-idle", "--scenario", "kill-stream"]);
    let printed = text(&output.stdout);
    let expected = "kill-stream was not played: the endpoint has not recovered from what was played before";
    assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(10), "{printed} {}", text(&output.stderr));
    assert!(printed.contains("broken: afterwards:"), "{printed}");
    assert!(printed.ends_with("\nThe promise was held in 0 of 1 requests.\n"), "{printed}");
}

#[test]
fn without_a_model_there_is_nothing_to_drill_and_the_way_out_is_told() {
    let home = Home::new(&Script::always(steady()), "");
    std::fs::write(home.config(), "").expect("writable");
    let output = home.drill(&[]);
    assert_eq!(output.status.code(), Some(3));
    let error = text(&output.stderr);
    assert!(error.contains("a drill needs a model, and none is configured; `gglib up` gets one"), "{error}");
}

#[test]
fn a_running_endpoint_is_drilled_only_when_that_is_said_and_agreed_to_and_goes_on_afterwards() {
    let home = Home::new(&Script::always(steady()), "");
    let drill = |address: &str, args: &[&str]| {
        let args = [&["drill", "--scenario", "kill-stream", "--json"], args].concat();
        gglib_testkit::output(home.gglib(&args).env("GGLIB_SERVER_LISTEN", address), LONG)
    };
    assert_eq!(drill("127.0.0.1:1", &["--live", "--yes"]).status.code(), Some(7));

    let running = Running::start_collecting_all(home.gglib(&["serve"]));
    let line = running.until_line(|line| line.contains("http://"), BOUND);
    let (_, rest) = line.split_once("http://").expect("the line names it");
    let address = rest.split_once("/v1").expect("the base URL ends with /v1").0;

    let unasked = drill(address, &["--live"]);
    assert_eq!(unasked.status.code(), Some(4));
    assert!(text(&unasked.stderr).contains("run `gglib drill --live --yes` to agree"));
    assert_eq!(home.script.log().launches(), 0, "nothing was done to it");

    let output = drill(address, &["--live", "--yes"]);
    let card = json(&output);
    assert_eq!(outcomes(&card), "kill -9, in a stream      stream answered       continuation true");
    assert_eq!(home.script.log().launches(), 2);
    let refused = drill(address, &["--live", "--yes", "--scenario", "disk-full"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(json(&refused)["not_played"][0]["scenario"], "disk-full");

    let url = format!("http://{address}");
    let status = json(&gglib_testkit::output(&mut home.gglib(&["status", "--json", "--url", &url]), BOUND));
    assert_eq!(
        (&status["totals"]["continuations"], &status["engines"][0]["in_flight"]),
        (&2.into(), &0.into())
    );
}

#[test]
fn a_drill_that_is_interrupted_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::HUP] {
        leaves_nothing_behind(signal);
    }
}

fn leaves_nothing_behind(signal: Signal) {
    let home = Home::new(&Script::always(steady()), "");
    let temporary = home.directory.path().join("tmp");
    std::fs::create_dir(&temporary).expect("writable");
    let mut command = home.gglib(&["drill", "--scenario", "stop-stream"]);
    command.env("TMPDIR", &temporary).env_remove("XDG_RUNTIME_DIR");
    let mut running = Running::start_collecting_all(command);
    running.until_line(|line| line.starts_with("the engine hangs"), BOUND);
    let launched = home.script.log().entries.into_iter().find_map(|entry| match entry {
        Entry::Launched { pid, .. } => Some(pid),
        _ => None,
    });
    let engine = launched.expect("it has answered");
    assert!(is_running(engine));
    running.signal(signal);
    assert_eq!(running.until_end(BOUND).code(), Some(130), "{:?}", running.stderr());
    assert!(!is_running(engine));
    assert_eq!(std::fs::read_dir(&temporary).expect("it is there").count(), 0);
}

/// Holds a place of the model `o` of the endpoint at `address` for some seconds, three times: at once, and then whenever the
/// drill has a request with an engine.
fn other_people(address: &str) -> std::thread::JoinHandle<()> {
    use std::io::{Read, Write};

    fn exchange(address: &str, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).expect("the endpoint listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("UTF-8");
        answer
    }
    fn is_drilling(address: &str) -> bool {
        let answer = exchange(address, "GET /status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let status: Value = serde_json::from_str(body).expect("JSON");
        let engines = status["engines"].as_array().expect("a list");
        engines.iter().any(|engine| engine["model"] == "m" && engine["in_flight"] == 1)
    }
    let address = address.to_owned();
    std::thread::spawn(move || {
        for turn in 0..3 {
            let mut looks = 0;
            while turn > 0 && !is_drilling(&address) {
                looks += 1;
                assert!(looks < 6000, "the drill has asked nothing for a minute");
                std::thread::park_timeout(10 * MS);
            }
            let body = r#"{"model":"o","messages":[],"stream":true}"#;
            let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close";
            let answer =
                exchange(&address, &format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
            assert!(answer.contains("[DONE]"), "{answer}");
        }
    })
}

#[tokio::test]
async fn other_peoples_requests_are_waited_for_and_not_held_against_a_running_endpoint() {
    // Longer than a place may stay taken after a scenario.
    let slow = Reply { pace: 300 * MS, ..Reply::numbered(20) };
    let slow = Script::always(Launch { replies: vec![slow], ..Launch::default() }).place();
    let more = format!(
        "[models.o]\npath = \"{}\"\nargs = {:?}\n[memory]\nmax_resident = 2\n",
        slow.model().display(),
        slow.args()
    );
    let home = Home::new(&Script::always(steady()), &more);
    let running = Running::start_collecting_all(home.gglib(&["serve"]));
    let line = running.until_line(|line| line.contains("http://"), BOUND);
    let (_, rest) = line.split_once("http://").expect("the line names it");
    let address = rest.split_once("/v1").expect("the base URL ends with /v1").0;
    let others = other_people(address);
    slow.until("others to be served", BOUND, |log| log.requests() == 1).await;
    let mut drill =
        home.gglib(&["drill", "--live", "--yes", "--json", "--model", "m", "--scenario", "kill-stream"]);
    let output = gglib_testkit::output(drill.env("GGLIB_SERVER_LISTEN", address), LONG);
    assert_eq!(outcomes(&json(&output)), "kill -9, in a stream      stream answered       continuation true");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    others.join().expect("they have their answers");
}
