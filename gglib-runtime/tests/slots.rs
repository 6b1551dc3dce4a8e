//! Slots over swaps, restarts and faults, with two fake models of which one fits.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::api::chunk::Probe;
use gglib_core::model::ModelName;
use gglib_core::slots::{Conversation, PromptCounts, SlotWitness, SlotsSnapshot, file_number};
use gglib_core::sse::{Decoder, SseEvent};
use gglib_runtime::admission::Pool;
use gglib_runtime::slots::{OpenError, SlotStore};
use gglib_testkit::engines::{Enter, engine_pid, is_running, only_engine, signal, snapshot, until_snapshot};
use gglib_testkit::{Engines, Launch, Script, Scripted, SlotReply, SlotScript, until};
use http::Request;
use rustix::process::Signal;

const BOUND: Duration = Duration::from_secs(20);
const BUDGET: u64 = 1 << 20;
/// The first turn of a conversation: six tokens.
const TALK: &str = r#"{"content":"one two three four five six"}"#;
/// Its second turn.
const MORE: &str = r#"{"content":"one two three four five six"},{"content":"seven"}"#;
const OTHER: &str = r#"{"content":"something else"}"#;
const CACHED: PromptCounts = PromptCounts { prompt_tokens: 7, cached_tokens: 6 };
const READ_AGAIN: PromptCounts = PromptCounts { prompt_tokens: 7, cached_tokens: 0 };

/// What outlives a run of gglib: the disk, and the models' scripts.
struct Disk {
    dir: tempfile::TempDir,
    a: Scripted,
    b: Scripted,
    budget: u64,
}

/// One run of gglib.
struct Run {
    pool: Arc<Pool>,
    slots: Arc<SlotStore>,
}

impl Disk {
    fn healthy() -> Self {
        Self::with(SlotScript::default())
    }

    /// The launches of `a` do with their slots what the script says.
    fn with(slots: SlotScript) -> Self {
        Self::scripted(vec![Launch { slots, ..Launch::default() }])
    }

    fn scripted(launches: Vec<Launch>) -> Self {
        let a = Script { launches }.place();
        let b = Script::default().place();
        Self { dir: tempfile::tempdir().unwrap(), a, b, budget: BUDGET }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("slots")
    }

    async fn run(&self) -> Run {
        self.run_with(|engines| engines).await
    }

    async fn run_with(&self, change: impl FnOnce(Engines) -> Engines) -> Run {
        let slots = Arc::new(self.store().await);
        let mut engines = change(Engines::fake().scripted("a", &self.a).scripted("b", &self.b));
        engines.slots = Some(Arc::clone(&slots));
        Run { pool: engines.start(), slots }
    }

    /// The store, once the last run has let go of it: a process that another test is about to start shares our
    /// files, and the lock with them, until it has become its program.
    async fn store(&self) -> SlotStore {
        let mut opened = None;
        until("the directory to be free", BOUND, || {
            opened = match SlotStore::open(&self.path(), self.budget) {
                Err(OpenError::InUse { .. }) => None,
                other => Some(other.unwrap()),
            };
            opened.is_some()
        })
        .await;
        opened.unwrap()
    }

    /// The names in the directory, in order.
    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.path()).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn saved_files(&self) -> Vec<String> {
        self.files().into_iter().filter(|name| file_number(name).is_some()).collect()
    }
}

impl Run {
    /// One turn, told to the witness as the proxy tells it.
    async fn turn(&self, model: &'static str, messages: &str) -> PromptCounts {
        let lease = self.pool.lease(ModelName::new(model)).await.unwrap();
        let body = Bytes::from(format!("{{\"messages\":[{messages}],\"stream\":true}}"));
        self.slots.asked(lease.generation());
        let request = Request::post("/v1/chat/completions").body(body.clone()).unwrap();
        let mut answer = lease.upstream().send(request).await.unwrap().into_body();
        let (mut events, mut counts) = (Decoder::default(), None);
        while let Some(bytes) = answer.next().await {
            events.push(bytes.unwrap());
            while let Some(event) = events.next_event() {
                if let SseEvent::Message { data, .. } = event.unwrap()
                    && let Ok(probe) = Probe::parse(&data)
                {
                    counts = probe.counts.or(counts);
                }
            }
        }
        self.slots.answered(lease.generation(), Conversation::of(&body).as_ref(), counts.unwrap());
        counts.unwrap()
    }

