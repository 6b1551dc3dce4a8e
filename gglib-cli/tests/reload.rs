//! The endpoint as a service: its configuration changes while it runs, and it is told to stop while it works.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use gglib_testkit::engines::{is_running, signal};
use gglib_testkit::wire::{Answer, Piece, Wire, post};
use gglib_testkit::{Launch, Reply, Running, Script, Scripted, fake_engine};
use rustix::process::Signal;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

const BOUND: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

/// `gglib serve` on a configuration of its own, with fake engines.
struct Served {
    home: tempfile::TempDir,
    running: Running,
    address: String,
}

/// A script whose engine answers with `contents` contents, one every 50 ms.
fn scripted(contents: usize) -> Scripted {
    let reply = Reply { pace: 50 * MS, ..Reply::numbered(contents) };
    Script::always(Launch { replies: vec![reply], ..Launch::default() }).place()
}

/// The section of a model.
fn model(name: &str, script: &Scripted, more: &str) -> String {
    let path = script.model();
    format!("[models.{name}]\npath = \"{}\"\nargs = {:?}\n{more}\n", path.display(), script.args())
}

impl Served {
    fn start(models: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        std::fs::write(config(&home), text(models)).expect("writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gglib"));
        command.args(["serve", "--config"]).arg(config(&home)).env("GGLIB_DATA_DIR", home.path());
        let running = Running::start_collecting_all(command);
        let line = running.until_line(|line| line.contains("http://"), BOUND);
        let (_, rest) = line.split_once("http://").expect("the line names it");
        let address = rest.split_once("/v1").expect("the base URL ends with /v1").0.to_owned();
        Self { home, running, address }
    }

    fn save(&self, models: &str) {
        std::fs::write(config(&self.home), text(models)).expect("writable");
    }

    async fn connect(&self) -> Wire<TcpStream> {
        Wire::new(TcpStream::connect(&self.address).await.expect("the endpoint listens")).within(5 * BOUND)
    }

    async fn get(&self, path: &str) -> Answer {
        self.connect().await.ask(format!("GET {path} HTTP/1.1\r\nhost: gglib\r\n\r\n")).await
    }

    async fn chat(&self, model: &str) -> Answer {
        let body = format!("{{\"model\":\"{model}\",\"messages\":[]}}");
        self.connect().await.ask(post("/v1/chat/completions", &body)).await
    }

    /// A stream that has begun.
    async fn stream(&self, model: &str) -> Wire<TcpStream> {
        let body = format!("{{\"model\":\"{model}\",\"messages\":[],\"stream\":true}}");
        let mut client = self.connect().await;
        client.send(post("/v1/chat/completions", &body)).await;
        assert_eq!(client.head().await.expect("the endpoint answers").status, 200);
        client.until("\"0 \"").await;
        client
    }

    async fn status(&self) -> Value {
        self.get("/status").await.json()
    }

    async fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let status = self.status().await;
            if condition(&status) {
                return status;
            }
            assert!(started.elapsed() < BOUND, "waited in vain for {what}: {status}");
            sleep(20 * MS).await;
        }
    }
}

fn config(home: &tempfile::TempDir) -> PathBuf {
    home.path().join("gglib.toml")
}

fn text(models: &str) -> String {
    let engine = fake_engine();
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[engine]\nbinary = \"{}\"\ndrain = \"3s\"\n[memory]\nmax_resident = 4\n{models}",
        engine.display()
    )
}

fn reloads(status: &Value) -> u64 {
    status["config"]["reloads"].as_u64().expect("it is counted")
}

fn pid(status: &Value, model: &str) -> Option<u64> {
    let engines = status["engines"].as_array().expect("a list");
    let mut of_model = engines.iter().filter(|engine| engine["model"] == model);
    let pid = of_model.next()?["pid"].as_u64();
    assert!(of_model.next().is_none(), "more than one engine of {model}: {status}");
    pid
}

