//! The register of engines that run: what an earlier gglib has left behind is found in it, and killed.
//!
//! An engine ends with us by its guard. Only when both are killed in the same instant it is left, with its memory and
//! its socket. So there is a file for each engine that runs, and at the start those are looked through. A process is
//! killed only if it is the one that was registered: its number, when it was started, and where it listens, which no two
//! engines share. A register of a gglib that still runs is let alone.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::address::Address;
use super::guard;

/// How long a killed engine may take to be gone. Its memory is not ours before.
const GONE: Duration = Duration::from_secs(5);
/// Between two looks at it.
const POLL: Duration = Duration::from_millis(10);

/// A directory with a file for each engine that runs.
#[derive(Clone, Debug)]
pub struct Register {
    dir: PathBuf,
}

/// One engine's file, removed when this is dropped: the engine has ended, or its guard is ending it.
#[derive(Debug)]
pub(super) struct Registered(PathBuf);

/// One engine, and whose it is.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    engine: Process,
    /// What is on its command line and on no other's.
    listens: String,
    /// Removed when the engine is gone, and its directory if nothing else is in it.
    socket: Option<PathBuf>,
    owner: Process,
}

/// A process, also after its number has been given to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    pid: u32,
    /// In clock ticks since the machine was started (proc(5), `stat`, field 22).
    started: u64,
    /// Which start of the machine (`/proc/sys/kernel/random/boot_id`).
    boot: String,
}

impl Register {
    /// The register in `dir`, which is made if need be. Blocks.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Kills the engines that are still there although the gglib that launched them is not, and says how many these
    /// were. Blocks until they are gone, 5 s for each at most.
    ///
    /// # Errors
    /// When the register cannot be read.
    pub fn sweep(&self) -> io::Result<usize> {
        let mut killed = 0;
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            // A file that is no record is half of one: it was being written when its gglib was killed.
            let record = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
            if let Some(record) = record {
                if record.owner.is_running() {
                    continue;
                }
                killed += usize::from(record.kill());
            }
            fs::remove_file(&path)?;
        }
        Ok(killed)
    }

    /// Enters an engine of ours. Where processes cannot be told apart, because there is no `/proc`, nothing is entered.
    pub(super) fn enter(&self, pid: u32, address: &Address) -> io::Result<Option<Registered>> {
        let (Some(engine), Some(owner)) = (Process::of(pid), Process::of(std::process::id())) else {
            return Ok(None);
        };
        let (listens, socket) = match address {
            Address::Unix(path) => (path.to_string_lossy().into_owned(), Some(path.clone())),
            Address::Tcp { address, .. } => (address.port().to_string(), None),
        };
        let path = self.dir.join(format!("{pid}-{}.json", engine.started));
        let record = Record { engine, listens, socket, owner };
        let mut file = NamedTempFile::new_in(&self.dir)?;
        file.write_all(&serde_json::to_vec(&record)?)?;
        file.persist(&path)?;
        Ok(Some(Registered(path)))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // What cannot be removed is found to be nobody's at the next start.
        let _ = fs::remove_file(&self.0);
    }
}

impl Record {
    /// Kills the engine and its process group, if it is still there.
    #[expect(
        clippy::disallowed_methods,
        reason = "on a thread that may block, before there is anything else to do"
    )]
    fn kill(&self) -> bool {
        let is_there = self.engine.is_running() && self.engine.has_argument(&self.listens);
        if is_there && let Some(leader) = i32::try_from(self.engine.pid).ok().and_then(Pid::from_raw) {
            tracing::warn!(
                pid = self.engine.pid,
                listens = self.listens,
                "killing an engine that an earlier gglib has left"
            );
            guard::signal_group(leader, Signal::KILL);
            for _ in 0..GONE.as_millis() / POLL.as_millis() {
                if !self.engine.is_running() {
                    break;
                }
                thread::sleep(POLL);
            }
        }
        if let Some(socket) = &self.socket {
            // Both are gone already if the guard was not killed.
            let _ = fs::remove_file(socket);
            let _ = socket.parent().map(fs::remove_dir);
        }
        is_there
    }
}

