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
use tokio::time::{Instant, Timeout, sleep, timeout_at};

use super::identity;
use super::protocol::{self, Restored, Saved, SlotError};
use super::store::SlotStore;
use crate::engine::Exit;

/// The longest that saving may hold up a stop, and restoring a load, from the first question to the last look at the
/// disk: both are a matter of the disk's speed. Reading a prompt again that takes this long to write would be slower still.
const SAVE: Duration = Duration::from_secs(15);
pub(crate) const RESTORE: Duration = Duration::from_secs(15);
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
    /// When nobody waits for its save any more, once that has begun.
    save_by: Option<Instant>,
}

impl EngineSlots {
    /// Restores what fits into an engine that is ready but not yet used, as far as that is done by `deadline`. `None`
    /// when its slots are not to be saved either.
    pub(crate) async fn restore(
        store: &Arc<SlotStore>,
        engine: &dyn Upstream,
        launched: Launched,
        deadline: Instant,
    ) -> Option<Self> {
        let model = launched.model.clone();
        let identified = timeout_at(deadline, Self::identify(store, engine, launched)).await;
        match identified.map_err(|slow| slow.to_string()).flatten() {
            Ok(identified) => {
                let (slots, found) = identified?;
                slots.fill(engine, found, deadline).await;
                Some(slots)
            }
            Err(error) => {
                tracing::warn!(%model, error, "it cannot be told what the engine is; its slots are not kept");
                None
            }
        }
    }

    /// Finds out what the engine is and what has been saved for it; nothing when that is known to be of no use.
    async fn identify(
        store: &Arc<SlotStore>,
        engine: &dyn Upstream,
        launched: Launched,
    ) -> Result<Option<(Self, Vec<Entry>)>, String> {
        let props = protocol::props(engine).await.map_err(|error| error.to_string())?;
        let (total_slots, store) = (props.total_slots, Arc::clone(store));
        let identified = spawn_blocking(move || {
            let Launched { generation, model, binary, file, arguments } = launched;
            let key = identity::key(props.build_info, &binary, &file, &arguments);
            if store.is_of_no_use(&model, &key) {
                return None;
            }
            let found = store.find(&model, &key);
            let (slots, begun, save_by) = (total_slots, Vec::new(), None);
            Some((Self { store, generation, model, key, slots, begun, save_by }, found))
        });
        identified.await.map_err(|error| error.to_string())
    }

    /// Removes what has been saved of a model; nobody waits for it beyond `deadline`.
    pub(crate) async fn forget(store: &Arc<SlotStore>, model: &ModelName, deadline: Instant) {
        let (store, model) = (Arc::clone(store), model.clone());
        blocking(deadline, move || store.forget(|entry| entry.model == model)).await;
    }

