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
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::address::Address;
use super::guard;

/// How long a killed engine may take to be gone. Its memory is not ours before.
const GONE: Duration = Duration::from_secs(5);
/// Between two looks at it.
const POLL: Duration = Duration::from_millis(10);
/// Longest wait for the disk, when an engine is entered and when its entry is removed. An engine without an entry runs
/// all the same.
const DISK: Duration = Duration::from_secs(2);

/// How the name of an entry ends, after the engine's number and start.
const ENTRY: &str = ".json";
/// How that of an entry ends that is being written, after the writer's number and start and something random.
const DRAFT: &str = ".draft";

/// A directory with a file for each engine that runs. Several gglibs may share it.
#[derive(Clone, Debug)]
pub struct Register {
    dir: PathBuf,
}

/// One engine's file, until it is removed. Dropped, it goes too: the engine has ended, or its guard is ending it.
#[derive(Debug)]
pub(super) struct Registered(Option<PathBuf>);

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
    /// were. Blocks until they are gone, 5 s for each at most. An entry that cannot be read or removed is warned of, and
    /// what is no entry is let alone.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn sweep(&self) -> io::Result<usize> {
        let mut killed = 0;
        for found in fs::read_dir(&self.dir)? {
            let path = found?.path();
            match sweep_one(&path) {
                Ok(is_killed) => killed += usize::from(is_killed),
                // Another gglib was quicker, or the engine has ended meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "an entry of an engine is passed over");
                }
            }
        }
        Ok(killed)
    }

    /// Enters an engine of ours. Where processes cannot be told apart, because there is no `/proc`, nothing is entered.
    pub(super) async fn enter(&self, pid: u32, address: &Address) -> io::Result<Option<Registered>> {
        let (register, address) = (self.clone(), address.clone());
        let entered = timeout(DISK, spawn_blocking(move || register.write(pid, &address))).await;
        // One that comes later is dropped, and so removed.
        entered.map_err(|slow| io::Error::new(io::ErrorKind::TimedOut, slow))?.map_err(io::Error::other)?
    }

    /// Blocks.
    fn write(&self, pid: u32, address: &Address) -> io::Result<Option<Registered>> {
        let (Some(engine), Some(owner)) = (Process::of(pid), Process::of(std::process::id())) else {
            return Ok(None);
        };
        let (listens, socket) = match address {
            Address::Unix(path) => (path.to_string_lossy().into_owned(), Some(path.clone())),
            Address::Tcp { address, .. } => (address.port().to_string(), None),
        };
        let path = self.dir.join(format!("{pid}-{}{ENTRY}", engine.started));
        let prefix = format!("{}-{}-", owner.pid, owner.started);
        let record = Record { engine, listens, socket, owner };
        let mut draft = tempfile::Builder::new().prefix(&prefix).suffix(DRAFT).tempfile_in(&self.dir)?;
        draft.write_all(&serde_json::to_vec(&record)?)?;
        draft.persist(&path)?;
        Ok(Some(Registered(Some(path))))
    }
}

/// Deals with one file of the register; whether an engine was killed for it.
fn sweep_one(path: &Path) -> io::Result<bool> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if let Some((pid, started)) = name.strip_suffix(DRAFT).and_then(named_process) {
        if Process::of(pid).is_none_or(|writer| writer.started != started) {
            fs::remove_file(path)?;
        }
        return Ok(false);
    }
    if name.strip_suffix(ENTRY).and_then(named_process).is_none() {
        return Ok(false);
    }
    // An entry that says nothing was not yet on the disk when the machine lost its power.
    let record = serde_json::from_slice::<Record>(&fs::read(path)?).ok();
    if record.as_ref().is_some_and(|record| record.owner.is_running()) {
        return Ok(false);
    }
    let killed = record.is_some_and(|record| record.kill());
    fs::remove_file(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    Ok(killed)
}

