//! One engine's process, held through its guard.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::guard;
use super::log::LogRing;

/// After a kill, how long to wait for the guard's word before its own end is forced.
const GUARD_GRACE: Duration = Duration::from_secs(5);
/// After the engine's end, how long to wait for the rest of its log. A grandchild may hold the pipe open.
const LOG_GRACE: Duration = Duration::from_millis(200);

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

/// A running engine process. Dropping it kills the engine: the guard's standard input closes.
#[derive(Debug)]
pub(super) struct Process {
    guard: Child,
    orders: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
    log: LogRing,
    logging: JoinHandle<()>,
    pid: u32,
    exit: Option<Exit>,
}

impl Process {
    /// Starts `program` under a guard; `socket` is removed when the engine has ended.
    pub(super) async fn spawn(
        guard: &GuardCommand,
        program: &std::path::Path,
        args: Vec<OsString>,
        envs: &[(&str, &str)],
        socket: Option<PathBuf>,
    ) -> io::Result<Self> {
        let mut command = Command::new(&guard.program);
        command.args(&guard.args);
        if let Some(socket) = socket {
            command.arg("--remove").arg(socket);
        }
        command.arg("--").arg(program).args(args);
        // A key in our own environment is meant for somebody else, and would lock us out.
        command.env_remove("LLAMA_API_KEY").envs(envs.iter().copied());
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
        let mut process = Self { guard: child, orders, reports, log, logging, pid: 0, exit: None };
        process.pid = process.first_report(program).await?;
        Ok(process)
    }

    async fn first_report(&mut self, program: &std::path::Path) -> io::Result<u32> {
        let line = self.reports.next_line().await?.unwrap_or_default();
        if let Some(pid) = line.strip_prefix("pid ").and_then(|pid| pid.parse().ok()) {
            return Ok(pid);
        }
        let _ = self.guard.wait().await;
        let reason = line.strip_prefix("error ").unwrap_or("the guard ended without a word");
        Err(io::Error::other(format!("cannot start {}: {reason}", program.display())))
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn log(&self) -> &LogRing {
        &self.log
    }

    /// Resolves when the engine has ended and nothing of its process group is left. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = match self.reports.next_line().await {
            Ok(Some(line)) => parse_exit(&line),
            Ok(None) | Err(_) => Exit::Unknown,
        };
        if exit == Exit::Unknown {
            self.kill_group();
        }
        self.exit = Some(exit);
        // Both end by themselves now; the bounds are for a guard or a pipe held up by something strange.
        let _ = timeout(LOG_GRACE, &mut self.logging).await;
        if timeout(GUARD_GRACE, self.guard.wait()).await.is_err() {
            let _ = self.guard.kill().await;
        }
        exit
    }

    /// Asks the engine to end; kills it when it has not after `grace`.
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
        // The guard itself is stopped or stuck.
        self.kill_group();
        let _ = self.guard.kill().await;
        self.exit = Some(Exit::Unknown);
        Exit::Unknown
    }

    async fn order(&mut self, order: &str) {
        // A guard that no longer listens has ended, which `ended` reports.
        let _ = self.orders.write_all(order.as_bytes()).await;
    }

    /// The last resort when the guard is gone: the engine was started as the leader of its own group.
    fn kill_group(&self) {
        if let Some(leader) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            guard::signal_group(leader, Signal::KILL);
        }
    }
}

fn parse_exit(line: &str) -> Exit {
    let number = |prefix: &str| line.strip_prefix(prefix).and_then(|number| number.parse().ok());
    number("exit ").map(Exit::Code).or_else(|| number("signal ").map(Exit::Signal)).unwrap_or(Exit::Unknown)
}
