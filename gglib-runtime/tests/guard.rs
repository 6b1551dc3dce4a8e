//! The guard process: its protocol, and that no engine outlives us.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gglib_core::model::ModelName;
use gglib_runtime::engine::Register;
use gglib_testkit::engines::{Enter, Orphan, children_of, freeze, is_running, parent_of, signal};
use gglib_testkit::{Launch, Load, Running, Script, Scripted, bins, until};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

const BOUND: Duration = Duration::from_secs(20);

/// A guard of a shell command.
struct Guard {
    process: Child,
    orders: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
}

impl Guard {
    fn of(args: &[&str]) -> Self {
        let mut process = tokio::process::Command::new(bins().join("gglib-guard"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (orders, reports) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, orders, reports: BufReader::new(reports).lines() }
    }

    fn of_shell(command: &str) -> Self {
        Self::of(&["--", "/bin/sh", "-c", command])
    }

    /// The next report; none when there are no more.
    async fn report(&mut self) -> Option<String> {
        timeout(BOUND, self.reports.next_line()).await.expect("a report").unwrap()
    }

    async fn pid(&mut self) -> u32 {
        let report = self.report().await.unwrap();
        report.strip_prefix("pid ").and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{report}"))
    }

    async fn order(&mut self, order: &str) {
        self.orders.write_all(order.as_bytes()).await.unwrap();
    }
}

/// A command that writes the pid of a child of its own to `file`, so that the child can be looked for later.
fn with_grandchild(file: &Path, then: &str) -> String {
    format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; {then}", file.display())
}

async fn grandchild(file: &Path) -> u32 {
    until("the grandchild", BOUND, || file.exists()).await;
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

async fn until_gone(what: &str, pid: u32) {
    until(&format!("the end of {what}"), BOUND, || !is_running(pid)).await;
}

#[tokio::test]
async fn it_reports_how_its_engine_ends_and_ends_with_it() {
    for (command, end) in [("exit 0", "exit 0"), ("exit 7", "exit 7"), ("kill -9 $$", "signal 9")] {
        let mut guard = Guard::of_shell(command);
        let pid = guard.pid().await;
        assert_eq!(guard.report().await.as_deref(), Some(end));
        assert!(!is_running(pid));
        assert_eq!(guard.report().await, None);
        assert!(guard.process.wait().await.unwrap().success());
    }
}

#[tokio::test]
async fn what_cannot_be_started_is_an_error_with_the_systems_reason() {
    for (args, error) in [
        (&["--", "/no/such/program"][..], "error No such file or directory (os error 2)"),
        (&["--", "/tmp"], "error Permission denied (os error 13)"),
        (&["--remove", "/tmp/x.sock", "--"], "error no program given"),
        (&[], "error no program given"),
    ] {
        let mut guard = Guard::of(args);
        assert_eq!(guard.report().await.as_deref(), Some(error));
        assert_eq!(guard.process.wait().await.unwrap().code(), Some(1));
    }
}

#[tokio::test]
async fn stop_is_for_the_engine_alone_and_kill_for_its_whole_group() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("grandchild");
    let stubborn = "trap 'echo > $0.told' TERM; while :; do sleep 0.01; done";
    let command = with_grandchild(&file, &stubborn.replace("$0", file.to_str().unwrap()));
    let mut guard = Guard::of_shell(&command);
    let pid = guard.pid().await;
    let grandchild = grandchild(&file).await;

    // The shell has set its trap when it has begun to loop; a line that is no order does nothing.
    guard.order("hello\n\nstop now\n").await;
    until("the trap", BOUND, || {
        std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap().lines().any(|line| {
            // Bit 14 is SIGTERM.
            line.strip_prefix("SigCgt:")
                .is_some_and(|caught| u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 14) != 0)
        })
    })
    .await;
    guard.order("stop\n").await;
    let told = file.with_extension("told");
    until("SIGTERM", BOUND, || told.exists()).await;
    assert!(is_running(pid) && is_running(grandchild));

    guard.order("kill\n").await;
    assert_eq!(guard.report().await.as_deref(), Some("signal 9"));
    until_gone("the grandchild", grandchild).await;
}

