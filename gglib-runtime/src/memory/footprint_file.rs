//! The record of footprints on disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gglib_core::memory::{Footprint, Footprints, Launched};
use tempfile::NamedTempFile;

/// Longest record that is read, in bytes. Ours are a tenth of it at most.
const LONGEST: u64 = 4 << 20;

/// Measurements that outlive us. They are a convenience: a record that is damaged or cannot be read is
/// warned of and begun anew.
#[derive(Debug)]
pub struct FootprintFile {
    path: PathBuf,
    footprints: Footprints,
    /// Some of them are not on the disk.
    is_behind: bool,
    /// Somebody is writing them.
    is_being_written: bool,
}

impl FootprintFile {
    /// The record at `path`, which need not exist.
    pub fn open(path: &Path) -> Self {
        let footprints = read(path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "measured memory of engines is not known from earlier runs");
            Footprints::default()
        });
        Self { path: path.to_owned(), footprints, is_behind: false, is_being_written: false }
    }

    /// What was measured of an engine launched like this.
    pub fn recall(&self, launched: &Launched) -> Option<Footprint> {
        self.footprints.recall(launched)
    }

    /// Keeps a measurement in memory. [`write_down`](Self::write_down) is due after it.
    pub fn remember(&mut self, launched: Launched, footprint: Footprint) {
        if self.recall(&launched) != Some(footprint) {
            self.footprints.remember(launched, footprint);
            self.is_behind = true;
        }
    }

    /// Writes the record, unless it is on the disk, or somebody else is writing it, who will then do so once more. The old
    /// one or the new one is there, never half of one. Blocks, but not with the lock.
    ///
    /// # Errors
    /// When it cannot be written. Then it is due again with the next measurement.
    pub fn write_down(this: &Mutex<Self>) -> io::Result<()> {
        let lock = || this.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = lock().begin();
        while let Some((path, text)) = next {
            let outcome = write(&path, &text);
            let mut file = lock();
            file.is_being_written = false;
            if let Err(error) = outcome {
                file.is_behind = true;
                return Err(error);
            }
            next = file.begin();
        }
        Ok(())
    }

    /// What is to be written by who asks, and where.
    pub(super) fn begin(&mut self) -> Option<(PathBuf, String)> {
        if !self.is_behind || self.is_being_written {
            return None;
        }
        (self.is_behind, self.is_being_written) = (false, true);
        Some((self.path.clone(), self.footprints.encode()))
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

fn read(path: &Path) -> io::Result<Footprints> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Footprints::default()),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Footprints::decode(&text).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(model: &str) -> Launched {
        Launched {
            model: model.to_owned(),
            len: 1,
            modified: 2,
            engine: "llama-server".to_owned(),
            context: None,
            parallel: 1,
            args: Vec::new(),
        }
    }

    const SEEN: Footprint = Footprint { anonymous: 1, mapped: 2, vram: 3, swapped: 0 };

    fn opened(path: &Path) -> Mutex<FootprintFile> {
        Mutex::new(FootprintFile::open(path))
    }

    fn remember(file: &Mutex<FootprintFile>, model: &str) -> io::Result<()> {
        file.lock().unwrap().remember(launched(model), SEEN);
        FootprintFile::write_down(file)
    }

    #[test]
    fn the_next_run_knows_what_this_one_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/footprints.jsonl");
        let file = opened(&path);
        assert_eq!(file.lock().unwrap().recall(&launched("a")), None);
        remember(&file, "a").unwrap();
        assert_eq!(FootprintFile::open(&path).recall(&launched("a")), Some(SEEN));
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "a temporary file was left behind");
    }

    #[test]
    fn a_damaged_record_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("footprints.jsonl");
        for damaged in [&b"not ours"[..], b"{\"gglib_footprints\":1}\n{", b"\xff\xfe", b""] {
            fs::write(&path, damaged).unwrap();
            let file = opened(&path);
            assert_eq!(file.lock().unwrap().recall(&launched("a")), None);
            remember(&file, "a").unwrap();
            assert_eq!(FootprintFile::open(&path).recall(&launched("a")), Some(SEEN));
        }
    }

    #[test]
    fn what_cannot_be_written_is_known_to_this_run_and_written_with_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("footprints.jsonl");
        fs::create_dir(&path).unwrap();
        let file = opened(&path);
        assert!(remember(&file, "a").is_err());
        assert_eq!(file.lock().unwrap().recall(&launched("a")), Some(SEEN));
        fs::remove_dir(&path).unwrap();
        remember(&file, "b").unwrap();
        for model in ["a", "b"] {
            assert_eq!(FootprintFile::open(&path).recall(&launched(model)), Some(SEEN));
        }
    }

    #[test]
    fn one_writes_at_a_time_and_nobody_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("footprints.jsonl");
        let file = opened(&path);
        file.lock().unwrap().remember(launched("a"), SEEN);
        let hanging = file.lock().unwrap().begin().unwrap();
        remember(&file, "b").unwrap();
        assert!(!path.exists(), "a second one has written meanwhile");
        // What came meanwhile is written by who was at it.
        write(&hanging.0, &hanging.1).unwrap();
        file.lock().unwrap().is_being_written = false;
        FootprintFile::write_down(&file).unwrap();
        assert_eq!(FootprintFile::open(&path).recall(&launched("b")), Some(SEEN));
    }
}