    /// Another model has its turn.
    async fn swap(&self) {
        self.turn("b", OTHER).await;
    }

    fn seen(&self) -> SlotsSnapshot {
        self.slots.snapshot()
    }

    async fn stop(self) {
        self.pool.shut_down(BOUND).await;
        // Each engine's task holds the store, and with it the directory, until it is through.
        until("the engines' tasks to end", BOUND, || Arc::strong_count(&self.slots) == 1).await;
    }
}

#[tokio::test]
async fn a_conversation_survives_swaps_and_is_proved_to() {
    let disk = Disk::healthy();
    let run = disk.run().await;
    assert_eq!(run.turn("a", TALK).await.cached_tokens, 0);
    run.swap().await;
    assert_eq!(run.turn("a", MORE).await, CACHED);
    let seen = run.seen();
    assert_eq!((seen.saved, seen.restored, seen.verified, seen.failed_saves), (2, 1, 1, 0));
    run.stop().await;
    assert_eq!(disk.a.log().slot_restores(), 1);
}

#[tokio::test]
async fn it_survives_a_restart_and_nobody_else_can_read_it() {
    let disk = Disk::healthy();
    let run = disk.run().await;
    run.turn("a", TALK).await;
    run.stop().await;
    assert_eq!(disk.files(), ["0.kv", "lock", "manifest.json"]);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(disk.path()), 0o700);
    assert_eq!(mode(disk.path().join("0.kv")), 0o600);
    assert_eq!(mode(disk.path().join("manifest.json")), 0o600);
    let run = disk.run().await;
    assert_eq!(run.turn("a", MORE).await, CACHED);
    assert_eq!(run.seen().verified, 1);
    run.stop().await;
    // The newer save has taken the place of the older one.
    assert_eq!(disk.files(), ["1.kv", "lock", "manifest.json"]);
}

#[tokio::test]
async fn with_several_slots_each_conversation_is_kept() {
    let disk = Disk::healthy();
    let parallel = |engines: Engines| engines.with("a", |spec| spec.parallel = 2);
    let run = disk.run_with(parallel).await;
    run.turn("a", TALK).await;
    run.turn("a", OTHER).await;
    run.stop().await;
    let run = disk.run_with(parallel).await;
    assert_eq!(run.turn("a", MORE).await, CACHED);
    assert_eq!(run.turn("a", OTHER).await.cached_tokens, 2);
    run.stop().await;
}

/// The last conversation was in the slot that the budget took, which must not be held against the engine.
#[tokio::test]
async fn with_one_of_several_slots_missing_nobody_is_accused() {
    let mut disk = Disk::healthy();
    let parallel = |engines: Engines| engines.with("a", |spec| spec.parallel = 2);
    disk.budget = 60;
    let run = disk.run_with(parallel).await;
    run.turn("a", OTHER).await;
    run.turn("a", TALK).await;
    run.stop().await;
    assert_eq!(disk.saved_files().len(), 1);
    let run = disk.run_with(parallel).await;
    assert_eq!(run.turn("a", MORE).await, READ_AGAIN);
    assert_eq!((run.seen().restored, run.seen().switched_off), (1, Vec::new()));
    run.stop().await;
}

