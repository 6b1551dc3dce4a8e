//! What the fake engine did: one JSON object a line, appended by every launch.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// One thing that happened. Launches and, within each, requests are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry {
    /// A process started.
    Launched {
        /// Which launch.
        launch: usize,
        /// Its process id.
        pid: u32,
        /// Its command line, without the program.
        args: Vec<String>,
    },
    /// Loading is over.
    Ready {
        /// Which launch.
        launch: usize,
    },
    /// A `POST` arrived whole.
    Requested {
        /// Which launch.
        launch: usize,
        /// Which request of this launch.
        request: usize,
        /// The path, with its query if it has one.
        path: String,
        /// The body, byte for byte (invalid UTF-8 replaced).
        body: String,
    },
    /// A chat request has a slot and its answer begins.
    Started {
        /// Which launch.
        launch: usize,
        /// Which request of this launch.
        request: usize,
    },
    /// An answer was sent to its end, be it a right one.
    Finished {
        /// Which launch.
        launch: usize,
        /// Which request of this launch.
        request: usize,
    },
    /// The client left a stream before its end. As in the real engine, one that is not streamed is not cancelled.
    Cancelled {
        /// Which launch.
        launch: usize,
        /// Which request of this launch.
        request: usize,
    },
    /// SIGTERM arrived.
    Terminated {
        /// Which launch.
        launch: usize,
    },
}

impl Entry {
    /// Appends the entry to a log that was opened by [`Log::begin`].
    pub fn append_to(&self, mut log: &File) -> io::Result<()> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        // In one write, so that lines of several processes do not mix.
        log.write_all(line.as_bytes())
    }
}

/// All entries so far, in the order of writing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Log {
    /// The log that belongs to the script at `script`.
    pub fn beside(script: &Path) -> PathBuf {
        script.with_extension("log")
    }

    /// Reads the log at `path`; empty if there is none yet. A line that was cut off by its writer's death is left out.
    ///
    /// # Panics
    /// If a whole line is not an [`Entry`].
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let entry = |line| match serde_json::from_str(line) {
            Err(error) if error.is_eof() => None,
            entry => Some(entry.expect("the fake engine writes entries")),
        };
        // The last line may be in the middle of being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Self { entries: whole.lines().filter_map(entry).collect() }
    }

    /// Opens the log at `path` for a new launch and writes the entry made by `make`, which is given the launch's
    /// number. Launches that start at the same time get different numbers.
    pub fn begin(path: &Path, make: impl FnOnce(usize) -> Entry) -> io::Result<File> {
        let file = File::options().create(true).append(true).open(path)?;
        file.lock()?;
        if fs::read(path)?.last().is_some_and(|last| *last != b'\n') {
            // The last writer was killed in the middle of a line, which must not swallow ours.
            (&file).write_all(b"\n")?;
        }
        make(Self::read(path).launches() + 1).append_to(&file)?;
        file.unlock()?;
        Ok(file)
    }

    /// How many processes were started.
    pub fn launches(&self) -> usize {
        self.count(|entry| matches!(entry, Entry::Launched { .. }))
    }

    /// How many `POST`s arrived.
    pub fn requests(&self) -> usize {
        self.count(|entry| matches!(entry, Entry::Requested { .. }))
    }

    /// How many times a slot was to be saved.
    pub fn slot_saves(&self) -> usize {
        self.count(|entry| matches!(entry, Entry::Requested { path, .. } if path.ends_with("?action=save")))
    }

    /// How many times a slot was to be restored.
    pub fn slot_restores(&self) -> usize {
        self.count(
            |entry| matches!(entry, Entry::Requested { path, .. } if path.ends_with("?action=restore")),
        )
    }

    /// How many streams were left by their client.
    pub fn cancelled(&self) -> usize {
        self.count(|entry| matches!(entry, Entry::Cancelled { .. }))
    }

    /// How many answers were sent to their end.
    pub fn finished(&self) -> usize {
        self.count(|entry| matches!(entry, Entry::Finished { .. }))
    }

    /// The bodies of all `POST`s, in the order of arrival.
    pub fn bodies(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Requested { body, .. } => Some(body.as_str()),
            _ => None,
        })
    }

    fn count(&self, counts: impl Fn(&Entry) -> bool) -> usize {
        self.entries.iter().filter(|entry| counts(entry)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_whose_writer_was_killed_is_left_out_and_swallows_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script.log");
        let terminated = |launch| Entry::Terminated { launch };
        let first = Log::begin(&path, terminated).unwrap();
        (&first).write_all(b"{\"Requested\":{\"launch\":1,\"body\":\"aaa").unwrap();
        assert_eq!(Log::read(&path).entries, [terminated(1)]);
        Log::begin(&path, |_| terminated(2)).unwrap();
        assert_eq!(Log::read(&path).entries, [terminated(1), terminated(2)]);
    }
}
