//! Every key of `gglib.toml`, once: its kind, default, environment variable and meaning.
//!
//! The reader rejects what is not here, the environment layer is derived from it, and so is the reference
//! page of the book. A test holds the defaults here and those of the typed structs together.

use crate::retry::{DEADLINE_ENV_VAR, MAX_ATTEMPTS_ENV_VAR};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Dotted path; `*` stands for a model's name.
    pub path: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// The default as it would stand in the file; empty when the key is required or has no default.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// What a value may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// A number and a unit, such as `"30s"` or `"10m"`.
    Duration,
    /// A number and a unit, such as `"64MiB"`.
    Size,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Bool,
    /// A list of texts.
    List,
}

impl Kind {
    /// What a good value looks like, for messages and the book.
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Text => "a text such as \"auto\"",
            Self::Duration => "a duration such as \"30s\" or \"10m\"",
            Self::Size => "a size such as \"64MiB\"",
            Self::Integer => "a whole number",
            Self::Bool => "true or false",
            Self::List => "a list of texts such as [\"--flash-attn\", \"on\"]",
        }
    }
}

/// How the environment overrides a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvVar {
    /// This variable, read like the value in the file; anything unreadable is an error.
    Strict(String),
    /// This variable of the retry policy; anything unreadable is a warning (see `RetryPolicy::layered`).
    Lenient(&'static str),
}

impl EnvVar {
    /// The variable's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Strict(name) => name,
            Self::Lenient(name) => name,
        }
    }
}

impl Key {
    /// The variable that overrides this key, if one does.
    pub fn env(&self) -> Option<EnvVar> {
        match self.path {
            "retry.max_attempts" => Some(EnvVar::Lenient(MAX_ATTEMPTS_ENV_VAR)),
            "retry.total_deadline" => Some(EnvVar::Lenient(DEADLINE_ENV_VAR)),
            // Discovery reads GGLIB_LLAMA_SERVER itself, after the configured path.
            "engine.binary" => None,
            path if path.contains('*') || self.kind == Kind::List => None,
            path => Some(EnvVar::Strict(format!("GGLIB_{}", path.replace('.', "_").to_uppercase()))),
        }
    }
}

const fn key(path: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { path, kind, default, doc }
}

