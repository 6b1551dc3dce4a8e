//! Every key of `gglib.toml`, once: its kind, default, environment variable and meaning.
//!
//! The reader rejects what is not here, the environment layer is derived from it, and so is the reference
//! page of the book. A test holds the defaults here and those of the typed structs together.

use crate::retry::{Class, DEADLINE_ENV_VAR, MAX_ATTEMPTS_ENV_VAR};

/// Stands in a path for any name.
const ANY: &str = "*";

/// Stands in a path for the name of a [`Class`].
const CLASS: &str = "CLASS";

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Dotted path; `*` stands for a model's name, `CLASS` for a class of failures.
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
    /// Whether the path stands for many.
    pub fn is_pattern(&self) -> bool {
        self.path.split('.').any(|segment| [ANY, CLASS].contains(&segment))
    }

    /// The variable that overrides this key, if one does.
    pub fn env(&self) -> Option<EnvVar> {
        match self.path {
            "retry.max_attempts" => Some(EnvVar::Lenient(MAX_ATTEMPTS_ENV_VAR)),
            "retry.total_deadline" => Some(EnvVar::Lenient(DEADLINE_ENV_VAR)),
            // Discovery reads GGLIB_LLAMA_SERVER itself, after the configured path.
            "engine.binary" => None,
            _ if self.is_pattern() || self.kind == Kind::List => None,
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
        "admission.quantum",
        Kind::Duration,
        "\"20s\"",
        "While another model waits for its room, a resident model serves newcomers for this long (longer if switching is slow), and then stands aside.",
    ),
    key(
        "memory.budget",
        Kind::Text,
        "\"auto\"",
        "What all engines together may take: `auto`, or a size of main memory such as `12GiB`.",
    ),
    key("memory.max_resident", Kind::Integer, "1", "Engines at once, as far as the budget allows."),
    key(
        "memory.growth",
        Kind::Size,
        "\"2GiB\"",
        "An engine that takes this much more than when it was ready is stopped once it is idle; the next request loads it anew.",
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
        "Of one attempt: without progress before the first content; prompt processing counts as progress. An engine that gets on with nothing for so long is replaced.",
    ),
    key(
        "timeouts.idle",
        Kind::Duration,
        "\"60s\"",
        "Of one attempt: between two pieces of content. An engine that gets on with nothing for so long is replaced.",
    ),
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
        "recovery.repair",
        Kind::Bool,
        "true",
        "Check tool calls against the request's schemas; mend their packaging, or ask for them again, once per request. Also mends calls in the history that engines fail on.",
    ),
    key(
        "recovery.repair_timeout",
        Kind::Duration,
        "\"60s\"",
        "How long asking for tool calls again may take; after that the client gets the first answer as it was.",
    ),
    key(
        "slots.enabled",
        Kind::Bool,
        "true",
        "Save what an engine has read when it is stopped, and restore it when the model is loaded again.",
    ),
    key(
        "slots.disk_budget",
        Kind::Size,
        "\"4GiB\"",
        "What saved slots may take on the disk; the oldest go first. The one being saved comes on top.",
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
        "retry.class.CLASS.preset",
        Kind::Text,
        "",
        "The preset of the numbers after a failure of this class: `rate_limited` (429), `overloaded` (503, 529), `server_error` (other 5xx, malformed answers), `timeout` (408, 504, our own timers), `transport` (no connection, or a broken one) or `rejected` (anything else). Attempts and time are those of the whole sequence. Without it, as for the model.",
    ),
    key(
        "retry.class.CLASS.max_attempts",
        Kind::Integer,
        "",
        "Attempts of the whole sequence, including the first.",
    ),
    key("retry.class.CLASS.initial_backoff", Kind::Duration, "", "Upper bound of the first delay."),
    key("retry.class.CLASS.max_backoff", Kind::Duration, "", "No delay is drawn above this."),
    key(
        "retry.class.CLASS.total_deadline",
        Kind::Duration,
        "",
        "After such a failure, no new attempt is started after this long.",
    ),
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
    key(
        "models.*.args",
        Kind::List,
        "[]",
        "Passed to `llama-server` as they are, after gglib's own, which they override. What gglib counts on cannot be among them.",
    ),
    key(
        "models.*.ttl",
        Kind::Duration,
        "",
        "An engine that nobody has used for this long is stopped. Without it, only when its room is needed.",
    ),
    key(
        "models.*.pin",
        Kind::Bool,
        "false",
        "Once resident, the model stays: its engine is not stopped for another model.",
    ),
    key(
        "models.*.preload",
        Kind::Bool,
        "false",
        "The model is loaded at the start, if there is room, without waiting for a request.",
    ),
    key("models.*.group", Kind::Text, "", "Models of the same group are never resident together."),
    key(
        "models.*.retry.preset",
        Kind::Text,
        "",
        "The rules of our own clients for this model. Each key of this section wins over that of `[retry]`, and is won over by that of `[retry.class.CLASS]`.",
    ),
    key("models.*.retry.max_attempts", Kind::Integer, "", "Attempts, including the first."),
    key("models.*.retry.initial_backoff", Kind::Duration, "", "Upper bound of the first delay."),
    key("models.*.retry.max_backoff", Kind::Duration, "", "No delay is drawn above this."),
    key("models.*.retry.total_deadline", Kind::Duration, "", "No new attempt is started after this long."),
];

/// The key that a concrete path (`models.smollm2.context` as segments) belongs to.
pub(super) fn find(path: &[String]) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path.split('.').count() == path.len() && begins(key, path))
}

/// Whether some key lies below the concrete path `prefix`.
pub(super) fn is_section(prefix: &[String]) -> bool {
    KEYS.iter().any(|key| key.path.split('.').count() > prefix.len() && begins(key, prefix))
}

/// Names that may follow the concrete path `prefix`, where there is a list of them.
pub(super) fn children(prefix: &[String]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = KEYS
        .iter()
        .filter(|key| begins(key, prefix))
        .filter_map(|key| key.path.split('.').nth(prefix.len()))
        .flat_map(|name| match name {
            ANY => Vec::new(),
            CLASS => Class::ALL.map(Class::as_str).to_vec(),
            name => vec![name],
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether the path of `key` begins like the concrete path `prefix`, as far as both go.
fn begins(key: &Key, prefix: &[String]) -> bool {
    key.path.split('.').zip(prefix).all(|(pattern, segment)| match pattern {
        ANY => true,
        CLASS => Class::ALL.iter().any(|class| class.as_str() == segment),
        name => name == segment,
    })
}