/// The number and the start with which a name begins.
fn named_process(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Registered {
    /// Removes the entry, and waits for the disk within a bound. What cannot be removed is found to be nobody's at the
    /// next start.
    pub(super) async fn remove(mut self) {
        if let Some(path) = self.0.take() {
            let _ = timeout(DISK, tokio::fs::remove_file(path)).await;
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(path) = self.0.take() else { return };
        let remove = move || drop(fs::remove_file(path));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
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

    use gglib_testkit::until;

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
        let file = dir.path().join("1-1.json");
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
    fn only_what_is_ours_and_nobodys_any_more_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let register = Register::open(&dir.path().join("running")).unwrap();
        let path = |name: &str| dir.path().join("running").join(name);
        let sleeper = Sleeper::start("/run/1.sock");
        // An installed engine, as other programs' files, may lie beside the entries.
        fs::create_dir(path("llama-server-1.0")).unwrap();
        fs::write(path("llama-server-1.0/llama-server"), "engine").unwrap();
        let half = r#"{"engine":{"pid":1,"#;
        let (ours, started) = (std::process::id(), Process::of(std::process::id()).unwrap().started);
        let (written, left) =
            (format!("{ours}-{started}-x.draft"), format!("{ours}-{}-x.draft", started + 1));
        for name in ["notes.json", "1-2.txt", "1-x.json", "a-b-c.draft", &written, &left, "1-1.json"] {
            fs::write(path(name), half).unwrap();
        }
        // One that cannot be read does not keep the others from being swept.
        fs::create_dir(path("2-2.json")).unwrap();
        let record = serde_json::to_vec(&sleeper.record("/run/1.sock")).unwrap();
        for number in 3..9 {
            fs::write(path(&format!("{number}-3.json")), &record).unwrap();
        }

        assert_eq!(register.sweep().unwrap(), 1);
        let mut names: Vec<_> = fs::read_dir(path(""))
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mut kept =
            ["1-2.txt", "1-x.json", "2-2.json", "a-b-c.draft", "llama-server-1.0", "notes.json", &written];
        kept.sort_unstable();
        assert_eq!(names, kept);
        assert_eq!(fs::read_to_string(path("llama-server-1.0/llama-server")).unwrap(), "engine");
    }

    #[test]
    fn several_at_once_may_sweep_and_enter() {
        let dir = tempfile::tempdir().unwrap();
        let register = Register::open(dir.path()).unwrap();
        let gone = Process { pid: std::process::id(), started: 1, boot: String::new() };
        let record = Record { engine: gone.clone(), listens: "1".to_owned(), socket: None, owner: gone };
        let record = serde_json::to_vec(&record).unwrap();
        let address = Address::Tcp { address: "127.0.0.1:1".parse().unwrap(), key: String::new() };
        for _ in 0..20 {
            for number in 0..50 {
                fs::write(dir.path().join(format!("{number}-1.json")), &record).unwrap();
            }
            let entry = thread::scope(|scope| {
                let sweeps: [_; 3] = std::array::from_fn(|_| scope.spawn(|| register.sweep()));
                let entry = register.write(std::process::id(), &address).unwrap().unwrap();
                for sweep in sweeps {
                    assert_eq!(sweep.join().unwrap().unwrap(), 0);
                }
                entry
            });
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
            drop(entry);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn an_entry_lasts_as_long_as_its_engine() {
        let dir = tempfile::tempdir().unwrap();
        let register = Register::open(dir.path()).unwrap();
        let entries = || fs::read_dir(dir.path()).unwrap().count();
        let sleeper = Sleeper::start("4711");
        let address = Address::Tcp { address: "127.0.0.1:4711".parse().unwrap(), key: "k".to_owned() };
        let entry = register.enter(sleeper.0.id(), &address).await.unwrap().unwrap();
        let text = fs::read_to_string(entry.0.as_ref().unwrap()).unwrap();
        assert!(!text.contains("\"k\""), "{text}");
        assert_eq!(
            serde_json::from_str::<Record>(&text).unwrap().engine,
            Process::of(sleeper.0.id()).unwrap()
        );
        entry.remove().await;
        assert_eq!(entries(), 0);
        let entry = register.enter(sleeper.0.id(), &address).await.unwrap();
        assert_eq!(entries(), 1);
        drop(entry);
        until("the entry to go", DISK, || entries() == 0).await;
    }

    /// A disk that hangs: a thread that may block is all that waits for it.
    #[test]
    fn neither_an_entry_nor_its_removal_holds_up_a_worker_for_long() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let register = Register::open(dir.path()).unwrap();
            let address = Address::Tcp { address: "127.0.0.1:1".parse().unwrap(), key: String::new() };
            let entry = register.enter(std::process::id(), &address).await.unwrap().unwrap();
            let (go_on, hangs) = std::sync::mpsc::channel::<()>();
            let hung = spawn_blocking(move || hangs.recv());
            tokio::time::pause();
            let pid = std::process::id();
            let (entered, ()) = tokio::join!(register.enter(pid, &address), tokio::time::advance(2 * DISK));
            assert_eq!(entered.unwrap_err().kind(), io::ErrorKind::TimedOut);
            tokio::join!(entry.remove(), tokio::time::advance(2 * DISK));
            drop(go_on);
            let _ = hung.await;
        });
    }

    #[test]
    fn the_start_is_found_behind_any_name() {
        let rest = (4..=22).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(started(&format!("12 (a) b (c) S {rest} 23")), Some(22));
        assert_eq!(started(&format!("12 (a) Z {rest} 23")), None);
        assert_eq!(started("12"), None);
    }
}
