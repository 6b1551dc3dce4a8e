//! Launching and ending engines: each way in which a process can go wrong, with the fake engine and with programs
//! that are none.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gglib_core::admission::Refusal;
use gglib_core::config::Transport;
use gglib_core::model::ModelName;
use gglib_core::ports::{Lease, Liveness};
use gglib_runtime::admission::Pool;
use gglib_runtime::engine::GuardCommand;
use gglib_testkit::engines::{
    Enter, Orphan, children_of, engine_pid, freeze, is_running, only_engine, parent_of, signal, snapshot,
    until_snapshot,
};
use gglib_testkit::{Death, End, Engines, Entry, Launch, Load, Script, Scripted, fake_engine, until};
use rustix::process::Signal;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const BOUND: Duration = Duration::from_secs(20);
/// What happens at once takes less, also on a busy machine; and nothing is bounded by less than this.
const SOON: Duration = Duration::from_secs(5);

async fn lease(pool: &Pool, model: &'static str) -> Result<Box<dyn Lease>, Refusal> {
    pool.lease(ModelName::new(model)).await
}

/// Why the model could not be loaded.
async fn reason(pool: &Pool, model: &'static str) -> String {
    match lease(pool, model).await.err() {
        Some(Refusal::LoadFailed { reason }) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

async fn until_gone(what: &str, pid: u32) {
    until(&format!("the end of {what}"), BOUND, || !is_running(pid)).await;
}

fn socket_of(address: &str) -> PathBuf {
    PathBuf::from(address.strip_prefix("unix:").expect("a socket"))
}

/// The pids of all launches so far.
fn pids(scripted: &Scripted) -> Vec<u32> {
    let entries = scripted.log().entries;
    let pid = |entry| if let Entry::Launched { pid, .. } = entry { Some(pid) } else { None };
    entries.into_iter().filter_map(pid).collect()
}

/// An executable shell script.
fn program(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    // Closed when it is run: a program that is open for writing is "busy".
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn an_engine_that_ends_early_is_noticed_at_once_and_quoted() {
    let words: Vec<_> = (1..=20).map(|number| format!("word {number}")).collect();
    let dies =
        |end| Launch { stderr: words.clone(), death: Some(Death::BeforeBind), end, ..Launch::default() };
    let script = Script {
        launches: vec![
            dies(End::Exit(0)),
            dies(End::Exit(1)),
            dies(End::Abort),
            Launch { stderr: Vec::new(), ..dies(End::Abort) },
            // Likely for lack of memory, so that there is a second try.
            dies(End::Kill),
            dies(End::Kill),
            Launch::default(),
        ],
    }
    .place();
    let pool = Engines::fake().scripted("a", &script).start();
    let quoted = format!(" while loading; its last lines:\n{}", words[12..].join("\n"));
    for (end, quoted) in [
        ("ended with exit status 0", &*quoted),
        ("ended with exit status 1", &quoted),
        ("was killed by signal 6", &quoted),
        ("was killed by signal 6", " while loading"),
    ] {
        let asked = Instant::now();
        assert_eq!(reason(&pool, "a").await, format!("llama-server {end}{quoted}"));
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    }
    let refused = pool.lease(ModelName::new("a")).await.err().unwrap();
    assert_eq!(
        refused.to_string(),
        format!(
            "the model does not fit into memory; two loads ran out of memory, the second one after every engine had \
             been stopped that was neither in use nor pinned: llama-server was killed by signal 9, likely out of memory{quoted}"
        )
    );
    // None of it is in the way of the next one.
    drop(lease(&pool, "a").await.unwrap());
    let totals = snapshot(&*pool).await.totals;
    assert_eq!((totals.loads, totals.failed_loads, totals.crashes), (1, 6, 0));
    assert_eq!(pids(&script).into_iter().filter(|pid| is_running(*pid)).count(), 1);
}

#[tokio::test]
async fn an_engine_that_dies_in_the_middle_of_loading_fails_all_who_wait_and_the_next_try_succeeds() {
    let words =
        "llama_model_load: error loading model: tensor 'output.weight' data is not within the file bounds";
    let dies = Launch {
        stderr: vec![words.to_owned()],
        death: Some(Death::WhileLoading(Duration::from_millis(200))),
        end: End::Exit(1),
        ..Launch::default()
    };
    let script = Script { launches: vec![dies, Launch::default()] }.place();
    let pool = Engines::fake().scripted("a", &script).start();
    let (first, second) = tokio::join!(reason(&pool, "a"), reason(&pool, "a"));
    assert_eq!(first, second);
    assert_eq!(
        first,
        format!(
            "llama-server ended with exit status 1 while loading; its last lines:\n{words}\n\
             I srv    load_model: loading model 'a'"
        )
    );
    lease(&pool, "a").await.unwrap();
    assert_eq!(script.log().launches(), 2);
}

#[tokio::test]
async fn an_engine_without_devices_is_not_asked_to_fit_a_given_context_to_them() {
    let script = Script::default().place();
    let engines = Engines::fake()
        .scripted("given", &script)
        .scripted("open", &script)
        .with("open", |spec| spec.context = None);
    let pool = engines.start();
    for (model, is_told) in [("given", true), ("open", false)] {
        let _lease = lease(&pool, model).await.unwrap();
        let pid = only_engine(&*pool).await.pid.unwrap();
        let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert_eq!(environment.split('\0').any(|set| set == "LLAMA_ARG_FIT=off"), is_told, "{model}");
    }
}

#[tokio::test]
async fn an_engine_killed_while_idle_is_reaped_and_launched_again() {
    let dies = Launch { death: Some(Death::WhenIdle(2 * SECOND)), ..Launch::default() };
    let script = Script { launches: vec![dies, Launch::default()] }.place();
    let pool = Engines::fake().scripted("a", &script).start();
    let first = lease(&pool, "a").await.unwrap();
    until_snapshot(&*pool, "the end", BOUND, |state| state.engines.is_empty()).await;
    assert_eq!(snapshot(&*pool).await.totals.crashes, 1);
    assert_eq!(first.confirm().await, Liveness::Dead);
    assert_eq!(lease(&pool, "a").await.unwrap().generation().0, 2);
    // Not even a zombie: the guard has reaped it, and we the guard.
    assert!(!Path::new(&format!("/proc/{}", pids(&script)[0])).exists());
}

#[tokio::test]
async fn a_silent_load_is_killed_after_the_stall_and_a_talking_one_at_the_limit_and_both_may_come_back() {
    let never = Launch { load: Load::Never, ..Launch::default() };
    let talks = Launch { load_line_every: Some(SECOND / 5), ..never.clone() };
    let script = Script { launches: vec![never, talks, Launch::default()] }.place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.load_stall = SECOND;
    engines.launch.load_limit = 2 * SECOND;
    let pool = engines.start();

    let asked = Instant::now();
    assert_eq!(
        reason(&pool, "a").await,
        "llama-server made no progress for 1 s while loading; its last lines:\nI srv    load_model: loading model 'a'"
    );
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    let over = reason(&pool, "a").await;
    assert!(over.starts_with("llama-server was not ready after 2 s; its last lines:\n"), "{over}");
    assert!(over.contains("I load_tensors: "), "{over}");
    lease(&pool, "a").await.unwrap();
    assert_eq!(pids(&script).into_iter().filter(|pid| is_running(*pid)).count(), 1);
}

#[tokio::test]
async fn a_load_longer_than_the_stall_is_not_killed_while_it_talks() {
    let slow =
        Launch { load: Load::Takes(3 * SECOND), load_line_every: Some(SECOND / 5), ..Launch::default() };
    let script = Script::always(slow).place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.load_stall = SECOND;
    let pool = engines.start();
    lease(&pool, "a").await.unwrap();
    assert_eq!(script.log().launches(), 1);
}

#[tokio::test]
async fn an_engine_stopped_by_a_signal_while_loading_is_stalled_and_killed() {
    let script = Script::always(Launch { load: Load::Takes(10 * SECOND), ..Launch::default() }).place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.load_stall = SECOND / 2;
    let pool = engines.start();
    let (reason, pid) = tokio::join!(reason(&pool, "a"), async {
        let pid = engine_pid(&*pool).await;
        freeze(pid).await;
        pid
    });
    assert!(reason.starts_with("llama-server made no progress for 0 s while loading"), "{reason}");
    assert!(!is_running(pid));
}

#[tokio::test]
async fn health_may_say_anything_before_it_says_200() {
    let script = Script::always(Launch { health: vec![500, 503, 404, 200], ..Launch::default() }).place();
    let pool = Engines::fake().scripted("a", &script).start();
    assert_eq!(lease(&pool, "a").await.unwrap().confirm().await, Liveness::Alive);
}

#[tokio::test]
async fn what_is_no_program_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "text").unwrap();
    let foreign = program(dir.path(), "foreign", "");
    // The head of an ELF file for a machine that does not exist.
    let elf = [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[2, 0, 0xff, 0xff], &[0; 100]].concat();
    std::fs::write(&foreign, elf).unwrap();
    let missing = dir.path().join("missing");
    for (binary, reason_of_system) in [
        (&plain, "Permission denied (os error 13)"),
        (&foreign, "Exec format error (os error 8)"),
        (&missing, "No such file or directory (os error 2)"),
        (&dir.path().to_owned(), "Permission denied (os error 13)"),
    ] {
        let script = Script::default().place();
        let mut engines = Engines::fake().scripted("a", &script);
        engines.launch.binary.clone_from(binary);
        let expected = format!("cannot start {}: {reason_of_system}", binary.display());
        assert_eq!(reason(&engines.start(), "a").await, expected);
    }
}

#[tokio::test]
async fn a_guard_that_is_none_is_told_too() {
    let dir = tempfile::tempdir().unwrap();
    let binary = fake_engine();
    for (guard, expected) in [
        (
            dir.path().join("missing"),
            format!("cannot start the guard {}/missing: No such file", dir.path().display()),
        ),
        (
            program(dir.path(), "mute", "exit 0"),
            format!("cannot start {}: its guard process ended without a word", binary.display()),
        ),
        (
            program(dir.path(), "usage", "echo 'error: unrecognized subcommand' >&2; exit 2"),
            format!(
                "cannot start {}: its guard process ended without a word\nerror: unrecognized subcommand",
                binary.display()
            ),
        ),
    ] {
        let script = Script::default().place();
        let mut engines = Engines::fake().scripted("a", &script);
        engines.launch.guard = GuardCommand { program: guard, args: Vec::new() };
        let reason = reason(&engines.start(), "a").await;
        assert!(reason.starts_with(&expected), "{reason}");
    }
}

#[tokio::test]
async fn a_guard_that_never_says_a_word_does_not_hold_up_the_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let guard = program(dir.path(), "silent", &format!("echo $$ > {}; exec sleep 1000", pid_file.display()));
    let script = Script::default().place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.guard = GuardCommand { program: guard, args: Vec::new() };
    let pool = engines.start();
    let waiting = async {
        until("the guard", BOUND, || std::fs::read_to_string(&pid_file).is_ok_and(|pid| pid.ends_with('\n')))
            .await;
        tokio::time::timeout(BOUND, pool.shut_down(BOUND)).await.expect("the pool shuts down");
    };
    let (refused, ()) = tokio::join!(lease(&pool, "a"), waiting);
    assert_eq!(refused.err(), Some(Refusal::Draining));
    let pid = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    assert!(!is_running(pid));
}