#[tokio::test]
async fn what_depends_on_something_that_has_changed_is_not_restored() {
    type Change = fn(&Disk, Engines) -> Engines;
    let changes: [(&str, Change); 4] = [
        ("the context", |_, engines| engines.with("a", |spec| spec.context = Some(1024))),
        ("an argument", |_, engines| {
            engines.with("a", |spec| spec.args.push("--cache-type-k=q8_0".to_owned()))
        }),
        ("the model", |disk, engines| {
            fs::write(disk.a.model(), "GGUF and more").unwrap();
            engines
        }),
        ("the engine", |disk, mut engines| {
            let other = disk.dir.path().join("llama-server");
            fs::copy(&engines.launch.binary, &other).unwrap();
            engines.launch.binary = other;
            engines
        }),
    ];
    for (what, change) in changes {
        let disk = Disk::healthy();
        let run = disk.run().await;
        run.turn("a", TALK).await;
        run.stop().await;
        let run = disk.run_with(|engines| change(&disk, engines)).await;
        assert_eq!(run.turn("a", MORE).await, READ_AGAIN, "{what}");
        assert_eq!(disk.a.log().slot_restores(), 0, "{what}");
        run.stop().await;
    }
}

#[tokio::test]
async fn a_restore_that_lies_is_found_out_by_the_next_turn_and_switched_off() {
    let disk = Disk::with(SlotScript { restores: vec![SlotReply::Lie], ..SlotScript::default() });
    let run = disk.run().await;
    run.turn("a", TALK).await;
    run.swap().await;
    assert_eq!(run.turn("a", MORE).await, READ_AGAIN);
    assert_eq!(run.seen().switched_off, [ModelName::new("a")]);
    run.swap().await;
    run.turn("a", MORE).await;
    run.stop().await;
    let log = disk.a.log();
    assert_eq!((log.slot_saves(), log.slot_restores()), (1, 1));
    // What was saved of it is gone; the other model's is there.
    assert_eq!(disk.saved_files().len(), 1);
}

#[tokio::test]
async fn what_was_switched_off_stays_so_over_a_restart_and_is_tried_again_with_another_file() {
    let disk = Disk::with(SlotScript { restores: vec![SlotReply::Lie], ..SlotScript::default() });
    let run = disk.run().await;
    run.turn("a", TALK).await;
    run.swap().await;
    run.turn("a", MORE).await;
    run.stop().await;

    let run = disk.run().await;
    assert_eq!(run.seen().switched_off, [ModelName::new("a")], "also before it is loaded");
    run.turn("a", TALK).await;
    run.swap().await;
    run.turn("a", MORE).await;
    assert_eq!(run.seen().switched_off, [ModelName::new("a")]);
    run.stop().await;
    assert_eq!((disk.a.log().slot_saves(), disk.a.log().slot_restores()), (1, 1));

    fs::write(disk.a.model(), "GGUF and more").unwrap();
    let run = disk.run().await;
    run.turn("a", TALK).await;
    assert_eq!(run.seen().switched_off, []);
    run.swap().await;
    run.turn("a", MORE).await;
    assert_eq!((disk.a.log().slot_saves(), disk.a.log().slot_restores()), (2, 2));
    run.stop().await;
}

