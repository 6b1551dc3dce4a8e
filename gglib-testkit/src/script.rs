//! What the fake engine is told to do.

mod log;
mod slots;

use std::{ffi::OsString, fs, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::{
    log::{Entry, Log},
    slots::{SlotReply, SlotScript},
};

/// Names the script's file for the fake engine.
pub const SCRIPT_ENV_VAR: &str = "FAKE_ENGINE_SCRIPT";
/// The same as an argument, which wins over the variable: several fakes in one environment can differ.
pub const SCRIPT_FLAG: &str = "--fake-script";

/// What each launch of the fake engine does. Without a script, and as [`Launch::default`], it is healthy.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Script {
    /// The nth launch takes the nth; the last repeats. None means that every launch is healthy.
    pub launches: Vec<Launch>,
}

impl Script {
    /// A script of a single launch, which repeats.
    pub fn always(launch: Launch) -> Self {
        Self { launches: vec![launch] }
    }

    /// Writes the script to a directory of its own, in which its log will grow.
    pub fn place(&self) -> Scripted {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let scripted = Scripted { directory };
        let json = serde_json::to_vec_pretty(self).expect("a script is JSON");
        fs::write(scripted.path(), json).expect("the script can be written");
        fs::write(scripted.model(), "GGUF").expect("a model file can be written");
        scripted
    }
}

/// A script on disk, with the log of what the fake engine did. Deleted when dropped.
#[derive(Debug)]
pub struct Scripted {
    directory: tempfile::TempDir,
}

impl Scripted {
    /// Arguments that make the fake engine follow this script, to be added to its others.
    pub fn args(&self) -> Vec<String> {
        let path =
            self.path().into_os_string().into_string().expect("temporary directories have UTF-8 names");
        vec![SCRIPT_FLAG.to_owned(), path]
    }

    /// The environment variable that does the same.
    pub fn env(&self) -> (&'static str, OsString) {
        (SCRIPT_ENV_VAR, self.path().into_os_string())
    }

    /// The file of a model for this script's engine, which only has to look like one.
    pub fn model(&self) -> PathBuf {
        self.directory.path().join("model.gguf")
    }

    /// What happened so far in all launches.
    pub fn log(&self) -> Log {
        Log::read(&Log::beside(&self.path()))
    }

    /// Waits until the log fulfils `condition` and returns it; see [`until`](crate::until).
    ///
    /// # Panics
    /// After `bound`, naming `what` was waited for.
    pub async fn until(&self, what: &str, bound: Duration, condition: impl Fn(&Log) -> bool) -> Log {
        crate::until(what, bound, || condition(&self.log())).await;
        self.log()
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("script.json")
    }
}

/// One launch. `Launch::default()` loads at once, answers every request, and behaves like the real engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Launch {
    /// Lines for standard error, printed first thing: before a death, they are its last words.
    pub stderr: Vec<String>,
    /// Time before it listens. Its address is known from [`Entry::Launched`] and free for others until then.
    pub binds_after: Duration,
    /// How loading goes. Until it is over everything is answered with 503 "Loading model".
    pub load: Load,
    /// Prints a line of progress this often while it loads.
    pub load_line_every: Option<Duration>,
    /// Where the launch dies, if not in an answer ([`Fault::DieAfter`]).
    pub death: Option<Death>,
    /// How it dies, wherever it does.
    pub end: End,
    /// SIGTERM does nothing.
    pub ignores_sigterm: bool,
    /// Starts a child in the same process group that holds standard output and error open and does not end.
    pub leaves_grandchild: bool,
    /// Answers every `POST` with an error of this status, "Compute error.", while `/health` stays as it is.
    pub fails_with: Option<u16>,
    /// Statuses of `/health` once loaded; the nth is taken by the nth question, the last repeats. None means 200.
    pub health: Vec<u16>,
    /// Answers to requests that are in order, for chats and else; the nth is taken by the nth of this launch, the last repeats.
    pub replies: Vec<Reply>,
    /// What it says of its chat template.
    pub template: Template,
    /// Closes a connection that has been idle for this long. The real engine: 5 s.
    pub idle_close: Duration,
    /// Once: when a second request arrives on a connection, closes it without an answer, as if it had just been
    /// found idle for too long.
    pub drops_reused_connection: bool,
    /// Sends a comment when a stream has been silent for this long, instead of what `--sse-ping-interval` says.
    pub ping_every: Option<Duration>,
    /// What happens to slots that are saved and restored.
    pub slots: SlotScript,
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            stderr: Vec::new(),
            binds_after: Duration::ZERO,
            load: Load::Takes(Duration::ZERO),
            load_line_every: None,
            death: None,
            end: End::Kill,
            ignores_sigterm: false,
            leaves_grandchild: false,
            fails_with: None,
            health: vec![200],
            replies: vec![Reply::default()],
            template: Template::WithoutTools,
            idle_close: Duration::from_secs(5),
            drops_reused_connection: false,
            ping_every: None,
            slots: SlotScript::default(),
        }
    }
}

/// What a chat template knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Template {
    /// Nothing of tools: the engine ignores them, as it does for SmolLM2's own.
    WithoutTools,
    /// Tools.
    WithTools,
}

