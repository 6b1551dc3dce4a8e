//! The slots of one engine, from its load to its end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gglib_core::admission::Generation;
use gglib_core::model::ModelName;
use gglib_core::ports::Upstream;
use gglib_core::slots::{Entry, Key, file_name};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::error::Elapsed;
use tokio::time::{Timeout, sleep, timeout};

use super::identity;
use super::protocol::{self, Restored, Saved, SlotError};
use super::store::SlotStore;

/// The longest that saving may hold up a stop, and restoring a load: both are a matter of the disk's speed. Reading
/// a prompt again that takes this long to write would be slower still.
const SAVE: Duration = Duration::from_secs(15);
const RESTORE: Duration = Duration::from_secs(15);
/// Between a failed save and the second try.
const SECOND_TRY: Duration = Duration::from_millis(200);

/// What is known of an engine that has just become ready.
pub(crate) struct Launched {
    pub(crate) generation: Generation,
    pub(crate) model: ModelName,
    /// The engine's program, the model's file, and the arguments without names and addresses.
    pub(crate) binary: PathBuf,
    pub(crate) file: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

/// One engine whose slots are saved at its end.
pub(crate) struct EngineSlots {
    store: Arc<SlotStore>,
    generation: Generation,
    model: ModelName,
    key: Key,
    /// How many slots the engine has.
    slots: u32,
    /// Files that the engine was asked to write, and which are on no list.
    begun: Vec<u64>,
}

impl EngineSlots {
    /// Restores what fits into an engine that is ready but not yet used. `None` when its slots are not to be saved
    /// either.
    pub(crate) async fn restore(
        store: &Arc<SlotStore>,
        engine: &dyn Upstream,
        launched: Launched,
    ) -> Option<Self> {
        let Launched { generation, model, binary, file, arguments } = launched;
        let answer = timeout(RESTORE, protocol::props(engine)).await.map_err(|slow| slow.to_string());
        let props = match answer.and_then(|answer| answer.map_err(|error| error.to_string())) {
            Ok(props) => props,
            Err(error) => {
                tracing::warn!(%model, error, "the engine does not say what it is; its slots are not kept");
                return None;
            }
        };
        let (shelf, name) = (Arc::clone(store), model.clone());
        let (key, found) = blocking(move || {
            let key = identity::key(props.build_info, &binary, &file, &arguments);
            if shelf.is_of_no_use(&name, &key) {
                return None;
            }
            let found = shelf.find(&name, &key);
            Some((key, found))
        })
        .await??;
        let slots = Self {
            store: Arc::clone(store),
            generation,
            model,
            key,
            slots: props.total_slots,
            begun: Vec::new(),
        };
        slots.fill(engine, found).await;
        Some(slots)
    }

    /// Removes what has been saved of a model.
    pub(crate) async fn forget(store: &Arc<SlotStore>, model: &ModelName) {
        let (store, model) = (Arc::clone(store), model.clone());
        blocking(move || store.forget(|entry| entry.model == model)).await;
    }

    /// Restores `found` and takes note of it. What cannot be restored is forgotten.
    async fn fill(&self, engine: &dyn Upstream, found: Vec<Entry>) {
        let found: Vec<_> = found.into_iter().filter(|entry| entry.slot < self.slots).collect();
        let mut restored = Vec::new();
        let outcome = timeout(RESTORE, restore_all(engine, &found, &mut restored)).await;
        let reason = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(Elapsed { .. }) => Some(format!("it took longer than {} s", RESTORE.as_secs())),
        };
        if let Some(reason) = reason {
            tracing::warn!(model = %self.model, reason, "a saved slot could not be restored");
            let bad = found
                .iter()
                .map(|entry| entry.file)
                .filter(|file| !restored.contains(file))
                .collect::<Vec<_>>();
            let store = Arc::clone(&self.store);
            blocking(move || store.forget(|entry| bad.contains(&entry.file))).await;
        }
        // It is not known which of several slots holds the last conversation: without all of them it may be gone.
        let remembered = found.first().and_then(|entry| entry.remembered).filter(|remembered| {
            restored.len() == self.slots as usize
                && found.iter().all(|entry| entry.remembered.as_ref() == Some(remembered))
        });
        self.store.loaded(self.generation, &self.model, restored.len(), remembered);
        if !restored.is_empty() {
            tracing::info!(model = %self.model, generation = self.generation.0, slots = restored.len(), "slots restored");
        }
    }

