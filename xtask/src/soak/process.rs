//! What a process holds, as `/proc` and the process itself tell it.

use std::fs;
use std::path::Path;

use gglib_testkit::engines::children_of;

/// What must not become more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holdings {
    /// Open files, sockets included.
    pub(super) files: usize,
    pub(super) threads: usize,
    /// Those of its runtime, as it counts them.
    pub(super) tasks: u64,
}

impl Holdings {
    pub(super) fn of(pid: u32, tasks: u64) -> Self {
        let count = |of| fs::read_dir(format!("/proc/{pid}/{of}")).map_or(0, Iterator::count);
        Self { files: count("fd"), threads: count("task"), tasks }
    }

    /// Whether anything has become more than `before`.
    pub(super) fn exceed(&self, before: &Self) -> bool {
        self.files > before.files || self.threads > before.threads || self.tasks > before.tasks
    }
}

/// Memory of its own in KiB, resident or swapped out. The program's text is none: it comes in as it is used.
pub(super) fn memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |name| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(kib("RssAnon:")? + kib("VmSwap:")?)
}

/// The guards that `pid` has started, and what they have: engines.
pub(super) fn guards_and_engines(pid: u32) -> (Vec<u32>, Vec<u32>) {
    let guards = children_of(pid);
    let engines = guards.iter().flat_map(|guard| children_of(*guard)).collect();
    (guards, engines)
}

/// Bytes of all files below `directory`.
pub(super) fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
