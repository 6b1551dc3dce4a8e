//! One engine's process, held through its guard.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use gglib_core::memory::Death;
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::guard;
use super::log::LogRing;
use super::register::Registered;

/// How long the guard may take to start the engine. It is a program that has yet to be read from the disk.
const START: Duration = Duration::from_secs(30);
/// After a kill, how long to wait for the guard's word before its own end is forced.
const GUARD_GRACE: Duration = Duration::from_secs(5);
/// After the engine's end, how long to wait for the rest of its log. A grandchild may hold the pipe open.
const LOG_GRACE: Duration = Duration::from_millis(200);
/// Between two looks at what is left of a process group.
const POLL: Duration = Duration::from_millis(10);

/// How to start the guard: a program and the arguments before its own, such as `gglib __guard`.
#[derive(Clone, Debug)]
pub struct GuardCommand {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub args: Vec<OsString>,
}

/// How an engine's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Unknown: its guard was killed, and the engine's process group with it.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with exit status {code}"),
            Self::Signal(9) => f.write_str("was killed by signal 9, likely out of memory"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::Unknown => f.write_str("ended together with its guard process"),
        }
    }
}

impl From<Exit> for Death {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
            Exit::Unknown => Self::Unknown,
        }
    }
}

/// An engine's process. Dropping it kills the engine: the guard's standard input closes.
#[derive(Debug)]
pub(super) struct Process {
    guard: Child,
    orders: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
    log: LogRing,
    logging: JoinHandle<()>,
    socket: Option<PathBuf>,
    /// Known once the guard has told it.
    pid: Option<Pid>,
    exit: Option<Exit>,
    /// Its entry among the engines that run, for a gglib that comes after us.
    registered: Option<Registered>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // By a task that has panicked, we stay, and the next engine may be about to bind its socket; else we end.
        if self.exit.is_none() && thread::panicking() {
            // Where it cannot be said, the guard may remove an empty directory, as if we had ended.
            let _ = rustix::io::write(&self.orders, format!("{}\n", guard::KEEP).as_bytes());
        }
        self.wake_guard();
    }
}

/// What a guard says.
enum Report {
    Started(Pid),
    NotStarted(String),
    Ended(Exit),
}

/// What in our own environment is meant for another engine, and would lock us out of ours: the options of these names are
/// refused in a model's arguments, too.
const FOREIGN: [&str; 4] =
    ["LLAMA_API_KEY", "LLAMA_ARG_API_PREFIX", "LLAMA_ARG_SSL_KEY_FILE", "LLAMA_ARG_SSL_CERT_FILE"];