#[tokio::test]
async fn what_is_no_model_file_is_refused_before_anything_is_launched() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let missing = dir.path().join("missing");
    for (path, reason_given) in [
        (missing.as_path(), format!("cannot read the model file {}: No such file", missing.display())),
        (&fifo, format!("cannot read the model file {}: it is not a regular file", fifo.display())),
        (
            dir.path(),
            format!("cannot read the model file {}: it is not a regular file", dir.path().display()),
        ),
        (&empty, format!("{} is not a GGUF model file", empty.display())),
    ] {
        let script = Script::default().place();
        let pool = Engines::fake().model("a", path, 1, script.args()).start();
        let reason = reason(&pool, "a").await;
        assert!(reason.starts_with(&reason_given), "{reason}");
        assert_eq!(script.log().launches(), 0);
    }
}

#[tokio::test]
async fn a_flood_of_log_lines_and_endless_ones_harm_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let flood =
        "yes 'a line that is repeated' | head -c 20000000 >&2; head -c 3000000 /dev/zero | tr '\\0' x >&2";
    let last = "printf '\\nlast \\377 words\\n' >&2";
    let fake = fake_engine();
    let script = Script::default().place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.binary =
        program(dir.path(), "loud", &format!("{flood}; {last}; exec {} \"$@\"", fake.display()));
    lease(&engines.start(), "a").await.unwrap();

    engines.launch.binary = program(dir.path(), "dying", &format!("{flood}; {last}; exit 3"));
    let reason = reason(&engines.start(), "a").await;
    let lines: Vec<_> = reason.lines().collect();
    assert_eq!(lines[0], "llama-server ended with exit status 3 while loading; its last lines:");
    assert_eq!((lines.len(), lines[7].len(), lines[8]), (9, 1024, "last \u{fffd} words"));
}