    /// Restores `found` and takes note of it. What cannot be restored is forgotten.
    async fn fill(&self, engine: &dyn Upstream, found: Vec<Entry>, deadline: Instant) {
        let found: Vec<_> = found.into_iter().filter(|entry| entry.slot < self.slots).collect();
        let mut restored = Vec::new();
        let outcome = timeout_at(deadline, restore_all(engine, &found, &mut restored)).await;
        let reason = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("it took longer than {} s", RESTORE.as_secs())),
        };
        if let Some(reason) = reason {
            tracing::warn!(model = %self.model, reason, "a saved slot could not be restored");
            let bad = found
                .iter()
                .map(|entry| entry.file)
                .filter(|file| !restored.contains(file))
                .collect::<Vec<_>>();
            let store = Arc::clone(&self.store);
            blocking(deadline, move || store.forget(|entry| bad.contains(&entry.file))).await;
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
        let deadline = Instant::now() + SAVE;
        self.save_by = Some(deadline);
        let mut saved = Vec::new();
        match timeout_at(deadline, self.save_all(engine, &mut saved)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_unsupported() => {
                self.store.switch_off(&self.model, &error.to_string());
            }
            Ok(Err(error)) => self.store.save_failed(&self.model, &error),
            Err(slow) => self.store.save_failed(&self.model, &slow),
        }
        self.begun.retain(|file| saved.iter().all(|entry| entry.file != *file));
        let store = Arc::clone(&self.store);
        (!saved.is_empty()).then(|| timeout_at(deadline, spawn_blocking(move || store.commit(saved))))
    }

    /// To be called when the engine has ended before its save was over.
    pub(crate) fn save_cut_off(&self, exit: Exit) {
        if !self.store.is_switched_off(&self.model) {
            self.store.save_failed(&self.model, &format!("the engine {exit} meanwhile"));
        }
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
        let Self { store, generation, model, key, begun, save_by, .. } = self;
        store.ended(generation);
        let is_switched_off = store.is_switched_off(&model);
        if is_switched_off || !begun.is_empty() {
            let deadline = save_by.unwrap_or_else(|| Instant::now() + SAVE);
            let tidy_up = move || {
                if is_switched_off {
                    store.keep_switched_off(model, key);
                }
                store.discard(&begun);
            };
            blocking(deadline, tidy_up).await;
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

/// Runs what waits for the disk, and waits for it no longer than until `deadline`; it goes on after that.
async fn blocking(deadline: Instant, work: impl FnOnce() + Send + 'static) {
    if timeout_at(deadline, spawn_blocking(work)).await.is_err() {
        tracing::warn!("the disk of the saved slots is slow, and not waited for any longer");
    }
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
    use gglib_testkit::until;
    use http::{Request, Response};
    use tokio::time::{advance, timeout};

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
        restore(store, engine).await.unwrap()
    }

    async fn restore(store: &Arc<SlotStore>, engine: &Scripted) -> Option<EngineSlots> {
        let launched = Launched {
            generation: Generation(1),
            model: ModelName::new("m"),
            binary: PathBuf::new(),
            file: PathBuf::new(),
            arguments: Vec::new(),
        };
        EngineSlots::restore(store, engine, launched, Instant::now() + RESTORE).await
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
        until("the slot to be forgotten", RESTORE, || store.snapshot().bytes == 0).await;
        assert_eq!(store.snapshot().restored, 0);
    }

    /// A disk that hangs, in the middle of a change of the list, for as long as the sender is kept.
    fn hang(store: &Arc<SlotStore>) -> std::sync::mpsc::Sender<()> {
        let (go_on, gone_on) = std::sync::mpsc::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let store = Arc::clone(store);
        std::thread::spawn(move || {
            store.forget(|_| {
                tell.send(()).unwrap();
                gone_on.recv().is_ok()
            });
        });
        told.recv().unwrap();
        go_on
    }

    /// The clock goes on in steps, since it does not by itself as long as a thread that may block is busy.
    async fn passing<T>(work: impl Future<Output = T>) -> (T, Duration) {
        let began = Instant::now();
        let clock = async {
            loop {
                advance(SAVE / 10).await;
            }
        };
        tokio::select! {
            biased;
            done = work => (done, began.elapsed()),
            () = clock => unreachable!(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_holds_up_a_stop_and_a_load_no_longer_than_the_engine_may() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let engine = Scripted::new(dir.path(), &[Some(Ok(SAVED)), Some(Err(500)), Some(Ok(SAVED)), None]);
        let mut slots = restored(&store, &engine).await;
        save(&mut slots, &engine).await;

        let go_on = hang(&store);
        let stop = async {
            // The engine's second try and the disk share one bound.
            let saved = slots.save(&engine).await.unwrap();
            assert!(saved.await.is_err());
            slots.begun.push(9);
            slots.close().await;
        };
        assert_eq!(passing(timeout(10 * SAVE, stop)).await, (Ok(()), SAVE));
        let (slots, after) = passing(restore(&store, &engine)).await;
        assert!(slots.is_none());
        assert_eq!(after, RESTORE);
        let other = ModelName::new("other");
        let forgotten = EngineSlots::forget(&store, &other, Instant::now() + RESTORE);
        assert_eq!(passing(forgotten).await.1, RESTORE);

        // What was begun is done when the disk goes on.
        drop(go_on);
        until("the second save", SAVE, || store.snapshot().saved == 2).await;
        assert!(restore(&store, &engine).await.is_some());
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
