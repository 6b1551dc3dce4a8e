//! The record of footprints on disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

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
}

impl FootprintFile {
    /// The record at `path`, which need not exist.
    pub fn open(path: &Path) -> Self {
        let footprints = read(path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "measured memory of engines is not known from earlier runs");
            Footprints::default()
        });
        Self { path: path.to_owned(), footprints }
    }

    /// What was measured of an engine launched like this.
    pub fn recall(&self, launched: &Launched) -> Option<Footprint> {
        self.footprints.recall(launched)
    }

    /// Keeps a measurement and writes the record: the old one or the new one is there, never half of one.
    ///
    /// # Errors
    /// When it cannot be written. The measurement is kept in memory all the same.
    pub fn remember(&mut self, launched: Launched, footprint: Footprint) -> io::Result<()> {
        if self.recall(&launched) == Some(footprint) {
            return Ok(());
        }
        self.footprints.remember(launched, footprint);
        let directory =
            self.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let mut file = NamedTempFile::new_in(directory)?;
        file.write_all(self.footprints.encode().as_bytes())?;
        file.persist(&self.path)?;
        Ok(())
    }
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

    #[test]
    fn the_next_run_knows_what_this_one_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/footprints.jsonl");
        let mut file = FootprintFile::open(&path);
        assert_eq!(file.recall(&launched("a")), None);
        file.remember(launched("a"), SEEN).unwrap();
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
            let mut file = FootprintFile::open(&path);
            assert_eq!(file.recall(&launched("a")), None);
            file.remember(launched("a"), SEEN).unwrap();
            assert_eq!(FootprintFile::open(&path).recall(&launched("a")), Some(SEEN));
        }
    }

    #[test]
    fn what_cannot_be_written_is_known_to_this_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = FootprintFile::open(&dir.path().join("footprints.jsonl"));
        file.path = dir.path().to_owned();
        assert!(file.remember(launched("a"), SEEN).is_err());
        assert_eq!(file.recall(&launched("a")), Some(SEEN));
    }
}