/// All keys, in the order of the reference page.
pub const KEYS: &[Key] = &[
    key(
        "server.listen",
        Kind::Text,
        "\"127.0.0.1:8080\"",
        "Address and port of the endpoint. Port 0 takes a free one.",
    ),
    key(
        "server.body_limit",
        Kind::Size,
        "\"64MiB\"",
        "Largest request body; a larger one is answered with 413.",
    ),
    key(
        "engine.binary",
        Kind::Text,
        "\"auto\"",
        "Path of `llama-server`, or `auto`: `GGLIB_LLAMA_SERVER`, then `PATH`, then the copy that `gglib up` installed.",
    ),
    key(
        "engine.transport",
        Kind::Text,
        "\"unix\"",
        "How engines are reached: `unix` (a socket in a private directory) or `tcp` (a free loopback port, guarded by a key of its own).",
    ),
    key(
        "engine.load_stall",
        Kind::Duration,
        "\"120s\"",
        "A load is given up after this long without a new log line or a change of health.",
    ),
    key("engine.load_limit", Kind::Duration, "\"30m\"", "A load is given up after this long in any case."),
    key(
        "engine.stop_grace",
        Kind::Duration,
        "\"2s\"",
        "How long an engine may take to end after SIGTERM before its process group is killed.",
    ),
    key(
        "engine.drain",
        Kind::Duration,
        "\"30s\"",
        "How long requests in flight may go on when gglib itself is told to stop.",
    ),
    key(
        "admission.stall",
        Kind::Duration,
        "\"180s\"",
        "A waiting request is refused after this long in which its queue did not move; a load in progress holds the clock.",
    ),
    key(
        "admission.max_wait",
        Kind::Duration,
        "\"10m\"",
        "A waiting request is refused after this long in any case.",
    ),
    key(
        "admission.queue",
        Kind::Integer,
        "256",
        "Waiting requests per model; one more is answered with 429 at once.",
    ),
    key(
        "timeouts.connect",
        Kind::Duration,
        "\"2s\"",
        "Of one attempt: until the engine has taken the connection.",
    ),
    key(
        "timeouts.response_headers",
        Kind::Duration,
        "\"30s\"",
        "Of one attempt: until the response's head has come.",
    ),
    key(
        "timeouts.first_content",
        Kind::Duration,
        "\"300s\"",
        "Of one attempt: without progress before the first content; prompt processing counts as progress.",
    ),
    key("timeouts.idle", Kind::Duration, "\"60s\"", "Of one attempt: between two pieces of content."),
    key("timeouts.total", Kind::Duration, "\"30m\"", "Of one attempt: altogether."),
    key("timeouts.request", Kind::Duration, "\"45m\"", "Of a request: all waits and attempts together."),
    key(
        "recovery.relaunch",
        Kind::Bool,
        "true",
        "Relaunch an engine that died before the first content, once per request, and send the request again.",
    ),
    key(
        "recovery.continue_streams",
        Kind::Bool,
        "true",
        "Relaunch an engine that died in the middle of a stream of plain text, once per request, and go on with the stream where it broke off.",
    ),
    key(
        "retry.preset",
        Kind::Text,
        "\"gglib\"",
        "The rules of our own clients, of which the keys below override single numbers (shown are those of `gglib`): `gglib`, `fixed`, `linear`, `exponential`, `exponential_jitter`, `decorrelated_jitter`, `llm_conductor` or `openai_sdk`.",
    ),
    key("retry.max_attempts", Kind::Integer, "4", "Attempts of our own clients, including the first."),
    key(
        "retry.initial_backoff",
        Kind::Duration,
        "\"1s\"",
        "Upper bound of the first delay; it doubles from there.",
    ),
    key(
        "retry.max_backoff",
        Kind::Duration,
        "\"15s\"",
        "No delay is drawn above this; also the `Retry-After` when nothing better is known.",
    ),
    key("retry.total_deadline", Kind::Duration, "\"60s\"", "No new attempt is started after this long."),
    key(
        "models.*.path",
        Kind::Text,
        "",
        "The GGUF file; `~/` is the home directory, a relative path starts at the file's own directory.",
    ),
    key("models.*.aliases", Kind::List, "[]", "Further names under which clients may ask for the model."),
    key(
        "models.*.context",
        Kind::Integer,
        "",
        "Context window of one request, in tokens. Without it the engine takes the model's own.",
    ),
    key(
        "models.*.parallel",
        Kind::Integer,
        "1",
        "Requests that the engine serves at once; further ones wait in our queue.",
    ),
    key("models.*.args", Kind::List, "[]", "Passed to `llama-server` as they are."),
];

/// The key that a concrete path (`models.smollm2.context` as segments) belongs to.
pub(super) fn find(path: &[String]) -> Option<&'static Key> {
    KEYS.iter().find(|key| {
        let pattern: Vec<&str> = key.path.split('.').collect();
        pattern.len() == path.len() && pattern.iter().zip(path).all(|(p, s)| *p == "*" || p == s)
    })
}

/// Whether some key lies below the concrete path `prefix`.
pub(super) fn is_section(prefix: &[String]) -> bool {
    KEYS.iter().any(|key| {
        let pattern: Vec<&str> = key.path.split('.').collect();
        pattern.len() > prefix.len() && pattern.iter().zip(prefix).all(|(p, s)| *p == "*" || p == s)
    })
}

/// Names that may follow the concrete path `prefix`.
pub(super) fn children(prefix: &[String]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = KEYS
        .iter()
        .filter_map(|key| {
            let pattern: Vec<&'static str> = key.path.split('.').collect();
            let below = pattern.iter().zip(prefix).all(|(p, s)| *p == "*" || p == s);
            (below && pattern.len() > prefix.len()).then(|| pattern[prefix.len()])
        })
        .collect();
    names.dedup();
    names
}
