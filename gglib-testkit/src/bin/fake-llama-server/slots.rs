//! Slots: what was read last in each, and files of it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use gglib_testkit::SlotReply;
use serde_json::{Value, json};
use tokio::time;

use crate::{
    engine::{Engine, nth},
    http::{Request, Response},
    recording,
};

/// The slots of a launch with `--slot-save-path`.
pub(crate) struct Slots {
    directory: PathBuf,
    /// The words of the last prompt of each.
    prompts: Mutex<Vec<Vec<String>>>,
    saves: AtomicUsize,
    restores: AtomicUsize,
}

/// How much of a prompt was there already, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) cached: usize,
    pub(crate) processed: usize,
}

impl Slots {
    pub(crate) fn new(directory: PathBuf, count: usize) -> Self {
        let prompts = Mutex::new(vec![Vec::new(); count]);
        Self { directory, prompts, saves: AtomicUsize::new(0), restores: AtomicUsize::new(0) }
    }

    /// Takes the prompt of a chat request into the slot that has most of it, or else into an empty one.
    pub(crate) fn read(&self, body: &[u8]) -> Counts {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let messages = body["messages"].as_array().into_iter().flatten();
        let contents = messages.filter_map(|message| message["content"].as_str());
        let prompt: Vec<String> = contents.flat_map(str::split_whitespace).map(ToOwned::to_owned).collect();
        let mut prompts = self.prompts();
        let shared = |slot: &Vec<String>| slot.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
        let best = (0..prompts.len()).max_by_key(|slot| (shared(&prompts[*slot]), prompts[*slot].is_empty()));
        let slot = &mut prompts[best.expect("there is a slot")];
        let cached = shared(slot);
        let counts = Counts { cached, processed: prompt.len() - cached };
        *slot = prompt;
        counts
    }

    /// The prompt that is said to have been saved.
    fn save(&self, slot: usize, file: &Path, reply: SlotReply) -> Option<Vec<String>> {
        let prompt = self.prompts()[slot].clone();
        let whole = encode(&prompt);
        let (written, succeeds) = match reply {
            SlotReply::Torn | SlotReply::Die => (&whole[..whole.len() / 2], false),
            SlotReply::Lie => return Some(prompt),
            _ => (&whole[..], true),
        };
        fs::write(file, written).expect("the directory is there");
        succeeds.then_some(prompt)
    }

    /// The prompt that is said to have been restored.
    fn restore(&self, slot: usize, file: &Path, reply: SlotReply) -> Option<Vec<String>> {
        let prompt: Vec<String> = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        if reply != SlotReply::Lie {
            self.prompts()[slot].clone_from(&prompt);
        }
        Some(prompt)
    }

    fn prompts(&self) -> MutexGuard<'_, Vec<Vec<String>>> {
        self.prompts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers `POST /slots/N?action=…`.
pub(crate) async fn answer(engine: &Engine, request: &Request) -> Response {
    let Some(slots) = &engine.saved_slots else { return Response::error(recording::NOT_SUPPORTED) };
    let number = request.path.rsplit('/').next().and_then(|number| number.parse::<usize>().ok());
    // As in the real engine, a number that is too large means another slot.
    let slot = number.unwrap_or_default() % slots.prompts().len();
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let file = slots.directory.join(body["filename"].as_str().unwrap_or_default());
    let saves = request.query == "action=save";
    let script = &engine.launch.slots;
    let (replies, done) =
        if saves { (&script.saves, &slots.saves) } else { (&script.restores, &slots.restores) };
    let reply = nth(replies, done.fetch_add(1, Ordering::SeqCst) + 1).unwrap_or_default();
    match reply {
        SlotReply::Late(duration) => time::sleep(duration).await,
        SlotReply::Status(status) => return error(status, "Unable to save or restore slot"),
        _ => {}
    }
    let prompt = if saves { slots.save(slot, &file, reply) } else { slots.restore(slot, &file, reply) };
    match prompt {
        _ if reply == SlotReply::Die => engine.die(),
        Some(prompt) if saves => {
            ok(&json!({ "id_slot": slot, "n_saved": prompt.len(), "n_written": encode(&prompt).len() }))
        }
        Some(prompt) => {
            ok(&json!({ "id_slot": slot, "n_restored": prompt.len(), "n_read": encode(&prompt).len() }))
        }
        None if saves => error(500, "Unable to save slot"),
        None => {
            error(400, "Unable to restore slot: No available space in KV cache or invalid slot save file")
        }
    }
}

fn encode(prompt: &[String]) -> Vec<u8> {
    serde_json::to_vec(prompt).expect("words are JSON")
}

fn ok(body: &Value) -> Response {
    Response::ok(body.to_string())
}

fn error(status: u16, message: &str) -> Response {
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    let body = json!({ "error": { "code": status, "message": message, "type": kind } });
    Response { status, body: body.to_string() }
}
