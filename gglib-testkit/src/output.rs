//! What a command says, waited for with a bound.

use std::{
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

/// Runs `command` to its end, with nothing to read; see [`output_of`].
///
/// # Panics
/// When it does not start, and after `bound`.
pub fn output(command: &mut Command, bound: Duration) -> Output {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    output_of(command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}")), bound)
}

/// What `child`, whose outputs are piped, says until it ends. Blocks its thread.
///
/// # Panics
/// After `bound`, when the child has been killed; shows what it said.
pub fn output_of(child: Child, bound: Duration) -> Output {
    let pid = Pid::from_child(&child);
    let (ended, has_ended) = channel::<()>();
    let watch = thread::spawn(move || {
        let is_late = has_ended.recv_timeout(bound) == Err(RecvTimeoutError::Timeout);
        if is_late {
            let _ = kill_process(pid, Signal::KILL);
        }
        is_late
    });
    let output = child.wait_with_output().expect("our own child can be waited for");
    drop(ended);
    let is_late = watch.join().expect("it only waits");
    assert!(!is_late, "the process did not end in {bound:?}; it said: {output:?}");
    output
}
