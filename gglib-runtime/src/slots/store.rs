//! What has been saved, on the disk and in mind.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gglib_core::admission::Generation;
use gglib_core::model::ModelName;
use gglib_core::slots::{
    Conversation, Entry, Key, Manifest, PromptCounts, Remembered, SlotWitness, SlotsSnapshot, SwitchedOff,
    Verdict, Verdicts,
};
use thiserror::Error;

use super::dir::SlotDir;

/// The saved slots of one endpoint.
///
/// One directory serves one process at a time; within it, any number of engines. Hand it to the
/// [`Launcher`](crate::engine::Launcher), which saves and restores, and to the proxy, which tells it what the
/// engines answered.
#[derive(Debug)]
pub struct SlotStore {
    dir: SlotDir,
    /// In bytes.
    budget: u64,
    /// Locked while files are written: only for threads that may block.
    manifest: Mutex<Manifest>,
    /// Never locked for longer than a look-up.
    verdicts: Mutex<Verdicts>,
    next_file: AtomicU64,
    counted: Counted,
    /// The last save failed, and somebody was told.
    is_failing: AtomicBool,
}

#[derive(Debug, Default)]
struct Counted {
    bytes: AtomicU64,
    saved: AtomicU64,
    failed_saves: AtomicU64,
    restored: AtomicU64,
    verified: AtomicU64,
}

