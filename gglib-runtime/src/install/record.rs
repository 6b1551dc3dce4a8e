//! The record of a complete installation.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Artifact, InstallError};

/// Written last; as long as it fits the pins and the files, nothing has to be done.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    /// SHA-256 of every wheel, so that other pins mean another installation.
    wheels: Vec<String>,
    files: Vec<RecordedFile>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct RecordedFile {
    name: String,
    /// In bytes.
    size: u64,
}

/// Whether the record is there, is about these pins, and every file has the recorded size.
pub(crate) fn is_complete(artifact: &Artifact, data_dir: &Path) -> bool {
    let recorded =
        fs::read(path(artifact, data_dir)).ok().and_then(|json| serde_json::from_slice(&json).ok());
    recorded.is_some_and(|recorded: Record| observe(artifact, data_dir).is_ok_and(|found| found == recorded))
}

/// Records the artifact's files as they are now.
pub(crate) fn write(artifact: &Artifact, data_dir: &Path) -> Result<(), InstallError> {
    let record = observe(artifact, data_dir)?;
    let json = serde_json::to_vec_pretty(&record).expect("strings and integers are JSON");
    let path = path(artifact, data_dir);
    let new = path.with_extension("new");
    // On the disk before what it was made of is removed: a power cut must not leave neither.
    let written =
        File::create(&new).and_then(|mut file| file.write_all(&json).and_then(|()| file.sync_all()));
    written.map_err(InstallError::io("write", &new))?;
    fs::rename(&new, &path).map_err(InstallError::io("rename to", &path))?;
    let directory = path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all());
    directory.map_err(InstallError::io("write", &path))
}

fn path(artifact: &Artifact, data_dir: &Path) -> std::path::PathBuf {
    data_dir.join("installed").join(format!("{}.json", artifact.name))
}

fn observe(artifact: &Artifact, data_dir: &Path) -> Result<Record, InstallError> {
    let target = artifact.target_dir(data_dir);
    let files = artifact.files.iter().map(|file| {
        let path = target.join(file.name);
        let size = fs::metadata(&path).map_err(InstallError::io("read", &path))?.len();
        Ok(RecordedFile { name: file.name.to_owned(), size })
    });
    Ok(Record {
        wheels: artifact.wheels.iter().map(|wheel| wheel.sha256.to_owned()).collect(),
        files: files.collect::<Result<_, InstallError>>()?,
    })
}