#[tokio::test]
async fn another_conversation_after_a_restore_proves_nothing_against_it() {
    let disk = Disk::healthy();
    let run = disk.run().await;
    for _ in 0..3 {
        run.turn("a", TALK).await;
        run.swap().await;
        assert_eq!(run.turn("a", r#"{"content":"unrelated"}"#).await.cached_tokens, 0);
    }
    assert_eq!(run.seen().switched_off, []);
    run.stop().await;
}

#[tokio::test]
async fn a_save_that_fails_once_is_tried_a_second_time_and_no_third() {
    let saves = |saves: &[SlotReply]| SlotScript { saves: saves.to_vec(), ..SlotScript::default() };
    let (fails, works, refuses) = (SlotReply::Status(500), SlotReply::Works, SlotReply::Status(400));
    for (replies, asked, kept, failed) in [
        (vec![fails, works], 2, true, 0),
        (vec![SlotReply::Torn, works], 2, true, 0),
        (vec![fails, fails, works], 2, false, 1),
        (vec![SlotReply::Torn, SlotReply::Torn, works], 2, false, 1),
        // Refusals stay what they are.
        (vec![refuses, works], 1, false, 1),
        // One that cannot is no failure.
        (vec![SlotReply::Status(501), works], 1, false, 0),
        // The engine says that it has written what is not there.
        (vec![SlotReply::Lie], 1, false, 1),
        // It dies over it; there is nobody left to ask.
        (vec![SlotReply::Die], 1, false, 1),
    ] {
        let disk = Disk::with(saves(&replies));
        let run = disk.run().await;
        run.turn("a", TALK).await;
        run.pool.shut_down(BOUND).await;
        assert_eq!(disk.a.log().slot_saves(), asked, "{replies:?}");
        assert_eq!((run.seen().saved == 1, disk.saved_files().len() == 1), (kept, kept), "{replies:?}");
        assert_eq!(run.seen().failed_saves, failed, "{replies:?}");
        run.stop().await;
        // Torn or whole, the next run takes only what is whole.
        let run = disk.run().await;
        assert_eq!(run.turn("a", MORE).await, if kept { CACHED } else { READ_AGAIN }, "{replies:?}");
        run.stop().await;
    }
}

#[tokio::test]
async fn an_engine_that_cannot_save_slots_is_asked_no_more() {
    let disk = Disk::with(SlotScript { saves: vec![SlotReply::Status(501)], ..SlotScript::default() });
    let run = disk.run().await;
    for _ in 0..2 {
        run.turn("a", TALK).await;
        run.swap().await;
    }
    assert_eq!(run.seen().switched_off, [ModelName::new("a")]);
    assert_eq!(disk.a.log().slot_saves(), 1);
    run.stop().await;
}

#[tokio::test]
async fn after_a_failed_save_the_older_one_stands() {
    let saves = vec![SlotReply::Works, SlotReply::Status(400)];
    let launch = |save| Launch {
        slots: SlotScript { saves: vec![save], ..SlotScript::default() },
        ..Launch::default()
    };
    let disk = Disk::scripted(saves.into_iter().map(launch).collect());
    let run = disk.run().await;
    run.turn("a", TALK).await;
    run.swap().await;
    run.turn("a", MORE).await;
    run.swap().await;
    assert_eq!(run.seen().failed_saves, 1);
    assert_eq!(run.turn("a", MORE).await, CACHED);
    assert_eq!(run.seen().switched_off, []);
    run.stop().await;
}

#[tokio::test]
async fn a_crash_saves_nothing_and_an_immediate_stop_does_not_wait() {
    let late = SlotReply::Late(Duration::from_secs(600));
    let disk = Disk::with(SlotScript { saves: vec![late], ..SlotScript::default() });
    let run = disk.run().await;
    run.turn("a", TALK).await;
    signal(engine_pid(&*run.pool).await, Signal::KILL);
    until_snapshot(&*run.pool, "the crash to be seen", BOUND, |state| state.engines.is_empty()).await;
    run.turn("a", TALK).await;
    assert_eq!(disk.a.log().slot_saves(), 0);
    // The bound of the shutdown is shorter than that of the save.
    let pid = only_engine(&*run.pool).await.pid.unwrap();
    run.pool.shut_down(Duration::from_secs(3)).await;
    assert!(!is_running(pid));
    assert_eq!(disk.a.log().slot_saves(), 1);
    assert_eq!(disk.saved_files(), [""; 0]);
}

#[tokio::test]
async fn a_restore_that_fails_or_kills_costs_no_more_than_the_conversation() {
    let restores = |restore| SlotScript { restores: vec![restore], ..SlotScript::default() };
    for restore in [SlotReply::Status(400), SlotReply::Status(500)] {
        let disk = Disk::with(restores(restore));
        let run = disk.run().await;
        run.turn("a", TALK).await;
        run.swap().await;
        assert_eq!(run.turn("a", MORE).await, READ_AGAIN);
        assert_eq!(disk.a.log().slot_restores(), 1);
        assert_eq!(run.seen().switched_off, []);
        run.stop().await;
    }
    let disk = Disk::with(restores(SlotReply::Die));
    let run = disk.run().await;
    run.turn("a", TALK).await;
    run.swap().await;
    // Killed while loading, it may have died of memory, so that a second load follows; that one restores nothing.
    assert_eq!(run.turn("a", MORE).await, READ_AGAIN);
    assert_eq!(disk.a.log().slot_restores(), 1);
    // No request has met the engine that died of it.
    assert_eq!(snapshot(&*run.pool).await.totals.crashes, 0);
    run.stop().await;
}

#[tokio::test]
async fn a_restore_is_over_before_anybody_is_served() {
    let late = SlotReply::Late(Duration::from_millis(700));
    let disk = Disk::with(SlotScript { restores: vec![late], ..SlotScript::default() });
    let run = disk.run().await;
    run.turn("a", TALK).await;
    run.swap().await;
    assert_eq!(run.turn("a", MORE).await, CACHED);
    assert_eq!(snapshot(&*run.pool).await.totals.loads, 3);
    run.stop().await;
}

#[tokio::test]
async fn torn_foreign_and_left_over_files_are_removed_and_never_restored() {
    type Damage = fn(&Disk);
    let damages: [(&str, Damage); 4] = [
        ("a torn manifest", |disk| {
            let path = disk.path().join("manifest.json");
            let whole = fs::read(&path).unwrap();
            fs::write(path, &whole[..whole.len() / 2]).unwrap();
        }),
        ("a foreign manifest", |disk| {
            fs::write(disk.path().join("manifest.json"), r#"{"version":99,"entries":[]}"#).unwrap();
        }),
        ("a missing manifest", |disk| fs::remove_file(disk.path().join("manifest.json")).unwrap()),
        ("a torn slot", |disk| {
            let path = disk.path().join("0.kv");
            let whole = fs::read(&path).unwrap();
            fs::write(path, &whole[..whole.len() / 2]).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let disk = Disk::healthy();
        let run = disk.run().await;
        run.turn("a", TALK).await;
        run.stop().await;
        damage(&disk);
        fs::write(disk.path().join("77.kv"), "left by a crash").unwrap();
        fs::write(disk.path().join("manifest.json.new"), "{").unwrap();
        fs::write(disk.path().join("notes.txt"), "somebody else's").unwrap();
        let run = disk.run().await;
        assert_eq!(disk.saved_files(), [""; 0], "{what}");
        assert!(disk.files().contains(&"notes.txt".to_owned()));
        assert_eq!(run.turn("a", MORE).await, READ_AGAIN, "{what}");
        run.stop().await;
        assert_eq!(disk.saved_files().len(), 1, "{what}");
    }
}

#[tokio::test]
async fn the_budget_is_kept_and_the_oldest_goes() {
    let mut disk = Disk::healthy();
    // Room for one of the two.
    disk.budget = 60;
    let run = disk.run().await;
    run.turn("a", TALK).await;
    run.swap().await;
    run.pool.shut_down(BOUND).await;
    assert_eq!(run.seen().saved, 2);
    assert_eq!(disk.saved_files(), ["1.kv"]);
    assert!(run.seen().bytes <= 60);
    run.stop().await;
    // It has become smaller than what is there.
    disk.budget = 10;
    drop(disk.run().await);
    assert_eq!(disk.saved_files(), [""; 0]);
    // What does not fit at all is not kept, and said to have failed.
    let run = disk.run().await;
    run.turn("a", TALK).await;
    run.swap().await;
    assert_eq!((run.seen().saved, run.seen().failed_saves, run.seen().bytes), (0, 1, 0));
    assert_eq!(disk.saved_files(), [""; 0]);
    run.stop().await;
}

#[tokio::test]
async fn one_directory_serves_one_process_and_a_model_may_save_for_itself() {
    let disk = Disk::healthy();
    let own = disk.dir.path().join("own");
    fs::create_dir(&own).unwrap();
    let run = disk
        .run_with(|engines| {
            let args = ["--slot-save-path".to_owned(), own.display().to_string()];
            engines.with("a", |spec| spec.args.extend(args))
        })
        .await;
    assert!(matches!(SlotStore::open(&disk.path(), BUDGET), Err(OpenError::InUse { .. })));
    run.turn("a", TALK).await;
    run.stop().await;
    assert_eq!(disk.a.log().slot_saves(), 0);
    disk.store().await;
}