impl Process {
    /// The process that has the number now, unless it has ended.
    fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self { pid, started: started(&stat)?, boot: boot.trim().to_owned() })
    }

    fn is_running(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    fn has_argument(&self, argument: &str) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
    }
}

/// Field 22 of a process that has not ended; the second field, a name in parentheses, may hold anything.
fn started(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process with this argument on its command line.
    struct Sleeper(Child);

    impl Sleeper {
        fn start(argument: &str) -> Self {
            use std::os::unix::process::CommandExt;
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "sleep 1000 & wait", "sh", argument]).process_group(0);
            Self(command.spawn().unwrap())
        }

        fn record(&self, listens: &str) -> Record {
            let engine = Process::of(self.0.id()).unwrap();
            // Nobody runs under the number of a process that has been reaped, as long as ours is the latest.
            let owner = Process { started: 1, ..engine.clone() };
            Record { engine, listens: listens.to_owned(), socket: None, owner }
        }

        fn is_running(&mut self) -> bool {
            self.0.try_wait().unwrap().is_none()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            guard::signal_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }

    /// How many engines a sweep finds in a register with this record alone, and whether the record stays.
    fn swept(record: &Record) -> (usize, bool) {
        let dir = tempfile::tempdir().unwrap();
        let register = Register::open(dir.path()).unwrap();
        let file = dir.path().join("1.json");
        fs::write(&file, serde_json::to_vec(record).unwrap()).unwrap();
        (register.sweep().unwrap(), file.exists())
    }

    #[test]
    fn only_the_very_process_that_was_registered_is_killed() {
        let mut sleeper = Sleeper::start("/run/1.sock");
        let right = sleeper.record("/run/1.sock");
        let other = |change: &dyn Fn(&mut Record)| {
            let mut record = sleeper.record("/run/1.sock");
            change(&mut record);
            record
        };
        for record in [
            other(&|record| record.engine.started += 1),
            other(&|record| record.engine.boot.push('x')),
            other(&|record| record.listens = "/run/2.sock".to_owned()),
            other(&|record| record.listens = "/run/1".to_owned()),
        ] {
            assert_eq!(swept(&record), (0, false), "{record:?}");
        }
        assert!(sleeper.is_running());
        assert_eq!(swept(&right), (1, false));
        assert!(!sleeper.is_running());
        assert_eq!(swept(&right), (0, false), "it is gone");
    }

    #[test]
    fn what_belongs_to_a_gglib_that_runs_is_let_alone() {
        let mut sleeper = Sleeper::start("/run/1.sock");
        let record = sleeper.record("/run/1.sock");
        let record = Record { owner: Process::of(std::process::id()).unwrap(), ..record };
        assert_eq!(swept(&record), (0, true));
        assert!(sleeper.is_running());
    }

    #[test]
    fn half_a_record_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let register = Register::open(&dir.path().join("engines")).unwrap();
        fs::write(dir.path().join("engines/1.json"), r#"{"engine":{"pid":1,"#).unwrap();
        assert_eq!(register.sweep().unwrap(), 0);
        assert_eq!(fs::read_dir(dir.path().join("engines")).unwrap().count(), 0);
    }

    #[test]
    fn an_entry_lasts_as_long_as_its_engine() {
        let dir = tempfile::tempdir().unwrap();
        let register = Register::open(dir.path()).unwrap();
        let sleeper = Sleeper::start("4711");
        let address = Address::Tcp { address: "127.0.0.1:4711".parse().unwrap(), key: "k".to_owned() };
        let entry = register.enter(sleeper.0.id(), &address).unwrap().unwrap();
        let text = fs::read_to_string(&entry.0).unwrap();
        assert!(!text.contains("\"k\""), "{text}");
        assert_eq!(
            serde_json::from_str::<Record>(&text).unwrap().engine,
            Process::of(sleeper.0.id()).unwrap()
        );
        drop(entry);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_start_is_found_behind_any_name() {
        let rest = (4..=22).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(started(&format!("12 (a) b (c) S {rest} 23")), Some(22));
        assert_eq!(started(&format!("12 (a) Z {rest} 23")), None);
        assert_eq!(started("12"), None);
    }
}
