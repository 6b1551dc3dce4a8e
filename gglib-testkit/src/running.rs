//! A child process that does not outlive its test.

use std::{
    io::{BufRead, BufReader, PipeReader, PipeWriter, pipe},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A child in a process group of its own. When it is dropped the whole group is killed, the child reaped.
///
/// Its standard error is collected; its standard output goes where the [`Command`] says, or, with
/// [`start_collecting_all`](Self::start_collecting_all), to the same place. The methods that wait block their thread.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stderr: Arc<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    so_far: Mutex<Vec<String>>,
    grown: Condvar,
}

impl Running {
    /// Starts `command`.
    pub fn start(command: Command) -> Self {
        let (pipe, stderr) = pipe().expect("a pipe can be made");
        Self::collecting(command, pipe, stderr)
    }

    /// Starts `command` and collects its standard output together with its standard error.
    pub fn start_collecting_all(mut command: Command) -> Self {
        let (pipe, stderr) = pipe().expect("a pipe can be made");
        command.stdout(stderr.try_clone().expect("a pipe can be doubled"));
        Self::collecting(command, pipe, stderr)
    }

    fn collecting(mut command: Command, pipe: PipeReader, stderr: PipeWriter) -> Self {
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        // The command holds our ends of the pipe that the child writes to; without it the pipe ends with the child.
        drop(command);
        let stderr = Arc::new(Lines::default());
        let collected = Arc::clone(&stderr);
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                collected.push(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
        });
        Self { child, stderr }
    }

    /// The child's process id, which is also its group's.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The lines on standard error so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.so_far.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line on standard error, one already there included, and returns the first that fits.
    ///
    /// # Panics
    /// After `bound`, showing the lines that came instead.
    pub fn until_line(&self, fits: impl Fn(&str) -> bool, bound: Duration) -> String {
        let lines = self.stderr.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |lines: &[String]| lines.iter().find(|line| fits(line)).cloned();
        let waited = self.stderr.grown.wait_timeout_while(lines, bound, |lines| find(lines).is_none());
        let (lines, _) = waited.unwrap_or_else(PoisonError::into_inner);
        find(&lines).unwrap_or_else(|| panic!("the line did not come in {bound:?}; these did: {lines:#?}"))
    }

    /// Waits for the child to end by itself.
    ///
    /// # Panics
    /// After `bound`, showing its standard error.
    pub fn until_end(&mut self, bound: Duration) -> ExitStatus {
        const GRAIN: Duration = Duration::from_millis(10);
        let (_never, tick) = mpsc::channel::<()>();
        for _ in 0..=bound.as_millis() / GRAIN.as_millis() {
            if let Some(status) = self.child.try_wait().expect("our own child can be waited for") {
                return status;
            }
            let _ = tick.recv_timeout(GRAIN);
        }
        panic!("the process did not end in {bound:?}; it said: {:#?}", self.stderr())
    }

    /// Sends a signal to the child alone, not to its group.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the child has not been reaped");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The group may be empty already; what is left of it, grandchildren included, is ours.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Lines {
    fn push(&self, line: String) {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        self.grown.notify_all();
    }
}
