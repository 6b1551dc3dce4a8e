//! A panic in the task of an engine, as from a writer of the log.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gglib_core::admission::Refusal;
use gglib_core::model::ModelName;
use gglib_runtime::admission::Pool;
use gglib_testkit::engines::{Enter, engine_pid, is_running, parent_of, signal, snapshot, until_snapshot};
use gglib_testkit::{Engines, Entry, Script, Scripted, until};
use rustix::process::Signal;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};

const BOUND: Duration = Duration::from_secs(20);

/// A log that panics over the first message that begins so.
struct Panicking {
    message: &'static str,
    seen: Arc<AtomicUsize>,
    /// What is done just before.
    before: Box<dyn Fn() + Send + Sync>,
}

impl Panicking {
    fn at(message: &'static str, seen: &Arc<AtomicUsize>) -> Self {
        Self { message, seen: Arc::clone(seen), before: Box::new(|| ()) }
    }
}

impl Subscriber for Panicking {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Message(String::new());
        event.record(&mut text);
        if text.0.starts_with(self.message) {
            let is_first = self.seen.fetch_add(1, Ordering::SeqCst) == 0;
            if is_first {
                (self.before)();
            }
            assert!(!is_first, "the log cannot be written");
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// The guard of the engine of `script`, and the directory of the sockets.
fn surroundings(script: &Scripted) -> (u32, PathBuf) {
    let launched = script.log().entries.into_iter().find_map(|entry| match entry {
        Entry::Launched { pid, args, .. } => Some((pid, args)),
        _ => None,
    });
    let (pid, args) = launched.unwrap();
    let socket = args.iter().skip_while(|arg| *arg != "--host").nth(1).unwrap();
    (parent_of(pid), Path::new(socket).parent().unwrap().to_owned())
}

fn pool(script: &Scripted) -> Arc<Pool> {
    Engines::fake().scripted("a", script).start()
}

#[tokio::test]
async fn a_load_whose_task_panics_has_failed() {
    let script = Arc::new(Script::default().place());
    let (seen, found) = (Arc::default(), Arc::new(OnceLock::new()));
    let before: Box<dyn Fn() + Send + Sync> = {
        let (script, found) = (Arc::clone(&script), Arc::clone(&found));
        Box::new(move || found.set(surroundings(&script)).unwrap())
    };
    let log = tracing::subscriber::set_default(Panicking { before, ..Panicking::at("engine ready", &seen) });
    let pool = pool(&script);
    let refused = tokio::time::timeout(BOUND, pool.lease(ModelName::new("a"))).await.expect("it ends");
    let Err(Refusal::LoadFailed { reason }) = refused else { panic!("it is refused") };
    assert!(reason.contains("the task that was loading it has failed"), "{reason}");
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    assert_eq!(snapshot(&*pool).await.engines, []);
    // Its guard ends, and leaves the directory alone: we are still there.
    let (guard, sockets) = found.get().unwrap();
    until("the end of the guard", BOUND, || !is_running(*guard)).await;
    assert!(sockets.exists());
    // The next one is a load like any other.
    drop(pool.lease(ModelName::new("a")).await.unwrap());
    assert_eq!(seen.load(Ordering::SeqCst), 2);
    pool.shut_down(BOUND).await;
    drop(log);
}

#[tokio::test]
async fn a_look_that_panics_holds_nobody_up() {
    let [missing, preloaded] = [(); 2].map(|()| Script::default().place());
    std::fs::remove_file(missing.model()).unwrap();
    let seen = Arc::default();
    let message = "this model cannot be loaded";
    let log = tracing::subscriber::set_default(Panicking::at(message, &seen));
    let engines = Engines::fake().scripted("a", &missing).scripted("b", &preloaded);
    let pool = engines.with("b", |model| model.preload = true).start();
    // The look at the start panics over the first model, and goes on to what it has to do.
    let loaded = |state: &gglib_core::admission::Snapshot| state.engines.len() == 1;
    until_snapshot(&*pool, "the preload", BOUND, loaded).await;
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    let refused = tokio::time::timeout(BOUND, pool.lease(ModelName::new("a"))).await.expect("it ends");
    assert!(matches!(refused, Err(Refusal::LoadFailed { .. })));
    pool.shut_down(BOUND).await;
    drop(log);
}

#[tokio::test]
async fn an_engine_whose_task_panics_has_ended() {
    let script = Script::default().place();
    let seen = Arc::default();
    let log = tracing::subscriber::set_default(Panicking::at("engine was killed", &seen));
    let pool = pool(&script);
    drop(pool.lease(ModelName::new("a")).await.unwrap());
    let pid = engine_pid(&*pool).await;
    signal(pid, Signal::KILL);
    until("the panic", BOUND, || seen.load(Ordering::SeqCst) == 1).await;
    until_snapshot(&*pool, "the end of the engine", BOUND, |state| state.engines.is_empty()).await;
    assert!(!is_running(pid));
    drop(pool.lease(ModelName::new("a")).await.unwrap());
    pool.shut_down(BOUND).await;
    drop(log);
}
