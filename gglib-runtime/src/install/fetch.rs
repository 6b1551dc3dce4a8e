//! Downloading a wheel with the user's own `pip`.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use super::{InstallError, Wheel};

/// How a wheel comes from the package index to the disk.
pub trait Fetch {
    /// Downloads `wheel` into `into`, an empty directory that is the fetcher's alone, and returns the file's path.
    /// `progress` is told the bytes on disk so far, about ten times a second, `None` before the first.
    fn fetch(
        &self,
        wheel: &Wheel,
        into: &Path,
        progress: &dyn Fn(Option<u64>),
    ) -> Result<PathBuf, InstallError>;
}

/// `pip download` of `python3`, which takes index, mirrors, proxies and wheel folders from the user's own
/// configuration and environment.
#[derive(Debug, Clone, Default)]
pub struct Pip {
    env: Vec<(OsString, OsString)>,
}

/// Lines of standard error that an error repeats.
const STDERR_LINES: usize = 12;
/// How often the growing file is looked at.
const POLL: Duration = Duration::from_millis(100);
/// `python -m pip` without the current directory, where `-m` would find any `pip.py` first. Python leaves it out by itself
/// only from 3.11 on (`-P`); `-I` would also leave out a pip that the user has installed.
const PIP: &str = "import sys; sys.path = [path for path in sys.path if path]; \
                   import runpy; runpy.run_module('pip', run_name='__main__', alter_sys=True)";

impl Pip {
    /// Sets an environment variable for `pip`, on top of our own environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    fn command(&self, python: &str) -> Command {
        let mut command = Command::new(python);
        command.args(["-c", PIP]).envs(self.env.iter().cloned()).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Runs `pip download` by the first of `python3` and `python` that exists and has pip.
    fn download(&self, wheel: &Wheel, into: &Path, tick: impl Fn()) -> Result<(), InstallError> {
        // pip writes to its temporary directory and moves the finished wheel to its destination. Both are in `into`,
        // so that a crash leaves nothing elsewhere, a small /tmp does not matter, and progress can be seen.
        let temp = into.join("tmp");
        fs::create_dir(&temp).map_err(InstallError::io("create", &temp))?;
        let mut without_pip = None;
        for python in ["python3", "python"] {
            let child = self
                .command(python)
                .args(["download", "--no-deps", "--only-binary=:all:", "--no-input"])
                .args(["--disable-pip-version-check", "--progress-bar=off", "--dest"])
                .arg(into)
                .arg(wheel.requirement())
                .env("TMPDIR", &temp)
                .stderr(Stdio::piped())
                .spawn();
            let child = match child {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                child => child.map_err(InstallError::io("start", python))?,
            };
            let (status, stderr) = watch(child, &tick).map_err(InstallError::io("run", python))?;
            if status.success() {
                return Ok(());
            }
            if self.has_pip(python) {
                return Err(InstallError::PipFailed { requirement: wheel.requirement(), status, stderr });
            }
            without_pip = without_pip.or(Some(python));
        }
        Err(without_pip.map_or(InstallError::PythonMissing, |python| InstallError::PipMissing { python }))
    }

    fn has_pip(&self, python: &str) -> bool {
        self.command(python)
            .arg("--version")
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Fetch for Pip {
    fn fetch(
        &self,
        wheel: &Wheel,
        into: &Path,
        progress: &dyn Fn(Option<u64>),
    ) -> Result<PathBuf, InstallError> {
        self.download(wheel, into, || progress(bytes_below(into)))?;
        delivered(wheel, into)
    }
}

/// Waits for `child`, calling `tick` about every [`POLL`]; yields its last lines on standard error.
fn watch(mut child: Child, tick: impl Fn()) -> io::Result<(std::process::ExitStatus, String)> {
    let stderr = child.stderr.take().expect("standard error was piped");
    let (ended, end) = mpsc::channel();
    let reader = thread::spawn(move || {
        let lines = last_lines(stderr);
        // The receiver waits for this and cannot be gone.
        drop(ended);
        lines
    });
    while end.recv_timeout(POLL) == Err::<(), _>(mpsc::RecvTimeoutError::Timeout) {
        tick();
    }
    let status = child.wait()?;
    Ok((status, reader.join().expect("the reader does not panic")))
}

fn last_lines(stderr: impl Read) -> String {
    let mut lines = VecDeque::new();
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        if lines.len() == STDERR_LINES {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
    Vec::from(lines).join("\n")
}

/// The sum of all file sizes below `directory`; `None` while there is no file. Files that vanish meanwhile are not
/// counted.
fn bytes_below(directory: &Path) -> Option<u64> {
    let mut sum = None;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let bytes = match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => Some(metadata.len()),
            Err(_) => None,
        };
        sum = bytes.map_or(sum, |bytes| Some(sum.unwrap_or(0) + bytes));
    }
    sum
}

fn delivered(wheel: &Wheel, into: &Path) -> Result<PathBuf, InstallError> {
    let path = into.join(wheel.file);
    if path.exists() {
        return Ok(path);
    }
    let entries = fs::read_dir(into).map_err(InstallError::io("read", into))?;
    let found = entries.flatten().filter(|entry| entry.path().is_file());
    let found = found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    Err(InstallError::OtherFile { requirement: wheel.requirement(), expected: wheel.file, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pip_in_the_current_directory_is_not_run() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let marker = dir.path().join("was run");
        for module in ["pip.py", "runpy.py"] {
            let foreign = format!("open({:?}, 'w')", marker.display().to_string());
            fs::write(dir.path().join(module), foreign).expect("writable");
        }
        for env in [None, Some(("PYTHONPATH", ""))] {
            let mut pip = Pip::default().command("python3");
            pip.arg("--version").envs(env).current_dir(&dir).stdout(Stdio::piped());
            let output = pip.output().expect("there is a python3");
            let version = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && version.starts_with("pip "), "{output:?}");
            assert!(!marker.exists());
        }
    }
}
