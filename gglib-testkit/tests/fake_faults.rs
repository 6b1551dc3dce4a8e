//! Each fault of the fake engine is seen from outside as its script says.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "common/served.rs"]
mod served;

use std::{os::unix::process::ExitStatusExt, time::Duration};

use gglib_testkit::{Death, End, Entry, Fault, Launch, Load, Reply, Script, Scripted, fake_engine, until};
use rustix::process::{Pid, Signal, test_kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::served::{BOUND, Served, data, raw_request, until_end};

const SOON: Duration = Duration::from_millis(50);

fn start(scripted: &Scripted) -> Served {
    Served::start(&fake_engine(), "model.gguf".as_ref(), &scripted.args())
}

/// The only launch, ready.
async fn launched(launch: Launch) -> (Scripted, Served) {
    let scripted = Script::always(launch).place();
    let engine = start(&scripted);
    engine.ready().await;
    (scripted, engine)
}

async fn replying(reply: Reply) -> (Scripted, Served) {
    launched(Launch { replies: vec![reply], ..Launch::default() }).await
}

fn ask() -> Value {
    json!({ "messages": [], "stream": true })
}

/// Everything that comes for `body` until the connection ends, head included.
async fn raw_chat(engine: &Served, body: &Value) -> String {
    let mut stream = engine.connect().await;
    stream.write_all(&raw_request(body)).await.unwrap();
    until_end(&mut stream).await
}

/// The contents of a stream and how it ends: `whole`, or what is missing.
fn outcome(raw: &str) -> (usize, Vec<&'static str>) {
    let contents = data(raw).iter().filter(|data| data.contains("\"delta\":{\"content\":\"")).count();
    let has = [
        ("head", raw.starts_with("HTTP/1.1 200 OK\r\n")),
        ("role", raw.contains("\"role\":\"assistant\"")),
        ("finish", raw.contains("\"finish_reason\":\"stop\"")),
        ("done", raw.contains("data: [DONE]\n\n")),
        ("end", raw.ends_with("0\r\n\r\n")),
    ];
    (contents, has.into_iter().filter(|(_, there)| *there).map(|(part, _)| part).collect())
}

#[tokio::test]
async fn a_stream_goes_wrong_where_and_how_it_should() {
    let gone = [
        (Fault::DieBeforeHeaders, 0, vec![]),
        (Fault::DieAfter(0), 0, vec!["head"]),
        (Fault::DieAfter(2), 2, vec!["head", "role"]),
        (Fault::DieAfter(3), 3, vec!["head", "role"]),
        (Fault::PingThenDie(1, SOON), 1, vec!["head", "role"]),
    ];
    let alive = [
        (Fault::CutAfter(2), 2, vec!["head", "role"]),
        (Fault::EndAfter(2), 2, vec!["head", "role", "end"]),
        (Fault::TextAfter(2), 2, vec!["head", "role", "end"]),
        (Fault::GarbageAfter(2), 3, vec!["head", "role", "finish", "done", "end"]),
        (Fault::NoDone, 3, vec!["head", "role", "finish", "end"]),
        (Fault::NoRole, 3, vec!["head", "finish", "done", "end"]),
    ];
    for (index, (fault, contents, parts)) in gone.into_iter().chain(alive).enumerate() {
        let (_scripted, mut engine) = replying(Reply { fault: Some(fault), ..Reply::numbered(3) }).await;
        let raw = raw_chat(&engine, &ask()).await;
        assert_eq!(outcome(&raw), (contents, parts), "{fault:?}: {raw}");
        match fault {
            Fault::TextAfter(_) => assert!(raw.contains("proxy error: "), "{raw}"),
            Fault::GarbageAfter(_) => {
                assert!(raw.contains("data: {\"choices\":[{\"delta\":{\"content\":\n\n"), "{raw}");
            }
            _ => {}
        }
        if index < 5 {
            assert_eq!(engine.process.until_end(BOUND).signal(), Some(9), "{fault:?}");
        } else {
            assert_eq!(engine.get("/health").await.status(), 200, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_plain_answer_goes_wrong_in_its_own_way() {
    let plain = json!({ "messages": [] });
    for (fault, starts, ends) in [
        (None, "HTTP/1.1 200", "}"),
        (Some(Fault::DieAfter(1)), "", ""),
        (Some(Fault::CutAfter(1)), "", ""),
        (Some(Fault::TextAfter(1)), "HTTP/1.1 500", "proxy error: Failed to read connection"),
    ] {
        let (_scripted, engine) = replying(Reply { fault, ..Reply::numbered(3) }).await;
        let raw = raw_chat(&engine, &plain).await;
        assert!(raw.starts_with(starts) && raw.ends_with(ends), "{fault:?}: {raw}");
        assert_eq!(raw.is_empty(), starts.is_empty(), "{fault:?}: {raw}");
    }
}

#[tokio::test]
async fn an_engine_may_be_healthy_and_useless() {
    let (_scripted, engine) = replying(Reply { fault: Some(Fault::Status(500)), ..Reply::default() }).await;
    let answer = engine.chat(&ask()).await;
    assert_eq!(answer.status(), 500);
    assert!(answer.text().await.unwrap().contains("Compute error."));
    assert_eq!(engine.get("/health").await.status(), 200);
}

#[tokio::test]
async fn health_follows_its_sequence() {
    let scripted = Script::always(Launch { health: vec![500, 503, 200], ..Launch::default() }).place();
    let engine = start(&scripted);
    scripted.until("ready", BOUND, |log| log.entries.contains(&Entry::Ready { launch: 1 })).await;
    for status in [500, 503, 200, 200] {
        assert_eq!(engine.get("/health").await.status(), status);
    }
}

#[tokio::test]
async fn launches_die_in_turn_with_their_last_words() {
    let dying = |death, end, words: &str| Launch {
        death: Some(death),
        end,
        stderr: vec![words.to_owned()],
        ..Launch::default()
    };
    let loading = dying(Death::WhileLoading(Duration::from_secs(1)), End::Kill, "allocating");
    let scripted = Script {
        launches: vec![
            dying(Death::BeforeBind, End::Exit(3), "cannot allocate memory"),
            Launch { load: Load::Never, load_line_every: Some(Duration::from_millis(10)), ..loading },
            dying(Death::WhenIdle(SOON), End::Abort, "assertion failed"),
            Launch::default(),
        ],
    }
    .place();
    for (code, signal, words) in [
        (Some(3), None, "cannot allocate memory"),
        (None, Some(9), "allocating"),
        (None, Some(6), "assertion"),
    ] {
        let mut engine = start(&scripted);
        let status = engine.process.until_end(BOUND);
        assert_eq!((status.code(), status.signal()), (code, signal));
        engine.process.until_line(|line| line.starts_with(words), BOUND);
        if signal == Some(9) {
            engine.process.until_line(|line| line == "I load_tensors: 1 %", BOUND);
        }
    }
    start(&scripted).ready().await;
    start(&scripted).ready().await;
    assert_eq!(scripted.log().launches(), 5);
}

#[tokio::test]
async fn a_hanging_load_answers_503_for_ever() {
    let scripted = Script::always(Launch { load: Load::Never, ..Launch::default() }).place();
    let engine = start(&scripted);
    until("the engine to listen", BOUND, || engine.socket.exists()).await;
    let health = engine.get("/health").await;
    assert_eq!((health.status().as_u16(), health.headers().get("retry-after")), (503, None));
    let body = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
    assert_eq!(health.text().await.unwrap(), body);
    assert_eq!(engine.chat(&ask()).await.status(), 503);
}

#[tokio::test]
async fn hanging_answers_are_silent_or_ping_and_are_cancelled_when_left() {
    for (fault, pings) in [
        (Fault::HangBeforeHeaders, false),
        (Fault::HangAfter(2), false),
        (Fault::PingAfter(0), true),
        (Fault::PingAfter(2), true),
    ] {
        let reply = Reply { fault: Some(fault), ..Reply::numbered(3) };
        let ping_every = Some(Duration::from_millis(20));
        let (scripted, engine) =
            launched(Launch { replies: vec![reply], ping_every, ..Launch::default() }).await;
        let mut stream = engine.connect().await;
        stream.write_all(&raw_request(&ask())).await.unwrap();
        let mut raw = Vec::new();
        let silence = Duration::from_millis(300);
        let listen = async { while stream.read_buf(&mut raw).await.unwrap() > 0 {} };
        assert!(tokio::time::timeout(silence, listen).await.is_err(), "{fault:?}: the connection ended");
        let raw = String::from_utf8(raw).unwrap();
        assert_eq!(raw.matches("3\r\n:\n\n\r\n").count() > 3, pings, "{fault:?}: {raw}");
        drop(stream);
        scripted.until("the cancel", BOUND, |log| log.cancelled() == 1).await;
        assert_eq!(scripted.log().finished(), 0);
    }
}

#[tokio::test]
async fn a_plain_request_is_not_cancelled_when_its_client_leaves() {
    let prefill = Duration::from_millis(300);
    let (scripted, engine) = replying(Reply { prefill, ..Reply::default() }).await;
    let mut stream = engine.connect().await;
    stream.write_all(&raw_request(&json!({ "messages": [] }))).await.unwrap();
    scripted.until("the request", BOUND, |log| log.requests() == 1).await;
    drop(stream);
    let log = scripted.until("the end", BOUND, |log| log.finished() == 1).await;
    assert_eq!(log.cancelled(), 0);
}

#[tokio::test]
async fn requests_beyond_the_slots_wait_in_silence() {
    let held = Reply { fault: Some(Fault::HangAfter(1)), ..Reply::numbered(1) };
    let (scripted, engine) =
        launched(Launch { replies: vec![held, Reply::default()], ..Launch::default() }).await;
    let mut first = engine.connect().await;
    first.write_all(&raw_request(&ask())).await.unwrap();
    let started = |request| Entry::Started { launch: 1, request };
    scripted.until("the first", BOUND, |log| log.entries.contains(&started(1))).await;

    let mut second = engine.connect().await;
    second.write_all(&raw_request(&ask())).await.unwrap();
    scripted.until("the second", BOUND, |log| log.requests() == 2).await;
    assert!(tokio::time::timeout(SOON, second.read_u8()).await.is_err());
    drop(first);
    assert_eq!(outcome(&until_end(&mut second).await), (5, vec!["head", "role", "finish", "done", "end"]));
    let log = scripted.until("the end", BOUND, |log| log.finished() == 1).await;
    let position = |entry: &Entry| log.entries.iter().position(|other| other == entry);
    assert!(position(&Entry::Cancelled { launch: 1, request: 1 }) < position(&started(2)), "{log:#?}");
}

#[tokio::test]
async fn a_reused_connection_is_dropped_once() {
    let (scripted, engine) = launched(Launch { drops_reused_connection: true, ..Launch::default() }).await;
    let health = b"GET /health HTTP/1.1\r\nHost: engine\r\n\r\n";
    let answered_twice = async || {
        let mut stream = engine.connect().await;
        let mut answers = 0;
        for _ in 0..2 {
            stream.write_all(health).await.unwrap();
            let mut answer = [0; 1024];
            answers += usize::from(stream.read(&mut answer).await.is_ok_and(|read| read > 0));
        }
        answers
    };
    assert_eq!((answered_twice().await, answered_twice().await), (1, 2));
    assert_eq!(scripted.log().requests(), 0);
}

#[tokio::test]
async fn an_idle_connection_is_closed_when_told() {
    let (_scripted, engine) =
        launched(Launch { idle_close: Duration::from_secs(1), ..Launch::default() }).await;
    assert_eq!(until_end(&mut engine.connect().await).await, "");
}

#[tokio::test]
async fn sigterm_can_be_ignored() {
    let (scripted, mut engine) = launched(Launch { ignores_sigterm: true, ..Launch::default() }).await;
    for round in 1..=2 {
        engine.process.signal(Signal::TERM);
        let terminated = |log: &gglib_testkit::Log| {
            log.entries.iter().filter(|entry| matches!(entry, Entry::Terminated { .. })).count() == round
        };
        scripted.until("the signal", BOUND, terminated).await;
        assert_eq!(engine.get("/health").await.status(), 200);
    }
    engine.process.signal(Signal::KILL);
    assert_eq!(engine.process.until_end(BOUND).signal(), Some(9));
}

#[tokio::test]
async fn an_idle_engine_ends_on_sigterm() {
    let (_scripted, mut engine) = launched(Launch::default()).await;
    engine.process.signal(Signal::TERM);
    assert_eq!(engine.process.until_end(BOUND).code(), Some(0));
}

#[tokio::test]
async fn a_grandchild_survives_the_engine_but_not_its_group() {
    let (_scripted, mut engine) = launched(Launch { leaves_grandchild: true, ..Launch::default() }).await;
    let group = Pid::from_raw(engine.process.id().try_into().unwrap()).unwrap();
    engine.process.signal(Signal::KILL);
    engine.process.until_end(BOUND);
    assert!(test_kill_process_group(group).is_ok());
    drop(engine);
    until("the grandchild's end", BOUND, || test_kill_process_group(group).is_err()).await;
}

#[tokio::test]
async fn the_log_has_bodies_byte_for_byte_and_the_command_line() {
    let (scripted, engine) = replying(Reply::default()).await;
    let body = r#"{ "messages":[],"seed":18446744073709551616,  "x":1e400,"x":2 }"#;
    assert_eq!(engine.post("/v1/chat/completions", body).await.unwrap().status(), 200);
    let log = scripted.until("the end", BOUND, |log| log.finished() == 1).await;
    assert_eq!(log.bodies().collect::<Vec<_>>(), [body]);
    let Entry::Launched { pid, args, .. } = &log.entries[0] else { panic!("{log:#?}") };
    assert_eq!(*pid, engine.process.id());
    assert!(args.contains(&"--sse-ping-interval".to_owned()));
}

#[tokio::test]
async fn the_script_may_come_by_environment_and_the_engine_by_tcp() {
    let scripted = Script::always(Launch { death: Some(Death::BeforeBind), ..Launch::default() }).place();
    let mut command = std::process::Command::new(fake_engine());
    let (name, path) = scripted.env();
    command.env(name, path);
    let mut process = gglib_testkit::Running::start(command);
    assert_eq!(process.until_end(BOUND).signal(), Some(9));

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = std::process::Command::new(fake_engine());
    command.args(["--host", "127.0.0.1", "--port", &free.port().to_string()]);
    let _process = gglib_testkit::Running::start(command);
    until("the engine to listen", BOUND, || std::net::TcpStream::connect(free).is_ok()).await;
}
