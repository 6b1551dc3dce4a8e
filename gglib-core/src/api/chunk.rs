//! A cheap look at one chunk of a stream: what it means for progress, commitment and an honest end.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

pub use identity::Identity;
pub use state::{Frame, StreamState};

use crate::slots::PromptCounts;

mod identity;
mod state;

/// What one `chat.completion.chunk` (or chunk of a text completion) holds, without its text.
///
/// Unknown members are skipped, `choices` may be null or missing, and null counts as absent everywhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// One entry per element of `choices`.
    pub choices: Vec<ChoiceProbe>,
    /// There is an `error` member: the stream has failed, whatever its HTTP status.
    pub error: bool,
    /// There is a `usage` member.
    pub usage: bool,
    /// How far llama-server has come with the prompt (`return_progress`).
    pub progress: Option<PromptProgress>,
    /// What llama-server had of the prompt in its cache (`timings`), as told at the end of an answer.
    pub counts: Option<PromptCounts>,
}

/// One element of `choices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceProbe {
    /// Which of the `n` answers it belongs to; 0 when missing.
    pub index: u64,
    /// It says whose turn it is. Clients expect that of the first delta.
    pub role: bool,
    /// What content it carries, if any.
    pub content: Option<ContentKind>,
    /// Why the choice has ended, if it has.
    pub finish_reason: Option<String>,
}

/// What closes the idempotency window: something that a client may already have shown or acted on.
///
/// Ordered by how much it binds: where there are several kinds, the greatest counts. Only plain
/// [`Text`](Self::Text) can be continued after an engine has died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentKind {
    /// `content`, or `text` of a text completion.
    Text,
    /// `refusal`.
    Refusal,
    /// `reasoning_content`, or `reasoning` as other servers call it.
    Reasoning,
    /// A fragment of a `tool_calls` element, or of the older `function_call`.
    ToolCall,
}

/// llama-server's `prompt_progress`, in tokens and milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct PromptProgress {
    /// Length of the prompt.
    pub total: u64,
    /// How much of it was in the cache already.
    #[serde(default)]
    pub cache: u64,
    /// How much of it is done, the cached part included.
    pub processed: u64,
    /// Time spent on it so far.
    #[serde(default)]
    pub time_ms: f64,
}

impl Probe {
    /// Reads the `data` of one event. An error means that it is no chunk: not JSON, or of other types.
    pub fn parse(data: &[u8]) -> Result<Self, serde_json::Error> {
        // Checking the encoding once is cheaper than at every string.
        let wire: Wire<'_> =
            str::from_utf8(data).map_or_else(|_| serde_json::from_slice(data), serde_json::from_str)?;
        let progress = wire.prompt_progress.and_then(|raw| serde_json::from_str(raw.get()).ok());
        Ok(Self {
            choices: wire.choices.unwrap_or_default(),
            error: wire.error.is_some(),
            usage: wire.usage.is_some(),
            progress,
            counts: wire.timings.and_then(counts),
        })
    }

    /// The most binding content of all choices; `None` for role-only chunks, empty deltas and the like.
    pub fn content(&self) -> Option<ContentKind> {
        self.choices.iter().filter_map(|choice| choice.content).max()
    }

    /// Whether the chunk says nothing but how far the prompt is: to be kept from a client that did not ask.
    pub fn is_progress_only(&self) -> bool {
        self.progress.is_some() && self.says_nothing() && !self.usage
    }

    /// Whether the chunk holds nothing but the usage (`stream_options.include_usage`): to be kept from a
    /// client that did not ask.
    pub fn is_usage_only(&self) -> bool {
        self.usage && self.choices.is_empty() && !self.error
    }

    fn says_nothing(&self) -> bool {
        !self.error
            && self.choices.iter().all(|choice| choice.content.is_none() && choice.finish_reason.is_none())
    }
}

impl ChoiceProbe {
    fn of(wire: WireChoice<'_>) -> Self {
        let delta = wire.delta.unwrap_or_default();
        let content = [
            (ContentKind::ToolCall, [delta.tool_calls, delta.function_call]),
            (ContentKind::Reasoning, [delta.reasoning_content, delta.reasoning]),
            (ContentKind::Refusal, [delta.refusal, None]),
            (ContentKind::Text, [delta.content, wire.text]),
        ]
        .into_iter()
        .find_map(|(kind, members)| members.into_iter().flatten().any(is_filled).then_some(kind));
        let finish_reason = wire.finish_reason.filter(|reason| !reason.is_empty()).map(Cow::into_owned);
        let role = delta.role.is_some_and(is_filled);
        Self { index: wire.index.unwrap_or(0), role, content, finish_reason }
    }
}

impl<'de> Deserialize<'de> for ChoiceProbe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WireChoice::deserialize(deserializer).map(Self::of)
    }
}

/// Some servers send every member in every delta, empty where there is nothing to say.
fn is_filled(value: &RawValue) -> bool {
    !matches!(value.get(), "\"\"" | "[]" | "{}")
}

/// llama-server counts what was cached and what was processed apart.
fn counts(timings: &RawValue) -> Option<PromptCounts> {
    #[derive(Deserialize)]
    struct Timings {
        cache_n: u64,
        prompt_n: u64,
    }
    let Timings { cache_n, prompt_n } = serde_json::from_str(timings.get()).ok()?;
    Some(PromptCounts { prompt_tokens: cache_n.saturating_add(prompt_n), cached_tokens: cache_n })
}

#[derive(Deserialize)]
struct Wire<'a> {
    choices: Option<Vec<ChoiceProbe>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_progress: Option<&'a RawValue>,
    #[serde(borrow)]
    timings: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireChoice<'a> {
    index: Option<u64>,
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<WireDelta<'a>>,
}

#[derive(Default, Deserialize)]
struct WireDelta<'a> {
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
}
