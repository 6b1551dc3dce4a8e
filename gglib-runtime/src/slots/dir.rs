//! The directory of saved slots.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gglib_core::slots::{Manifest, file_name, file_number};

const MANIFEST: &str = "manifest.json";
const DRAFT: &str = "manifest.json.new";
const LOCK: &str = "lock";

/// A directory that only we can enter, held by one process at a time. Its methods block.
#[derive(Debug)]
pub(super) struct SlotDir {
    path: PathBuf,
    #[expect(dead_code, reason = "held for its lock")]
    lock: File,
}

impl SlotDir {
    /// Takes hold of the directory at `path`; `None` when another process has it.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
        let lock = File::options().create(true).append(true).open(path.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { path: path.to_owned(), lock })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the manifest lists and is there in its full length. Everything else that is ours is removed.
    pub(super) fn recover(&self) -> io::Result<Manifest> {
        let mut manifest = self.manifest()?;
        manifest.remove(|entry| !self.is_whole(entry.file, entry.bytes));
        for found in fs::read_dir(&self.path)? {
            let name = found?.file_name();
            let listed = |file| manifest.entries().iter().any(|entry| entry.file == file);
            let stale = match name.to_str() {
                Some(DRAFT) => true,
                Some(name) => file_number(name).is_some_and(|file| !listed(file)),
                None => false,
            };
            if stale {
                fs::remove_file(self.path.join(name))?;
            }
        }
        Ok(manifest)
    }

    fn manifest(&self) -> io::Result<Manifest> {
        let path = self.path.join(MANIFEST);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Manifest::default()),
            Err(error) => return Err(error),
        };
        Ok(Manifest::decode(&bytes).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "the list of saved slots is ignored");
            Manifest::default()
        }))
    }

    /// Replaces the manifest in one step.
    pub(super) fn write(&self, manifest: &Manifest) -> io::Result<()> {
        let draft = self.path.join(DRAFT);
        let mut file = File::create(&draft)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(&manifest.encode())?;
        file.sync_all()?;
        fs::rename(draft, self.path.join(MANIFEST))?;
        File::open(&self.path)?.sync_all()
    }

    /// Makes sure that a file of this length is on the disk, and for our eyes only.
    pub(super) fn seal(&self, file: u64, bytes: u64) -> io::Result<()> {
        let file = File::open(self.file(file))?;
        let length = file.metadata()?.len();
        if length != bytes {
            return Err(io::Error::other(format!("the engine wrote {bytes} bytes, the file has {length}")));
        }
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.sync_all()
    }

    pub(super) fn is_whole(&self, file: u64, bytes: u64) -> bool {
        fs::metadata(self.file(file)).is_ok_and(|found| found.is_file() && found.len() == bytes)
    }

    /// Removes a file, if it is there. What cannot be removed is not listed, and goes at the next start.
    pub(super) fn remove(&self, file: u64) {
        match fs::remove_file(self.file(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %self.file(file).display(), %error, "a saved slot cannot be removed");
            }
            _ => {}
        }
    }

    fn file(&self, file: u64) -> PathBuf {
        self.path.join(file_name(file))
    }
}