    /// Saves the slots of an idle engine. What comes back is over when they are safe, or the disk takes too long; the
    /// engine may end meanwhile.
    pub(crate) async fn save(&mut self, engine: &dyn Upstream) -> Option<Timeout<JoinHandle<()>>> {
        if self.store.is_switched_off(&self.model) {
            return None;
        }
        let mut saved = Vec::new();
        match timeout(SAVE, self.save_all(engine, &mut saved)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_unsupported() => {
                self.store.switch_off(&self.model, &error.to_string());
            }
            Ok(Err(error)) => self.store.save_failed(&self.model, &error),
            Err(slow) => self.store.save_failed(&self.model, &slow),
        }
        self.begun.retain(|file| saved.iter().all(|entry| entry.file != *file));
        let store = Arc::clone(&self.store);
        (!saved.is_empty()).then(|| timeout(SAVE, spawn_blocking(move || store.commit(saved))))
    }

    async fn save_all(&mut self, engine: &dyn Upstream, saved: &mut Vec<Entry>) -> Result<(), SlotError> {
        let remembered = self.store.remembered(self.generation);
        for slot in 0..self.slots {
            let file = self.store.next_file();
            self.begun.push(file);
            let Saved { n_saved: tokens, n_written: bytes } =
                save_in_two_tries(engine, slot, &file_name(file)).await?;
            // An unused slot has nothing but a head.
            if tokens > 0 {
                let (model, key) = (self.model.clone(), self.key.clone());
                saved.push(Entry { model, slot, file, bytes, tokens, remembered, key });
            }
        }
        Ok(())
    }

    /// To be called when the engine has ended, however that came: removes what it has left unfinished.
    pub(crate) async fn close(self) {
        self.store.ended(self.generation);
        if self.store.is_switched_off(&self.model) {
            let (store, model, key) = (Arc::clone(&self.store), self.model, self.key);
            blocking(move || store.keep_switched_off(model, key)).await;
        }
        if !self.begun.is_empty() {
            blocking(move || self.store.discard(&self.begun)).await;
        }
    }
}

/// Saves one slot; a failure that may pass gets one second try.
///
/// The delay is fixed: nobody else wants to save this slot, so there is nobody to keep a distance from.
async fn save_in_two_tries(engine: &dyn Upstream, slot: u32, file: &str) -> Result<Saved, SlotError> {
    match protocol::save(engine, slot, file).await {
        Err(error) if error.may_pass() => {
            tracing::debug!(slot, %error, "saving a slot once more");
            sleep(SECOND_TRY).await;
            protocol::save(engine, slot, file).await
        }
        outcome => outcome,
    }
}

/// Restores the entries in their order, up to the first that fails. `restored` takes the files of those before it.
async fn restore_all(
    engine: &dyn Upstream,
    entries: &[Entry],
    restored: &mut Vec<u64>,
) -> Result<(), SlotError> {
    for entry in entries {
        let Restored { n_restored } = protocol::restore(engine, entry.slot, &file_name(entry.file)).await?;
        if n_restored != entry.tokens {
            return Err(SlotError::Partial { expected: entry.tokens, found: n_restored });
        }
        restored.push(entry.file);
    }
    Ok(())
}

