//! The files of a model, read as far as their headers go.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use gglib_core::memory::Launched;
use gglib_core::model::gguf::{self, Facts, GgufError, Reading, Split};
use gglib_core::model::{EngineOptions, Estimate, ModelSpec};
use thiserror::Error;

/// First bite of a file. Most headers without a vocabulary fit into it; each further bite doubles what is read.
const BITE: u64 = 1 << 20;

/// Why a model's file says nothing about its memory.
#[derive(Debug, Error)]
pub enum ModelFileError {
    /// The file, or one that goes with it, cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The file's header makes no sense.
    #[error("{}: {error}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: GgufError,
    },
}

/// What the model at `path` says about itself. Of a model in several files, all are read.
///
/// # Errors
/// When a file is missing or is no GGUF file.
pub fn facts(path: &Path) -> Result<Facts, ModelFileError> {
    let mut facts = header(path)?;
    let names = path.file_name().and_then(|name| Split::names(name.to_str()?));
    if let (Some(split), Some(names)) = (facts.split, names) {
        for (number, name) in names.iter().enumerate() {
            if number != split.number as usize {
                facts.add_part(&header(&path.with_file_name(name))?);
            }
        }
    }
    Ok(facts)
}

/// What an engine of `spec` takes, on a machine with `vram` bytes of GPU memory left for it.
///
/// # Errors
/// When the model, or a file that goes with it, cannot be read.
pub fn estimate(spec: &ModelSpec, vram: u64) -> Result<Estimate, ModelFileError> {
    estimate_by(spec, vram, facts)
}

/// [`estimate`] with the facts from elsewhere.
pub(super) fn estimate_by(
    spec: &ModelSpec,
    vram: u64,
    facts: impl FnOnce(&Path) -> Result<Facts, ModelFileError>,
) -> Result<Estimate, ModelFileError> {
    let options = EngineOptions::of(spec);
    let mut companions: u64 = 0;
    for path in &options.companions {
        companions = companions.saturating_add(fs::metadata(path).map_err(io_error(path))?.len());
    }
    Ok(Estimate::new(&facts(&spec.path)?, companions, &options, vram))
}

/// What a measurement of an engine of `spec`, run from `engine`, is remembered by.
///
/// # Errors
/// When there is no such model file.
pub fn launched(spec: &ModelSpec, engine: &Path) -> Result<Launched, ModelFileError> {
    let metadata = fs::metadata(&spec.path).map_err(io_error(&spec.path))?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(Launched {
        model: spec.path.to_string_lossy().into_owned(),
        len: metadata.len(),
        modified: modified.map_or(0, |since| since.as_secs()),
        engine: engine.to_string_lossy().into_owned(),
        context: spec.context,
        parallel: spec.parallel,
        args: spec.args.clone(),
    })
}

fn header(path: &Path) -> Result<Facts, ModelFileError> {
    // Opening a pipe that nobody writes to would wait for ever.
    let metadata = fs::metadata(path).map_err(io_error(path))?;
    if !metadata.is_file() {
        return Err(io_error(path)(io::Error::other("it is not a regular file")));
    }
    let mut file = File::open(path).map_err(io_error(path))?;
    let mut beginning = Vec::new();
    let mut wanted = BITE;
    loop {
        let more = wanted.saturating_sub(beginning.len() as u64);
        let read = file.by_ref().take(more).read_to_end(&mut beginning).map_err(io_error(path))?;
        // The end that was reached is the file's true one: it may have been cut off just now.
        let size = if (read as u64) < more { beginning.len() as u64 } else { metadata.len() };
        match gguf::read(&beginning, size) {
            Ok(Reading::Whole(facts)) => return Ok(*facts),
            Ok(Reading::Incomplete { needed }) => wanted = needed.max(2 * wanted).min(gguf::limit::HEADER),
            Err(error) => return Err(ModelFileError::Gguf { path: path.to_owned(), error }),
        }
    }
}

pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ModelFileError {
    let path = path.to_owned();
    move |error| ModelFileError::Io { path, error }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn what_is_no_model_is_told_with_its_name_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        let error = || facts(&path).unwrap_err().to_string();
        assert!(error().starts_with(&format!("cannot read {}: No such file", path.display())), "{}", error());
        fs::write(&path, "just text").unwrap();
        assert!(error().ends_with("m.gguf: not a GGUF model file (it does not begin with \"GGUF\"); convert the model or download it as GGUF"), "{}", error());
        fs::write(&path, b"GGUF\x03\0\0\0").unwrap();
        assert!(error().contains("cut off: it has 8 bytes and announces 16 or more"), "{}", error());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(error().ends_with("it is not a regular file"), "{}", error());
    }

    #[test]
    fn all_parts_of_a_model_are_read_and_a_missing_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |part: u8| dir.path().join(format!("m-0000{part}-of-00002.gguf"));
        fs::write(path(1), part(0)).unwrap();
        let error = facts(&path(1)).unwrap_err().to_string();
        assert!(error.contains("m-00002-of-00002.gguf"), "{error}");
        fs::write(path(2), part(1)).unwrap();
        assert_eq!(facts(&path(1)).unwrap().tensors.total(), 2 * 4 * 8);
    }

    /// One part of a model in two.
    pub(crate) fn part(number: u16) -> Vec<u8> {
        gglib_testkit::tiny_model(&[("split.no", number), ("split.count", 2)])
    }
}