impl Process {
    /// Starts a guard that starts `program`; `socket` is removed when the engine has ended. Needs a runtime.
    pub(super) fn spawn(
        guard: &GuardCommand,
        program: &Path,
        args: Vec<OsString>,
        envs: &[(&str, &str)],
        socket: Option<PathBuf>,
    ) -> io::Result<Self> {
        let mut command = Command::new(&guard.program);
        command.args(&guard.args);
        if let Some(socket) = &socket {
            command.arg("--remove").arg(socket);
        }
        command.arg("--").arg(program).args(args);
        for name in FOREIGN {
            command.env_remove(name);
        }
        command.envs(envs.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C in a terminal goes to the foreground group; the guard must outlive us, not die with us.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot start the guard {}: {error}", guard.program.display()),
            )
        })?;
        let missing = || io::Error::other("the guard has no pipes");
        let orders = child.stdin.take().ok_or_else(missing)?;
        let reports = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        let log = LogRing::new();
        let logging = tokio::spawn(log.clone().fill_from(child.stderr.take().ok_or_else(missing)?));
        Ok(Self {
            guard: child,
            orders,
            reports,
            log,
            logging,
            socket,
            pid: None,
            exit: None,
            registered: None,
        })
    }

    /// Resolves with the engine's pid when its program has been started. Cancel-safe.
    ///
    /// # Errors
    /// What the guard said instead; then there is no engine.
    pub(super) async fn started(&mut self) -> io::Result<u32> {
        let reason = match timeout(START, self.report()).await {
            Ok(Report::Started(pid)) => {
                self.pid = Some(pid);
                return Ok(pid.as_raw_nonzero().get().unsigned_abs());
            }
            Ok(Report::NotStarted(reason)) => reason,
            Ok(Report::Ended(exit)) => {
                self.exit = Some(exit);
                self.ended().await;
                std::iter::once("its guard process ended without a word".to_owned())
                    .chain(self.log.tail(usize::MAX))
                    .collect::<Vec<_>>()
                    .join("\n")
            }
            Err(_) => format!("its guard process said nothing for {} s", START.as_secs()),
        };
        Err(io::Error::other(reason))
    }

    /// The engine's process id, known once it has been started.
    pub(super) fn id(&self) -> Option<u32> {
        self.pid.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Keeps the engine's entry as long as there is the engine.
    pub(super) fn keep(&mut self, registered: Option<Registered>) {
        self.registered = registered;
    }

    /// Removes that entry: the engine has ended.
    pub(super) async fn strike_off(&mut self) {
        if let Some(registered) = self.registered.take() {
            registered.remove().await;
        }
    }

    pub(super) fn log(&self) -> &LogRing {
        &self.log
    }

    /// Resolves when the engine has ended and nothing of its process group is left. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Exit {
        let exit = loop {
            match (self.exit, self.pid) {
                (Some(exit), _) => break exit,
                (None, _) => match self.report().await {
                    Report::Started(pid) => self.pid = Some(pid),
                    Report::NotStarted(_) => self.exit = Some(Exit::Unknown),
                    Report::Ended(exit) => self.exit = Some(exit),
                },
            }
        };
        if exit == Exit::Unknown {
            self.do_the_guards_work().await;
        }
        // Both end by themselves now; the bounds are for a guard or a pipe held up by something strange.
        if !self.logging.is_finished() && timeout(LOG_GRACE, &mut self.logging).await.is_err() {
            self.logging.abort();
        }
        if timeout(GUARD_GRACE, self.guard.wait()).await.is_err() {
            let _ = self.guard.start_kill();
        }
        exit
    }

    /// Asks the engine to end; kills it when it has not after `grace`. Cancel-safe.
    pub(super) async fn stop(&mut self, grace: Duration) -> Exit {
        self.order("stop\n").await;
        match timeout(grace, self.ended()).await {
            Ok(exit) => exit,
            Err(_) => self.kill().await,
        }
    }

    /// Kills the engine and everything in its process group.
    pub(super) async fn kill(&mut self) -> Exit {
        self.order("kill\n").await;
        if let Ok(exit) = timeout(GUARD_GRACE, self.ended()).await {
            return exit;
        }
        // The guard is stuck, or the engine cannot be killed.
        let _ = self.guard.start_kill();
        self.exit.get_or_insert(Exit::Unknown);
        self.ended().await
    }

    async fn order(&mut self, order: &str) {
        // A guard that no longer listens has ended, which `ended` reports.
        let _ = self.orders.write_all(order.as_bytes()).await;
        self.wake_guard();
    }

    /// A guard that was stopped, by somebody's SIGSTOP, goes on.
    fn wake_guard(&self) {
        if let Some(guard) = self.guard.id().and_then(as_pid) {
            let _ = kill_process(guard, Signal::CONT);
        }
    }

    /// The guard's next word. Cancel-safe.
    async fn report(&mut self) -> Report {
        let line = self.reports.next_line().await.ok().flatten().unwrap_or_default();
        let (kind, value) = line.split_once(' ').unwrap_or_default();
        match (kind, value.parse()) {
            ("pid", Ok(pid)) => Pid::from_raw(pid).map_or(Report::Ended(Exit::Unknown), Report::Started),
            ("exit", Ok(code)) => Report::Ended(Exit::Code(code)),
            ("signal", Ok(signal)) => Report::Ended(Exit::Signal(signal)),
            ("error", _) => Report::NotStarted(value.to_owned()),
            _ => Report::Ended(Exit::Unknown),
        }
    }

    /// Kills the group and waits until nothing is left of it, for a guard that can do so no more. The engine
    /// was started as the leader of its own group.
    async fn do_the_guards_work(&self) {
        if let Some(leader) = self.pid {
            guard::signal_group(leader, Signal::KILL);
            let gone = async {
                while test_kill_process_group(leader).is_ok() {
                    sleep(POLL).await;
                }
            };
            // Where nobody reaps orphans a dead group looks alive for ever.
            let _ = timeout(GUARD_GRACE, gone).await;
        }
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn as_pid(raw: u32) -> Option<Pid> {
    i32::try_from(raw).ok().and_then(Pid::from_raw)
}