#[tokio::test]
async fn a_grandchild_that_escapes_with_the_pipes_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    // It leaves the process group, which is all that a guard can hold.
    let escape = format!("setsid sleep 60 & echo $! > {}; echo gone >&2; exit 1", pid_file.display());
    let script = Script::default().place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.binary = program(dir.path(), "escapes", &escape);
    let asked = Instant::now();
    let reason = reason(&engines.start(), "a").await;
    let took = asked.elapsed();
    let _escaped = Orphan::of(std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap());
    assert_eq!(reason, "llama-server ended with exit status 1 while loading; its last lines:\ngone");
    assert!(took < SOON, "{took:?}");
}

#[tokio::test]
async fn an_idle_engine_ends_by_sigterm_long_before_the_grace() {
    let script = Script::default().place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.stop_grace = 10 * BOUND;
    let pool = engines.start();
    drop(lease(&pool, "a").await.unwrap());
    let engine = only_engine(&*pool).await;
    let (pid, socket) = (engine.pid.unwrap(), socket_of(&engine.address.unwrap()));
    let guard = parent_of(pid);
    assert!(socket.exists());
    tokio::time::timeout(SOON, pool.shut_down(BOUND)).await.expect("SIGTERM is enough");
    assert!(script.log().entries.contains(&Entry::Terminated { launch: 1 }));
    assert!(!is_running(pid) && !is_running(guard) && !socket.exists());
}