/// Runs what waits for the disk; `None` only when it has panicked or the runtime ends.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::path::Path;
    use std::sync::Mutex;

    use bytes::Bytes;
    use futures_util::stream;
    use gglib_core::ports::{BoxFuture, ByteStream, UpstreamError};
    use gglib_core::slots::SlotWitness;
    use http::{Request, Response};
    use tokio::time::Instant;

    use super::*;

    const PROPS: &str = r#"{"build_info":"b1","total_slots":1}"#;
    const SAVED: &str = r#"{"n_saved":3,"n_written":5}"#;

    /// Answers each request for a slot with the next of `replies`: a body, a status, or silence.
    struct Scripted {
        dir: PathBuf,
        start: Instant,
        replies: Mutex<Vec<Option<Result<&'static str, u16>>>>,
        asked_at: Mutex<Vec<Duration>>,
    }

    impl Scripted {
        fn new(dir: &Path, replies: &[Option<Result<&'static str, u16>>]) -> Self {
            let replies = Mutex::new(replies.iter().rev().copied().collect());
            Self { dir: dir.to_owned(), start: Instant::now(), replies, asked_at: Mutex::default() }
        }

        fn asked_at(&self) -> Vec<Duration> {
            self.asked_at.lock().unwrap().clone()
        }
    }

    impl Upstream for Scripted {
        fn send(
            &self,
            request: Request<Bytes>,
        ) -> BoxFuture<'_, Result<Response<ByteStream>, UpstreamError>> {
            Box::pin(async move {
                let reply = if request.uri().path() == "/props" {
                    Some(Ok(PROPS))
                } else {
                    self.asked_at.lock().unwrap().push(self.start.elapsed());
                    self.replies.lock().unwrap().pop().unwrap()
                };
                if reply == Some(Ok(SAVED)) {
                    let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
                    std::fs::write(self.dir.join(body["filename"].as_str().unwrap()), "12345").unwrap();
                }
                let (status, body) = match reply {
                    None => pending().await,
                    Some(Ok(body)) => (200, body),
                    Some(Err(status)) => (status, "{}"),
                };
                let body: ByteStream = Box::pin(stream::iter([Ok(Bytes::from_static(body.as_bytes()))]));
                Ok(Response::builder().status(status).body(body).unwrap())
            })
        }
    }

    async fn restored(store: &Arc<SlotStore>, engine: &Scripted) -> EngineSlots {
        let launched = Launched {
            generation: Generation(1),
            model: ModelName::new("m"),
            binary: PathBuf::new(),
            file: PathBuf::new(),
            arguments: Vec::new(),
        };
        EngineSlots::restore(store, engine, launched).await.unwrap()
    }

    fn store(dir: &Path) -> Arc<SlotStore> {
        Arc::new(SlotStore::open(dir, 1000).unwrap())
    }

    async fn save(slots: &mut EngineSlots, engine: &Scripted) {
        if let Some(saved) = slots.save(engine).await {
            saved.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_try_comes_after_its_fixed_delay() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let engine = Scripted::new(dir.path(), &[Some(Err(500)), Some(Ok(SAVED))]);
        let mut slots = restored(&store, &engine).await;
        save(&mut slots, &engine).await;
        assert_eq!(engine.asked_at(), [Duration::ZERO, SECOND_TRY]);
        assert_eq!((store.snapshot().saved, store.snapshot().bytes), (1, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_save_or_restore_that_hangs_ends_at_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let engine = Scripted::new(dir.path(), &[Some(Ok(SAVED)), None, None]);
        let mut slots = restored(&store, &engine).await;
        save(&mut slots, &engine).await;
        save(&mut slots, &engine).await;
        assert_eq!(engine.start.elapsed(), SAVE);
        assert_eq!((store.snapshot().saved, store.snapshot().failed_saves), (1, 1));
        slots.close().await;

        restored(&store, &engine).await;
        assert_eq!(engine.start.elapsed(), SAVE + RESTORE);
        // It is not tried again at the next load.
        assert_eq!((store.snapshot().restored, store.snapshot().bytes), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn fewer_tokens_than_were_saved_are_no_restore() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let replies = [Some(Ok(SAVED)), Some(Ok(r#"{"n_restored":2}"#))];
        let engine = Scripted::new(dir.path(), &replies);
        let mut slots = restored(&store, &engine).await;
        save(&mut slots, &engine).await;
        restored(&store, &engine).await;
        assert_eq!((store.snapshot().restored, store.snapshot().bytes), (0, 0));
    }
}