/// No store could be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another gglib uses the directory.
    #[error("{} is in use by another gglib; set GGLIB_DATA_DIR to another directory, or slots.enabled to false", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The directory cannot be made, read or cleaned.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl SlotStore {
    /// Opens the store at `path`, which is made if need be, with room for `budget` bytes. What is left there of an
    /// earlier run is kept if it is whole, and removed else. Blocks.
    ///
    /// # Errors
    /// [`OpenError`]: then engines run without it.
    pub fn open(path: &Path, budget: u64) -> Result<Self, OpenError> {
        let failed = |error| OpenError::Io { path: path.to_owned(), error };
        let in_use = || OpenError::InUse { path: path.to_owned() };
        let dir = SlotDir::open(path).map_err(failed)?.ok_or_else(in_use)?;
        let manifest = dir.recover().map_err(failed)?;
        let mut verdicts = Verdicts::default();
        manifest.switched_off().for_each(|model| verdicts.switch_off(model.clone()));
        let store = Self {
            dir,
            budget,
            next_file: AtomicU64::new(manifest.next_file()),
            counted: Counted { bytes: AtomicU64::new(manifest.bytes()), ..Counted::default() },
            verdicts: Mutex::new(verdicts),
            manifest: Mutex::new(manifest),
            is_failing: AtomicBool::new(false),
        };
        // The budget may have become smaller since.
        store.change(|_| Vec::new());
        Ok(store)
    }

    /// Its directory.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A number for a file that is not there yet.
    pub(super) fn next_file(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// What can be restored into an engine with this key, the oldest first. Blocks.
    pub(super) fn find(&self, model: &ModelName, key: &Key) -> Vec<Entry> {
        let manifest = lock(&self.manifest);
        let of_model = manifest.entries().iter().filter(|entry| entry.model == *model);
        let fits = |entry: &&Entry| match entry.key.difference(key) {
            None => self.dir.is_whole(entry.file, entry.bytes),
            Some(what) => {
                tracing::info!(%model, slot = entry.slot, "a saved slot is not restored: {what} has changed");
                false
            }
        };
        of_model.filter(fits).cloned().collect()
    }

    /// Puts what an engine has saved on the list, once it is safely on the disk. Blocks.
    pub(super) fn commit(&self, saved: Vec<Entry>) {
        let asked = saved.len();
        let sealed: Vec<_> = saved.into_iter().filter(|entry| self.seal(entry)).collect();
        if sealed.len() == asked {
            self.is_failing.store(false, Ordering::Relaxed);
        }
        count(&self.counted.saved, sealed.len());
        self.change(|manifest| sealed.into_iter().filter_map(|entry| manifest.put(entry)).collect());
    }

    /// Whether the file is whole, safe, and small enough to be kept. Else it is removed.
    fn seal(&self, entry: &Entry) -> bool {
        let outcome = if entry.bytes > self.budget {
            let (bytes, budget) = (entry.bytes, self.budget);
            Err(io::Error::other(format!("it takes {bytes} bytes, and slots.disk_budget is {budget}")))
        } else {
            self.dir.seal(entry.file, entry.bytes)
        };
        let Err(error) = outcome else { return true };
        self.dir.remove(entry.file);
        self.save_failed(&entry.model, &error);
        false
    }

    /// Whether slots of a model are of no use to an engine with this key, as far as it is known from earlier ones; with
    /// another key it is tried again. Blocks.
    pub(super) fn is_of_no_use(&self, model: &ModelName, key: &Key) -> bool {
        let mut off = false;
        self.change(|manifest| {
            off = manifest.stays_off(model, key);
            Vec::new()
        });
        if !off {
            lock(&self.verdicts).switch_on(model);
        }
        off
    }

    /// Keeps in mind, over restarts, that a model is switched off as long as its key is this one. Blocks.
    pub(super) fn keep_switched_off(&self, model: ModelName, key: Key) {
        self.change(|manifest| manifest.switch_off(SwitchedOff { model, key }));
    }

    /// Takes entries off the list, and their files away. Blocks.
    pub(super) fn forget(&self, unwanted: impl Fn(&Entry) -> bool) {
        self.change(|manifest| manifest.remove(unwanted));
    }

    /// Changes the list, keeps it within the budget, and removes the files that have gone from it: those that
    /// `change` returns, and the evicted.
    fn change(&self, change: impl FnOnce(&mut Manifest) -> Vec<Entry>) {
        let mut manifest = lock(&self.manifest);
        let before = manifest.clone();
        let mut gone = change(&mut manifest);
        gone.extend(manifest.evict(self.budget));
        self.counted.bytes.store(manifest.bytes(), Ordering::Relaxed);
        if *manifest != before
            && let Err(error) = self.dir.write(&manifest)
        {
            // The old list stands, and of what it lists only what is there counts at the next start.
            tracing::warn!(%error, "the list of saved slots cannot be written; a restart of gglib will not know them");
        }
        for entry in gone {
            tracing::debug!(model = %entry.model, bytes = entry.bytes, "a saved slot is removed");
            self.dir.remove(entry.file);
        }
    }

    /// Removes files that never came on the list. Blocks.
    pub(super) fn discard(&self, files: &[u64]) {
        for file in files {
            self.dir.remove(*file);
        }
    }

    /// A save has failed. Somebody is told of the first of several in a row.
    pub(super) fn save_failed(&self, model: &ModelName, error: &dyn Display) {
        count(&self.counted.failed_saves, 1);
        if self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::debug!(%model, %error, "a slot was not saved");
        } else {
            tracing::warn!(%model, %error, "a slot was not saved; its conversation will be read again after the next load");
        }
    }

    /// An engine is ready, with this many slots restored.
    pub(super) fn loaded(
        &self,
        generation: Generation,
        model: &ModelName,
        restored: usize,
        remembered: Option<Remembered>,
    ) {
        count(&self.counted.restored, restored);
        let mut verdicts = lock(&self.verdicts);
        match restored {
            0 => verdicts.loaded(generation, model.clone()),
            _ => verdicts.restored(generation, model.clone(), remembered),
        }
    }

    pub(super) fn remembered(&self, generation: Generation) -> Option<Remembered> {
        lock(&self.verdicts).remembered(generation)
    }

    pub(super) fn ended(&self, generation: Generation) {
        lock(&self.verdicts).ended(generation);
    }

    pub(super) fn is_switched_off(&self, model: &ModelName) -> bool {
        lock(&self.verdicts).is_switched_off(model)
    }

    pub(super) fn switch_off(&self, model: &ModelName, reason: &str) {
        tracing::warn!(%model, reason, "slots of this model are not saved any more");
        lock(&self.verdicts).switch_off(model.clone());
    }
}

impl SlotWitness for SlotStore {
    fn asked(&self, generation: Generation) {
        lock(&self.verdicts).asked(generation);
    }

    fn answered(&self, generation: Generation, conversation: Option<&Conversation>, counts: PromptCounts) {
        let verdict = lock(&self.verdicts).answered(generation, conversation, counts);
        match verdict {
            Some((model, Verdict::Verified)) => {
                count(&self.counted.verified, 1);
                tracing::debug!(%model, cached = counts.cached_tokens, prompt = counts.prompt_tokens, "a restored slot was used");
            }
            Some((model, Verdict::Lied)) => {
                let reason = "the engine said that it had restored the conversation, and read all of it again; a model \
                              with a sliding window needs `--swa-full` in its args";
                tracing::warn!(%model, prompt = counts.prompt_tokens, reason, "slots of this model are not saved any more");
            }
            None => {}
        }
    }

    fn snapshot(&self) -> SlotsSnapshot {
        let Counted { bytes, saved, failed_saves, restored, verified } = &self.counted;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SlotsSnapshot {
            bytes: value(bytes),
            saved: value(saved),
            failed_saves: value(failed_saves),
            restored: value(restored),
            verified: value(verified),
            switched_off: lock(&self.verdicts).switched_off().cloned().collect(),
        }
    }
}

fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
