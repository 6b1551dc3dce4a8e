//! What is known of model files: each is read once, as long as it stays the same.
//!
//! A header with a large vocabulary has many megabytes. Read at every load, on whatever thread is free, it leaves as
//! much behind in the allocator's arena of each of them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use gglib_core::model::gguf::Facts;

use super::ModelFileError;
use super::model_file::{facts, io_error};

/// The facts of files that have been read.
#[derive(Debug, Default)]
pub(super) struct KnownFacts(Mutex<HashMap<PathBuf, (Stamp, Facts)>>);

/// Length and time of a file; of a model in several files, of the one that is named.
type Stamp = (u64, Option<SystemTime>);

impl KnownFacts {
    /// What the model at `path` says about itself, read if it is new or has changed. Blocks.
    pub(super) fn of(&self, path: &Path) -> Result<Facts, ModelFileError> {
        let metadata = fs::metadata(path).map_err(io_error(path))?;
        let stamp = (metadata.len(), metadata.modified().ok());
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, facts)) = known().get(path).filter(|(known, _)| *known == stamp) {
            return Ok(facts.clone());
        }
        // Without the lock: a disk that hangs must not keep others from what is known.
        let facts = facts(path)?;
        known().insert(path.to_owned(), (stamp, facts.clone()));
        Ok(facts)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::super::model_file::tests::part;
    use super::*;

    #[test]
    fn a_file_is_read_once_and_again_when_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        fs::write(&path, part(0)).unwrap();
        let known = KnownFacts::default();
        let facts = known.of(&path).unwrap();

        // Of the same length and time it passes for the same.
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let mut other = part(0);
        other[0] = b'X';
        fs::write(&path, &other).unwrap();
        let set = |time| File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
        set(time);
        assert_eq!(known.of(&path).unwrap(), facts);

        set(time + Duration::from_secs(1));
        assert!(known.of(&path).is_err(), "it is no GGUF file any more");
        fs::remove_file(&path).unwrap();
        assert!(matches!(known.of(&path), Err(ModelFileError::Io { .. })));
    }
}
