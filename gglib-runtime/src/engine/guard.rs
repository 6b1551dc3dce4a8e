//! The guard: a small process between us and the engine, so that the engine ends when we do.
//!
//! A killed process cannot clean up. So an engine is started through a second process, a mode of the same
//! binary, that holds the engine's process group and watches its own standard input: when that closes, for
//! whatever reason, the group is killed. The guard also reports how the engine ended.
//!
//! It speaks lines. In, on standard input: `stop` (SIGTERM to the engine), `kill` (SIGKILL to its group) and `keep` (the
//! parent stays when its orders end); the end of the input means `kill`. Out, on standard output: `pid N`, then `exit N` or `signal N`, or
//! `error TEXT` when the program could not be started. The engine's own output goes to standard error.
//!
//! The guard itself can be killed too. Whoever reads its reports then sees their end, and kills the group in
//! its stead; only a guard that is killed in the same instant as its parent leaves an engine behind, which is found in the
//! [register](super::Register) at the next start.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

/// The hidden subcommand under which `gglib` runs [`main`].
pub const SUBCOMMAND: &str = "__guard";

/// The guard's name in the system's list of processes: `killall gglib` must not hit it together with its parent.
const PROCESS_NAME: &str = "engine-guard";

/// The order of a parent that gives its engine up and stays: the sockets' directory is still in use.
pub(super) const KEEP: &str = "keep";

/// Runs the guard: `[--remove PATH] -- PROGRAM ARG…`.
///
/// Returns when the engine has ended and nothing of its process group is left. PATH, a socket, is removed
/// then; so is its directory if the parent is not there any more to do it.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(args.into_iter()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A parent that is gone needs no report.
            let _ = report(&format!("error {error}"));
            ExitCode::FAILURE
        }
    }
}

/// What the two threads share.
#[derive(Debug)]
struct Target {
    /// The engine's pid, as long as it has not been reaped and may be signalled.
    pid: Mutex<Option<Pid>>,
    /// Whether the orders have ended without a word of a parent that stays.
    orphaned: AtomicBool,
}

fn run(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    // Where a process cannot be renamed like this it keeps its name.
    let _ = std::fs::write("/proc/self/comm", PROCESS_NAME);
    let mut remove = None;
    let program = loop {
        let arg = args.next().ok_or_else(|| io::Error::other("no program given"))?;
        if arg == "--remove" {
            remove = args.next().map(PathBuf::from);
        } else if arg == "--" {
            break args.next().ok_or_else(|| io::Error::other("no program given"))?;
        }
    };
    // The engine's standard output joins its standard error: our own standard output is for reports.
    let output = Stdio::from(io::stderr().as_fd().try_clone_to_owned()?);
    let mut engine =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(output).process_group(0).spawn()?;
    let pid = Pid::from_child(&engine);
    let target = Arc::new(Target { pid: Mutex::new(Some(pid)), orphaned: AtomicBool::new(false) });
    let obeying = Arc::clone(&target);
    let obeying = thread::Builder::new().spawn(move || obey(&obeying)).inspect_err(|_| {
        // Nobody would take the order to kill it.
        signal_group(pid, Signal::KILL);
        let _ = engine.wait();
    })?;
    // If the parent is gone already, the orders have ended as well.
    let _ = report(&format!("pid {}", pid.as_raw_nonzero()));

    // The engine stays a zombie until its group is killed: as long as it is one, its number cannot be
    // given to somebody else's process.
    let waited = wait_without_reaping(pid);
    *target.pid.lock().unwrap_or_else(PoisonError::into_inner) = None;
    signal_group(pid, Signal::KILL);
    let status = waited.and_then(|()| engine.wait());
    if let Some(path) = &remove {
        // Whether it is there or not, it must not be in the way of anything.
        let _ = std::fs::remove_file(path);
    }
    if report(&describe(status?)).is_err() {
        // Either pipe may be the first to show that both are closed, and the last order says why.
        let _ = obeying.join();
    }
    if target.orphaned.load(Ordering::Acquire) {
        // Nobody is left to do it. The last engine's guard finds it empty.
        let _ = remove.as_deref().and_then(Path::parent).map(std::fs::remove_dir);
    }
    Ok(())
}

/// Reads orders until there are no more, which is the order to kill.
fn obey(target: &Target) {
    let mut parent_stays = false;
    for line in io::stdin().lock().lines() {
        match line.as_deref() {
            Ok("stop") => with_target(target, |pid| {
                // Gone already is as good as stopped.
                let _ = kill_process(pid, Signal::TERM);
            }),
            Ok("kill") => with_target(target, |pid| signal_group(pid, Signal::KILL)),
            Ok(KEEP) => parent_stays = true,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    target.orphaned.store(!parent_stays, Ordering::Release);
    with_target(target, |pid| signal_group(pid, Signal::KILL));
}

fn with_target(target: &Target, act: impl FnOnce(Pid)) {
    // Held while signalling, so that the main thread cannot reap in between.
    let pid = target.pid.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pid) = *pid {
        act(pid);
    }
}

pub(super) fn signal_group(leader: Pid, signal: Signal) {
    // No such group means that nothing of it is left.
    let _ = kill_process_group(leader, signal);
}

fn wait_without_reaping(pid: Pid) -> io::Result<()> {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    }
}

/// Tells the parent; an error means that it is gone.
fn report(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush())
}