#[tokio::test]
async fn the_end_of_orders_is_the_order_to_kill() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("grandchild");
    let mut guard = Guard::of_shell(&with_grandchild(&file, "trap '' TERM; wait"));
    let pid = guard.pid().await;
    let grandchild = grandchild(&file).await;
    // As if we had been killed: both pipes close.
    drop((guard.orders, guard.reports));
    until_gone("the engine", pid).await;
    until_gone("the grandchild", grandchild).await;
    assert!(timeout(BOUND, guard.process.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn an_engine_that_ends_leaves_no_grandchild_behind() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("grandchild");
    let mut guard = Guard::of_shell(&with_grandchild(&file, "exit 3"));
    guard.pid().await;
    assert_eq!(guard.report().await.as_deref(), Some("exit 3"));
    // Killed before the report, reaped by whoever reaps orphans.
    until_gone("the grandchild", grandchild(&file).await).await;
}

#[tokio::test]
async fn a_stopped_engine_is_killed_like_any_other() {
    let mut guard = Guard::of_shell("sleep 1000");
    let pid = guard.pid().await;
    freeze(pid).await;
    guard.order("stop\nkill\n").await;
    assert_eq!(guard.report().await.as_deref(), Some("signal 9"));
}

#[tokio::test]
async fn the_socket_goes_with_the_engine_and_its_directory_only_when_nobody_is_left_to_use_it() {
    for closed in ["neither pipe", "orders", "reports", "both by a parent that stays"] {
        let dir = tempfile::tempdir().unwrap();
        let sockets = dir.path().join("sockets");
        std::fs::create_dir(&sockets).unwrap();
        let socket = sockets.join("1.sock");
        let command = format!(
            "echo > {}; while [ ! -e {}/go ]; do sleep 0.01; done",
            socket.display(),
            dir.path().display()
        );
        let mut guard = Guard::of(&["--remove", socket.to_str().unwrap(), "--", "/bin/sh", "-c", &command]);
        guard.pid().await;
        until("the socket", BOUND, || socket.exists()).await;
        // A parent that ends closes both, in any order, and its engine may end by itself in between.
        match closed {
            "orders" => drop(guard.orders),
            "reports" => {
                drop(guard.reports);
                std::fs::write(dir.path().join("go"), "").unwrap();
                until("the end of the engine", BOUND, || !socket.exists()).await;
                drop(guard.orders);
            }
            "neither pipe" => std::fs::write(dir.path().join("go"), "").unwrap(),
            _ => {
                guard.order("keep\n").await;
                drop((guard.orders, guard.reports));
            }
        }
        assert!(timeout(BOUND, guard.process.wait()).await.unwrap().unwrap().success());
        assert!(!socket.exists());
        assert_eq!(sockets.exists(), !matches!(closed, "orders" | "reports"), "{closed}");
    }
}

#[tokio::test]
async fn it_is_not_hit_by_who_kills_everything_of_our_name() {
    let mut guard = Guard::of_shell("sleep 1000");
    guard.pid().await;
    let name = std::fs::read_to_string(format!("/proc/{}/comm", guard.process.id().unwrap())).unwrap();
    assert_eq!(name, "engine-guard\n");
}

/// A process that owns a pool with one engine.
struct Owner {
    process: Running,
    engine: u32,
    guard: u32,
    sockets: PathBuf,
}

impl Owner {
    /// Started with an engine of `script`; waits until there is one, loading or ready.
    fn start(script: &Scripted) -> Self {
        Self::registering(script, None)
    }

    /// The same, with its engine in the register in `dir`.
    fn registering(script: &Scripted, dir: Option<&Path>) -> Self {
        let mut command = Command::new(bins().join("pool-owner"));
        command.envs(dir.map(|dir| ("POOL_OWNER_REGISTER", dir)));
        command.arg(script.model()).args(script.args()).stdout(Stdio::null());
        let process = Running::start(command);
        let line = process.until_line(|line| line.starts_with("engine "), BOUND);
        let mut words = line.split(' ').skip(1);
        let engine = words.next().unwrap().parse().unwrap();
        let socket = Path::new(words.next().unwrap().strip_prefix("unix:").unwrap());
        let sockets = socket.parent().unwrap().to_owned();
        Self { process, engine, guard: parent_of(engine), sockets }
    }

    async fn kill_and_see_nothing_left(mut self) {
        assert!(self.sockets.exists());
        self.process.signal(Signal::KILL);
        self.process.until_end(BOUND);
        until_gone("the engine", self.engine).await;
        until_gone("the guard", self.guard).await;
        assert!(!self.sockets.exists());
    }
}

#[tokio::test]
async fn when_we_are_killed_nothing_of_us_is_left() {
    let stubborn = Launch { ignores_sigterm: true, leaves_grandchild: true, ..Launch::default() };
    let script = Script::always(stubborn).place();
    let owner = Owner::start(&script);
    owner.process.until_line(|line| line == "leased", BOUND);
    owner.kill_and_see_nothing_left().await;

    let script = Script::always(Launch { load: Load::Never, ..Launch::default() }).place();
    Owner::start(&script).kill_and_see_nothing_left().await;

    let owner = Owner::start(&script);
    freeze(owner.engine).await;
    owner.kill_and_see_nothing_left().await;
}

#[tokio::test]
async fn an_engine_that_we_and_its_guard_have_left_is_killed_at_the_next_start() {
    let stubborn = Launch { ignores_sigterm: true, leaves_grandchild: true, ..Launch::default() };
    let script = Script::always(stubborn).place();
    let dir = tempfile::tempdir().unwrap();
    let register = Register::open(dir.path()).unwrap();
    let mut owner = Owner::registering(&script, Some(dir.path()));
    owner.process.until_line(|line| line == "leased", BOUND);
    // A second gglib with the same data directory does no harm.
    assert_eq!(register.sweep().unwrap(), 0);
    assert!(is_running(owner.engine));

    let _orphan = Orphan::of(owner.engine);
    // In the same instant: neither can do the work of the other.
    freeze(owner.process.id()).await;
    freeze(owner.guard).await;
    signal(owner.guard, Signal::KILL);
    owner.process.signal(Signal::KILL);
    owner.process.until_end(BOUND);
    until_gone("the guard", owner.guard).await;
    let grandchildren = children_of(owner.engine);
    assert!(is_running(owner.engine) && grandchildren.len() == 1, "it is left behind");

    assert_eq!(register.sweep().unwrap(), 1);
    assert!(!is_running(owner.engine));
    until_gone("the grandchild", grandchildren[0]).await;
    assert!(!owner.sockets.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(register.sweep().unwrap(), 0);
}

#[tokio::test]
async fn an_engine_that_has_ended_leaves_no_entry() {
    let script = Script::always(Launch::default()).place();
    let dir = tempfile::tempdir().unwrap();
    let mut engines = gglib_testkit::Engines::fake().scripted("a", &script);
    engines.register = Some(Register::open(dir.path()).unwrap());
    let entries = || std::fs::read_dir(dir.path()).unwrap().count();
    let pool = engines.start();
    drop(pool.lease(ModelName::new("a")).await.unwrap());
    assert_eq!(entries(), 1);
    pool.shut_down(BOUND).await;
    until("the entry to go", BOUND, || entries() == 0).await;
}