#[tokio::test]
async fn three_saves_in_two_seconds_are_one_reload_that_cuts_no_stream_and_doubles_no_model() {
    let [kept, changed, removed, added] = [120, 5, 5, 5].map(scripted);
    let before = [
        model("kept", &kept, "preload = true"),
        model("changed", &changed, "preload = true"),
        model("removed", &removed, ""),
    ];
    let served = Served::start(&before.concat());
    let status = served
        .until("both to be loaded", |status| {
            ["kept", "changed"].iter().all(|model| pid(status, model).is_some())
        })
        .await;
    let (kept_pid, changed_pid) = (pid(&status, "kept"), pid(&status, "changed"));
    assert_eq!(served.chat("removed").await.head.status, 200);
    let mut stream = served.stream("kept").await;

    let after = [
        model("kept", &kept, "preload = true\naliases = [\"k\"]"),
        model("changed", &changed, "preload = true\ncontext = 1024"),
        model("added", &added, "preload = true"),
    ];
    for extra in ["# one\n", "# two\n", ""] {
        served.save(&format!("{}{extra}", after.concat()));
        sleep(650 * MS).await;
    }
    served.until("the reload", |status| reloads(status) == 1).await;
    let status = served
        .until("the others to settle", |status| {
            pid(status, "removed").is_none() && pid(status, "added").is_some()
        })
        .await;
    assert_eq!(pid(&status, "kept"), kept_pid);
    assert_eq!(served.chat("changed").await.head.status, 200);
    assert_ne!(pid(&served.status().await, "changed"), changed_pid);
    assert_eq!(served.chat("added").await.head.status, 200);
    let gone = served.chat("removed").await;
    assert_eq!((gone.head.status, &gone.error()["code"]), (404, &"model_not_found".into()));
    let models = served.get("/v1/models").await.body;
    assert!(models.contains("\"added\"") && !models.contains("\"removed\""), "{models}");

    let (rest, end) = stream.rest().await;
    assert_eq!(end, Piece::End);
    assert!(rest.contains("\"119 \"") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
    let asked = served.chat("k");
    assert_eq!(asked.await.head.status, 200);
    let status = served.status().await;
    assert_eq!((reloads(&status), pid(&status, "kept")), (1, kept_pid));
    assert_eq!([&kept, &added].map(|script| script.log().launches()), [1, 1]);
    assert_eq!(changed.log().launches(), 2);
}

#[tokio::test]
async fn a_model_that_is_removed_finishes_what_it_has_begun() {
    let [going, other] = [40, 5].map(scripted);
    let served = Served::start(&[model("going", &going, ""), model("other", &other, "")].concat());
    let mut stream = served.stream("going").await;
    served.save(&model("other", &other, ""));
    served.running.signal(Signal::HUP);
    served.until("the reload", |status| reloads(status) == 1).await;
    assert_eq!(served.chat("going").await.head.status, 404);
    let (rest, end) = stream.rest().await;
    assert!(end == Piece::End && rest.contains("\"39 \""), "{rest}");
    served.until("its engine to end", |status| pid(status, "going").is_none()).await;
}

#[tokio::test]
async fn a_bad_file_keeps_the_old_configuration_and_says_so() {
    let script = scripted(5);
    let served = Served::start(&model("m", &script, ""));
    assert_eq!(served.chat("m").await.head.status, 200);
    let before = pid(&served.status().await, "m");

    served.save("[models.m]\npaht = \"x\"\n");
    let status = served.until("the error", |status| status["config"]["error"].is_string()).await;
    let error = status["config"]["error"].as_str().expect("a text");
    assert!(error.contains("unknown key `models.m.paht`"), "{error}");
    let line = served.running.until_line(|line| line.contains("could not be reloaded"), BOUND);
    assert!(line.contains("models.m.paht") && line.contains("the old one stays"), "{line}");
    assert_eq!(served.chat("m").await.head.status, 200);
    assert_eq!((reloads(&status), pid(&status, "m")), (0, before));

    std::fs::remove_file(config(&served.home)).expect("it is there");
    served.running.signal(Signal::HUP);
    served
        .until("the next error", |status| {
            status["config"]["error"].as_str().is_some_and(|error| error.contains("no configuration at"))
        })
        .await;
    assert_eq!(served.chat("m").await.head.status, 200);

    // The same as at the start: nothing to do but to say that all is well.
    served.save(&model("m", &script, ""));
    let status = served.until("the remedy", |status| status["config"]["error"].is_null()).await;
    assert_eq!((reloads(&status), pid(&status, "m")), (1, before));
}

#[tokio::test]
async fn keys_that_have_to_wait_for_a_restart_are_named() {
    let script = scripted(5);
    let served = Served::start(&model("m", &script, ""));
    let changed = text(&model("m", &script, "")).replace("drain = ", "transport = \"tcp\"\ndrain = ");
    std::fs::write(config(&served.home), changed).expect("writable");
    served.running.signal(Signal::HUP);
    let status = served.until("the reload", |status| reloads(status) == 1).await;
    assert_eq!(status["config"]["after_restart"], serde_json::json!(["engine.transport"]));
    served.running.until_line(
        |line| line.contains("takes effect after a restart") && line.contains("engine.transport"),
        BOUND,
    );
    assert_eq!(served.chat("m").await.head.status, 200);
}

/// The text of every file below `directory`.
fn kept(directory: &std::path::Path) -> String {
    let entries =
        std::fs::read_dir(directory).expect("readable").map(|entry| entry.expect("readable").path());
    let text = entries.map(|path| {
        let bytes = || std::fs::read(&path).unwrap_or_default();
        if path.is_dir() { kept(&path) } else { String::from_utf8_lossy(&bytes()).into_owned() }
    });
    text.collect()
}

/// 20 of the gateway's faults: every request's body was written to the disk. What people ask and are told is theirs; only
/// slots, which are saved for them, hold their conversation.
#[tokio::test]
async fn what_is_asked_and_answered_is_neither_logged_nor_kept() {
    let reply = Reply::text(["hocus ", "pocus"]);
    let script = Script::always(Launch { replies: vec![reply], ..Launch::default() }).place();
    let mut served = Served::start(&model("m", &script, "[slots]\nenabled = false"));
    let ask = |body: &str| post("/v1/chat/completions", body);
    for body in [
        r#"{"messages":[{"role":"user","content":"abrakadabra"}]}"#,
        r#"{"messages":[{"role":"user","content":"abrakadabra"}],"stream":true}"#,
        r#"{"messages":[{"role":"user","content":"abrakadabra"}],"n":"#,
    ] {
        served.connect().await.ask(ask(body)).await;
    }
    let status = served.status().await.to_string();
    served.running.signal(Signal::TERM);
    assert!(served.running.until_end(BOUND).success());
    let log = served.running.stderr().concat();
    let kept = kept(served.home.path());
    assert!(log.contains("gglib serves") && kept.contains("[models.m]"), "something was looked at");
    for (place, text) in [("the log", &log), ("the status", &status), ("a file", &kept)] {
        for word in ["abrakadabra", "hocus", "pocus"] {
            assert!(!text.contains(word), "{word} is in {place}: {text}");
        }
    }
}

/// 28 of the gateway's faults: what is launched again is launched as it is configured by then.
#[tokio::test]
async fn a_relaunch_takes_the_settings_that_are_in_effect_by_then() {
    let slow = Reply { prefill: BOUND, ..Reply::numbered(3) };
    let before = Script::always(Launch { replies: vec![slow], ..Launch::default() }).place();
    let after = scripted(3);
    let served = Served::start(&model("m", &before, ""));
    let mut client = served.connect().await;
    client.send(post("/v1/chat/completions", "{\"messages\":[]}")).await;
    before.until("the request to be served", BOUND, |log| log.requests() == 1).await;
    served.save(&model("m", &after, "context = 1024"));
    served.running.signal(Signal::HUP);
    served.until("the reload", |status| reloads(status) == 1).await;
    assert_eq!(after.log().launches(), 0, "what runs goes on as it was begun: {:?}", after.log());
    let engine = pid(&served.status().await, "m").expect("it is loaded");
    signal(u32::try_from(engine).expect("a process id"), Signal::KILL);
    let answer = client.answer().await;
    assert_eq!(
        (answer.head.status, answer.head.header("x-gglib-recovery")),
        (200, Some("relaunch")),
        "{answer:?}"
    );
    assert_eq!((before.log().launches(), after.log().launches(), after.log().requests()), (1, 1, 1));
}

fn assert_draining(answer: &Answer) {
    assert_eq!(answer.head.status, 503, "{}", answer.body);
    assert_eq!(answer.error()["code"], "draining");
    let after: u64 = answer.head.header("retry-after").expect("it says when").parse().expect("seconds");
    assert!((1..=60).contains(&after), "{after}");
}

#[tokio::test]
async fn sigterm_refuses_who_waits_and_who_comes_and_lets_who_is_served_finish() {
    // Three seconds: half of it until a waiting stream has its head, half of it until the drain's bound.
    let script = scripted(60);
    let mut served = Served::start(&model("m", &script, ""));
    let mut answered = served.stream("m").await;
    let engine = pid(&served.status().await, "m").expect("it is loaded");
    let plain = post("/v1/chat/completions", "{\"messages\":[]}");
    let streamed = post("/v1/chat/completions", "{\"messages\":[],\"stream\":true}");
    let (mut waiting, mut waiting_long) = (served.connect().await, served.connect().await);
    waiting.send(&plain).await;
    waiting_long.send(&streamed).await;
    // After a while a stream that waits has its head, and so its refusal is an event.
    let head = waiting_long.head().await.expect("the endpoint answers");
    assert_eq!(head.status, 200);
    served
        .until("two to wait", |status| {
            status["queue"].as_array().is_some_and(|queue| queue.len() == 1 && queue[0]["waiting"] == 2)
        })
        .await;
    served.running.signal(Signal::TERM);

    assert_draining(&waiting.answer().await);
    let (refused, end) = waiting_long.rest().await;
    assert_eq!(end, Piece::Cut);
    assert!(refused.contains("\"code\":\"draining\"") && refused.contains("retry_after_ms"), "{refused}");
    assert!(!refused.contains("[DONE]"), "{refused}");
    assert_draining(&served.chat("m").await);
    assert_draining(&served.connect().await.ask(&streamed).await);
    assert_eq!(served.get("/readyz").await.head.status, 503);
    assert_eq!(served.get("/healthz").await.head.status, 200);

    let (rest, end) = answered.rest().await;
    assert_eq!(end, Piece::End);
    assert!(rest.contains("\"59 \"") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert!(served.running.until_end(BOUND).success());
    assert!(!is_running(u32::try_from(engine).expect("a process id")));
}

#[tokio::test]
async fn a_drain_ends_at_its_bound_and_who_is_cut_off_is_told() {
    let script = scripted(4000);
    let mut served = Served::start(&model("m", &script, ""));
    let mut answered = served.stream("m").await;
    let engine = pid(&served.status().await, "m").expect("it is loaded");
    let asked = Instant::now();
    served.running.signal(Signal::TERM);
    let (rest, end) = answered.rest().await;
    let took = asked.elapsed();
    assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(10), "{took:?}");
    assert_eq!(end, Piece::Cut);
    assert!(rest.contains("\"error\":") && !rest.contains("[DONE]"), "{}", &rest[rest.len() - 400..]);
    assert!(served.running.until_end(BOUND).success());
    assert!(!is_running(u32::try_from(engine).expect("a process id")));
}