#[tokio::test]
async fn an_engine_that_ignores_sigterm_is_killed_after_the_grace_with_its_grandchild() {
    let stubborn = Launch { ignores_sigterm: true, leaves_grandchild: true, ..Launch::default() };
    let (a, b) = (Script::always(stubborn).place(), Script::default().place());
    let mut engines = Engines::fake().scripted("a", &a).scripted("b", &b);
    engines.launch.stop_grace = SECOND;
    let pool = engines.start();
    drop(lease(&pool, "a").await.unwrap());
    let pid = engine_pid(&*pool).await;
    let [grandchild] = children_of(pid)[..] else { panic!("{:?}", children_of(pid)) };

    let asked = Instant::now();
    drop(lease(&pool, "b").await.unwrap());
    assert!((SECOND..SECOND + SOON).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    assert!(a.log().entries.contains(&Entry::Terminated { launch: 1 }));
    assert!(!is_running(pid));
    until_gone("the grandchild", grandchild).await;
}

#[tokio::test]
async fn when_its_guard_is_killed_an_engine_goes_too_and_another_comes() {
    let script = Script::default().place();
    let pool = Engines::fake().scripted("a", &script).start();
    let first = lease(&pool, "a").await.unwrap();
    let engine = only_engine(&*pool).await;
    let (pid, socket) = (engine.pid.unwrap(), socket_of(&engine.address.unwrap()));
    signal(parent_of(pid), Signal::KILL);
    until_gone("the engine", pid).await;
    assert_eq!(first.confirm().await, Liveness::Dead);
    assert!(!socket.exists());
    assert_eq!(lease(&pool, "a").await.unwrap().generation().0, 2);
}

#[tokio::test]
async fn when_its_guard_is_killed_while_it_loads_the_load_has_failed_and_the_engine_is_gone() {
    let script = Script::always(Launch { load: Load::Never, ..Launch::default() }).place();
    let pool = Engines::fake().scripted("a", &script).start();
    let (reason, pid) = tokio::join!(reason(&pool, "a"), async {
        let pid = engine_pid(&*pool).await;
        signal(parent_of(pid), Signal::KILL);
        pid
    });
    assert!(
        reason.starts_with("llama-server ended together with its guard process while loading"),
        "{reason}"
    );
    assert!(!is_running(pid));
}

#[tokio::test]
async fn a_guard_that_was_stopped_by_a_signal_still_obeys() {
    let script = Script::always(Launch { ignores_sigterm: true, ..Launch::default() }).place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.stop_grace = SECOND / 2;
    let pool = engines.start();
    let first = lease(&pool, "a").await.unwrap();
    let pid = engine_pid(&*pool).await;
    let guard = parent_of(pid);
    // Nobody tells of the engine's end, since the guard cannot; a suspicion finds it out.
    freeze(guard).await;
    signal(pid, Signal::KILL);
    let suspected = Instant::now();
    assert_eq!(first.confirm().await, Liveness::Dead);
    assert!(suspected.elapsed() < SOON, "{:?}", suspected.elapsed());
    until_gone("the guard", guard).await;

    drop(lease(&pool, "a").await.unwrap());
    let pid = engine_pid(&*pool).await;
    let guard = parent_of(pid);
    freeze(guard).await;
    tokio::time::timeout(SOON, pool.shut_down(BOUND)).await.expect("the guard obeys");
    assert!(!is_running(pid) && !is_running(guard));
}

#[tokio::test]
async fn over_tcp_an_engine_shows_that_it_knows_its_key() {
    let script = Script::default().place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.transport = Transport::Tcp;
    let pool = engines.start();
    assert_eq!(lease(&pool, "a").await.unwrap().confirm().await, Liveness::Alive);
    assert!(only_engine(&*pool).await.address.unwrap().starts_with("http://127.0.0.1:"));
}

/// A pool of an engine that takes some seconds before it listens, and somebody else's listener at its port by then.
async fn with_its_port_taken(then: impl FnOnce(std::net::TcpListener)) -> String {
    let script = Script::always(Launch { binds_after: 3 * SECOND, ..Launch::default() }).place();
    let mut engines = Engines::fake().scripted("a", &script);
    engines.launch.transport = Transport::Tcp;
    let pool = engines.start();
    let taken = async {
        let pid = engine_pid(&*pool).await;
        let address = only_engine(&*pool).await.address.unwrap();
        then(std::net::TcpListener::bind(address.strip_prefix("http://").unwrap()).unwrap());
        (pid, address)
    };
    let (reason, (pid, address)) = tokio::join!(reason(&pool, "a"), taken);
    assert!(!is_running(pid));
    reason.replace(&address, "ADDRESS").replace(address.rsplit_once(':').unwrap().1, "PORT")
}

#[tokio::test]
async fn a_port_that_somebody_else_took_first_is_told_by_the_engine() {
    // A listener that takes connections and says nothing.
    let mut kept = None;
    assert_eq!(
        with_its_port_taken(|listener| kept = Some(listener)).await,
        "llama-server ended with exit status 1 while loading; its last lines:\n\
         E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: PORT\n\
         E srv  llama_server: exiting due to HTTP server error: Address already in use (os error 98)"
    );
}

#[tokio::test]
async fn an_impostor_at_the_port_is_not_taken_for_the_engine() {
    let reason = with_its_port_taken(|listener| {
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        // It says 200 to everything.
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = [0; 1024];
                    let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut request).await;
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
                });
            }
        });
    });
    assert_eq!(reason.await, "another process listens at ADDRESS; the engine was not used");
}