/// How loading goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Load {
    /// It takes this long.
    Takes(Duration),
    /// It hangs.
    Never,
}

/// Where a launch dies outside of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Death {
    /// Before it listens.
    BeforeBind,
    /// After loading for this long; loading then does not finish.
    WhileLoading(Duration),
    /// When it is loaded and has had nothing to do for this long.
    WhenIdle(Duration),
}

/// How a launch dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It exits with this code.
    Exit(i32),
    /// It is killed by signal 9, as by the system when memory is short.
    Kill,
    /// It aborts (signal 6), as on a failed assertion.
    Abort,
}

/// An answer to a chat request, streamed or not as the request asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reply {
    /// The `delta` object of each content chunk.
    pub deltas: Vec<Value>,
    /// Why it ends.
    pub finish_reason: String,
    /// Whether a last message of the assistant is repeated before the first content, as the real engine does.
    pub repeats_prefix: bool,
    /// Time before the first content: prompt processing.
    pub prefill: Duration,
    /// In how many equal steps a request with `return_progress` is told of that, after a first progress of nothing.
    pub prefill_steps: u32,
    /// Time after each content.
    pub pace: Duration,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

impl Default for Reply {
    /// The recorded answer of the real engine: five contents, `stop`.
    fn default() -> Self {
        Self::text(["S", "m", "all", "ass", "y"])
    }
}

impl Reply {
    /// Text in these pieces.
    pub fn text<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of(pieces.into_iter().map(|piece| json!({ "content": piece })), "stop")
    }

    /// Text of `contents` pieces: `"0 "`, `"1 "`, and so on.
    pub fn numbered(contents: usize) -> Self {
        Self::of((0..contents).map(|number| json!({ "content": format!("{number} ") })), "stop")
    }

    /// Reasoning in these pieces, then text in these.
    pub fn reasoning<'a>(
        thoughts: impl IntoIterator<Item = &'a str>,
        text: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let thoughts = thoughts.into_iter().map(|piece| json!({ "reasoning_content": piece }));
        Self::of(thoughts.chain(text.into_iter().map(|piece| json!({ "content": piece }))), "stop")
    }

    /// One tool call whose arguments, JSON or not, come in these pieces.
    pub fn tool_call<'a>(name: &str, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut pieces = arguments.into_iter();
        let first = json!({ "index": 0, "id": "AXNkmTe3YBUpqJJfKrWGC7ouj4sawvvS", "type": "function",
            "function": { "name": name, "arguments": pieces.next().unwrap_or_default() } });
        let rest = pieces.map(|piece| json!({ "index": 0, "function": { "arguments": piece } }));
        Self::of(std::iter::once(first).chain(rest).map(|call| json!({ "tool_calls": [call] })), "tool_calls")
    }

    /// Tool calls, name and arguments each, JSON or not.
    pub fn tool_calls<'a>(calls: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let delta = |(index, (name, arguments)): (usize, (&str, &str))| {
            json!({ "tool_calls": [{ "index": index, "id": format!("call{index}"), "type": "function",
                "function": { "name": name, "arguments": arguments } }] })
        };
        Self::of(calls.into_iter().enumerate().map(delta), "tool_calls")
    }

    /// The whole text, without reasoning and tool calls.
    pub fn content(&self) -> String {
        self.deltas.iter().filter_map(|delta| delta["content"].as_str()).collect()
    }

    fn of(deltas: impl Iterator<Item = Value>, finish_reason: &str) -> Self {
        Self {
            deltas: deltas.collect(),
            finish_reason: finish_reason.to_owned(),
            repeats_prefix: true,
            prefill: Duration::ZERO,
            prefill_steps: 1,
            pace: Duration::ZERO,
            fault: None,
        }
    }
}

/// What goes wrong in an answer. `…After(n)` happens after n contents, or after all of them and before the finish
/// chunk; with 0, after the headers and before the role. To a request that is not streamed it happens instead of the
/// answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// An error with this status, "Compute error.", while `/health` stays as it is.
    Status(u16),
    /// Dies without having sent a byte.
    DieBeforeHeaders,
    /// Dies.
    DieAfter(usize),
    /// Never sends a byte.
    HangBeforeHeaders,
    /// Stops itself (SIGSTOP) without having sent a byte: nothing is answered any more, `/health` included.
    StopBeforeHeaders,
    /// Stops itself (SIGSTOP).
    StopAfter(usize),
    /// Sends nothing more, not even comments.
    HangAfter(usize),
    /// Sends nothing more but comments.
    PingAfter(usize),
    /// Sends comments for this long, then dies.
    PingThenDie(usize, Duration),
    /// Closes the connection without the end of the chunked body.
    CutAfter(usize),
    /// Ends the body cleanly, without a finish reason and without `[DONE]`.
    EndAfter(usize),
    /// Sends `data:` with half a JSON object, then goes on.
    GarbageAfter(usize),
    /// Appends the plain text of a proxy's error and ends the body cleanly, as llama-server's router mode does.
    TextAfter(usize),
    /// Sends the finish chunk and ends the body cleanly, without `[DONE]`.
    NoDone,
    /// Leaves out the chunk with the role, as the real engine does when the first token is half a character.
    NoRole,
}
