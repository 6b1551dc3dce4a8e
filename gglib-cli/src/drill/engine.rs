//! An engine's process, found by what `/status` says, and what a drill does to it.

use std::io;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::trouble::Trouble;

/// One engine's process. Before anything is done to it, its command line must name the engine's own address: a number
/// alone may have come to mean another process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EngineProcess {
    pid: i32,
    address: String,
}

impl EngineProcess {
    /// The process of an element of `engines` in `/status`, once there is one.
    pub(crate) fn of(engine: &Value) -> Option<Self> {
        let pid = engine["pid"].as_u64()?;
        let address = engine["address"].as_str()?.to_owned();
        Some(Self { pid: i32::try_from(pid).ok()?, address })
    }

    /// Kills it, and only it.
    pub(crate) fn kill(&self) -> Result<(), Trouble> {
        self.signal(Signal::KILL)
    }

    /// Lets it hang until what is returned is dropped, if it lives so long.
    pub(crate) fn stop(&self) -> Result<Hanging, Trouble> {
        self.signal(Signal::STOP)?;
        Ok(Hanging(self.clone()))
    }

    /// Whether the process exists and is still this engine.
    pub(crate) fn is_running(&self) -> bool {
        self.is_itself()
    }

    fn signal(&self, signal: Signal) -> Result<(), Trouble> {
        let failed = |source| Trouble::Signal { pid: self.pid, source };
        let process = process::Handle::open(self.pid).map_err(failed)?;
        // Looked at between opening and signalling: the handle never comes to mean another process.
        if !self.is_itself() {
            return Err(Trouble::Stranger { pid: self.pid, address: self.address.clone() });
        }
        process.signal(signal).map_err(failed)
    }

    fn is_itself(&self) -> bool {
        process::command_line(self.pid).is_some_and(|line| listens_at(&line, &self.address))
    }
}

/// An engine that hangs.
pub(crate) struct Hanging(EngineProcess);

impl Drop for Hanging {
    fn drop(&mut self) {
        // By now it has been killed, as a rule; one of somebody's running endpoint must not stay as it is.
        let _ = self.0.signal(Signal::CONT);
    }
}

/// Whether the command line of an engine says that it listens at `address`, which is as `/status` shows it.
fn listens_at(arguments: &[String], address: &str) -> bool {
    let follows =
        |flag: &str, value: &str| arguments.windows(2).any(|pair| pair[0] == flag && pair[1] == value);
    match (address.strip_prefix("unix:"), address.strip_prefix("http://")) {
        (Some(path), _) => follows("--host", path),
        (None, Some(at)) => {
            at.rsplit_once(':').is_some_and(|(host, port)| follows("--host", host) && follows("--port", port))
        }
        (None, None) => false,
    }
}

#[cfg(target_os = "linux")]
mod process {
    use std::os::fd::OwnedFd;

    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

    use super::{Pid, Signal, io};

    pub(super) struct Handle(OwnedFd);

    impl Handle {
        pub(super) fn open(pid: i32) -> io::Result<Self> {
            let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
            Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
        }

        pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
            Ok(pidfd_send_signal(&self.0, signal)?)
        }
    }

    /// The arguments of a process, its program first; nothing of one that has ended.
    pub(super) fn command_line(pid: i32) -> Option<Vec<String>> {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments = line.split(|byte| *byte == 0);
        Some(arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect())
    }
}

#[cfg(not(target_os = "linux"))]
mod process {
    use super::{Signal, io};

    pub(super) struct Handle;

    impl Handle {
        pub(super) fn open(_pid: i32) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "drills that signal engines need Linux"))
        }

        pub(super) fn signal(&self, _signal: Signal) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    pub(super) fn command_line(_pid: i32) -> Option<Vec<String>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use serde_json::json;

    use super::*;

    fn line(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_engine_is_known_by_its_own_address() {
        let unix = line("llama-server --model m.gguf --host /run/gglib-a/7.sock --parallel 1");
        assert!(listens_at(&unix, "unix:/run/gglib-a/7.sock"));
        assert!(!listens_at(&unix, "unix:/run/gglib-a/8.sock"));
        let tcp = line("llama-server --host 127.0.0.1 --port 4711");
        assert!(listens_at(&tcp, "http://127.0.0.1:4711"));
        assert!(!listens_at(&tcp, "http://127.0.0.1:471"));
        assert!(!listens_at(&tcp, "127.0.0.1:4711"));
        assert!(!listens_at(&[], "unix:/run/gglib-a/7.sock"));
    }

    #[test]
    fn a_process_that_is_another_by_now_is_left_alone() {
        let mut other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let engine = json!({ "pid": other.id(), "address": "unix:/run/gglib-a/7.sock" });
        let engine = EngineProcess::of(&engine).unwrap();
        let refused = engine.kill();
        assert!(matches!(refused, Err(Trouble::Stranger { .. })), "{refused:?}");
        assert!(other.try_wait().unwrap().is_none(), "it still runs");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!engine.is_running() && matches!(engine.kill(), Err(Trouble::Signal { .. })));
    }

    #[test]
    fn an_engine_without_a_process_is_none_yet() {
        assert_eq!(EngineProcess::of(&json!({ "pid": null, "address": null })), None);
    }
}
