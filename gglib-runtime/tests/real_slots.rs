//! Conversations over swaps, with the real engine and two models of which one fits. SmolLM2 keeps its whole context
//! and can be restored; Gemma 3 slides a window over it, so that this build of the engine restores it in word only.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gglib_core::api::chunk::{Frame, StreamState};
use gglib_core::model::ModelName;
use gglib_core::slots::{Conversation, PromptCounts, SlotWitness, SlotsSnapshot};
use gglib_core::sse::{Decoder, SseEvent};
use gglib_runtime::admission::Pool;
use gglib_runtime::slots::SlotStore;
use gglib_testkit::engines::{Enter, only_engine};
use gglib_testkit::{Engines, real, until};
use http::Request;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
const BUDGET: u64 = 1 << 30;
const A: &str = "smollm2";
const B: &str = "gemma3";

/// Two models of which one fits, with their slots in a directory.
struct Machine {
    pool: Arc<Pool>,
    slots: Arc<SlotStore>,
}

impl Machine {
    async fn start(dir: &Path) -> Self {
        // The last run's lock is shared for a moment by what another test is about to start.
        let mut opened = None;
        until("the directory to be free", SOON, || {
            opened = SlotStore::open(dir, BUDGET).ok();
            opened.is_some()
        })
        .await;
        let slots = Arc::new(opened.unwrap());
        let mut engines = Engines::real().model(A, &real::smollm2(), 1, real::one_thread()).model(
            B,
            &real::gemma3(),
            1,
            real::one_thread(),
        );
        engines.slots = Some(Arc::clone(&slots));
        Self { pool: engines.start(), slots }
    }

    /// One turn of a conversation, told to the witness as the proxy tells it. Adds the answer to `messages`.
    async fn turn(&self, model: &'static str, messages: &mut Vec<Value>) -> PromptCounts {
        let lease = self.pool.lease(ModelName::new(model)).await.unwrap();
        let body = json!({ "messages": messages, "max_tokens": 8, "temperature": 0, "stream": true });
        let body = Bytes::from(body.to_string());
        self.slots.asked(lease.generation());
        let request = Request::post("/v1/chat/completions").body(body.clone()).unwrap();
        let mut answer = lease.upstream().send(request).await.unwrap().into_body();
        let (mut events, mut state) = (Decoder::default(), StreamState::new(1));
        let (mut counts, mut text) = (None, String::new());
        while let Some(bytes) = answer.next().await {
            events.push(bytes.unwrap());
            while let Some(event) = events.next_event() {
                let SseEvent::Message { data, .. } = event.unwrap() else { continue };
                let Frame::Chunk(probe) = state.observe(&data).unwrap() else { continue };
                counts = probe.counts.or(counts);
                let chunk: Value = serde_json::from_slice(&data).unwrap();
                text += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            }
        }
        state.end().unwrap();
        self.slots.answered(lease.generation(), Conversation::of(&body).as_ref(), counts.unwrap());
        messages.push(json!({ "role": "assistant", "content": text }));
        counts.unwrap()
    }

    async fn swap_to(&self, model: &'static str) {
        self.turn(model, &mut vec![user("Hi")]).await;
    }

    async fn pid(&self) -> u32 {
        only_engine(&*self.pool).await.pid.unwrap()
    }

    async fn stop(self) {
        self.pool.shut_down(SOON).await;
    }

    fn seen(&self) -> SlotsSnapshot {
        self.slots.snapshot()
    }
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// A question of about this many tokens.
fn question(tokens: usize) -> Value {
    let words = ["river", "stone", "light", "green", "walks", "seven", "house", "under", "music", "paper"];
    let text: Vec<_> = (0..tokens).map(|n| words[(n * n + n / 7) % words.len()]).collect();
    user(&format!("Remember this: {}.", text.join(" ")))
}

#[track_caller]
fn assert_kept(counts: PromptCounts) {
    let PromptCounts { prompt_tokens, cached_tokens } = counts;
    assert!(prompt_tokens > 1400, "{counts:?}");
    let read_again = prompt_tokens - cached_tokens;
    assert!(read_again * 10 < prompt_tokens, "{counts:?}");
}

#[tokio::test]
async fn a_conversation_survives_a_swap_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path()).await;
    let mut messages = vec![question(1450)];
    let first = machine.turn(A, &mut messages).await;
    assert!(first.cached_tokens < 100, "{first:?}");
    let pid = machine.pid().await;

    machine.swap_to(B).await;
    messages.push(user("And now?"));
    let second = machine.turn(A, &mut messages).await;
    assert_ne!(machine.pid().await, pid);
    assert_kept(second);
    let seen = machine.seen();
    assert_eq!((seen.verified, seen.failed_saves, seen.switched_off.len()), (1, 0, 0), "{seen:?}");

    machine.stop().await;
    let machine = Machine::start(dir.path()).await;
    messages.push(user("Still there?"));
    assert_kept(machine.turn(A, &mut messages).await);
    machine.stop().await;
}

#[tokio::test]
async fn a_restore_that_lies_is_switched_off_for_its_model_alone() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path()).await;
    let mut messages = vec![question(300)];
    machine.turn(B, &mut messages).await;
    machine.swap_to(A).await;
    messages.push(user("And now?"));
    let lied = machine.turn(B, &mut messages).await;
    assert_eq!(lied.cached_tokens, 0);
    assert_eq!(machine.seen().switched_off, [ModelName::new(B)]);
    // Nothing of it is saved, kept or restored any more; of the other model it is.
    let saved = machine.seen().saved;
    machine.swap_to(A).await;
    assert_eq!(machine.seen().saved, saved);
    machine.swap_to(B).await;
    let seen = machine.seen();
    assert_eq!((seen.saved, seen.restored), (saved + 1, saved), "{seen:?}");
    machine.stop().await;
}

/// A file-size limit is the death of an engine that writes too much: what it was writing is torn.
#[tokio::test]
async fn with_no_room_on_the_disk_the_save_fails_and_the_swap_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (slots_dir, program) = (dir.path().join("slots"), dir.path().join("llama-server"));
    let limited = format!("#!/bin/sh\nulimit -f 2000\nexec '{}' \"$@\"\n", real::engine().display());
    std::fs::write(&program, limited).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let slots = Arc::new(SlotStore::open(&slots_dir, BUDGET).unwrap());
    let mut engines = Engines::of(program).model(A, &real::smollm2(), 1, real::one_thread()).model(
        B,
        &real::gemma3(),
        1,
        real::one_thread(),
    );
    engines.slots = Some(Arc::clone(&slots));
    let machine = Machine { pool: engines.start(), slots };
    let mut messages = vec![question(300)];
    machine.turn(A, &mut messages).await;
    machine.swap_to(B).await;
    let seen = machine.seen();
    assert_eq!((seen.saved, seen.failed_saves, seen.bytes), (0, 1, 0), "{seen:?}");
    let files: Vec<_> =
        std::fs::read_dir(&slots_dir).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["lock"]);
    messages.push(user("And now?"));
    let again = machine.turn(A, &mut messages).await;
    assert_eq!(again.cached_tokens, 0);
    machine.stop().await;
}
