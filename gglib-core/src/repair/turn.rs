//! What the chunks of one answer say about calls.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::call::CallLabel;

/// The calls of an answer, put together from its chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The calls, in the order of their first fragments.
    pub calls: Vec<Call>,
    /// The text, in which a model speaks that was not taught calls.
    pub text: String,
    /// Why the answer ended.
    pub finish_reason: Option<String>,
    /// Tokens that were generated, as the engine counts them.
    pub tokens: u64,
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Its place among the calls of the answer, where the engine numbers them.
    pub index: Option<u64>,
    /// The engine's name for this call.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// The arguments; JSON of an object if all is well.
    pub arguments: String,
}

impl Turn {
    /// Whether each call has an index of its own, by which a client tells it from the others.
    pub(super) fn is_numbered(&self) -> bool {
        let mut indices: Vec<_> = self.calls.iter().map(|call| call.index).collect();
        indices.sort_unstable();
        indices.iter().all(Option::is_some) && indices.windows(2).all(|pair| pair[0] != pair[1])
    }

    /// Takes the `data` of one chunk; only the first choice counts. Anything else that it says is passed over.
    pub fn push(&mut self, chunk: &[u8]) {
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(chunk) else { return };
        let counted = chunk.usage.map(|usage| usage.completion_tokens);
        if let Some(tokens) = counted.or(chunk.timings.map(|timings| timings.predicted_n)) {
            self.tokens = self.tokens.max(tokens);
        }
        for choice in chunk.choices.unwrap_or_default() {
            if choice.index.unwrap_or(0) != 0 {
                continue;
            }
            if let Some(delta) = choice.delta {
                self.text.push_str(&delta.content.unwrap_or_default());
                delta.tool_calls.into_iter().flatten().for_each(|fragment| self.take(fragment));
            }
            if let Some(reason) = choice.finish_reason {
                self.finish_reason = Some(reason.into_owned());
            }
        }
    }

    fn take(&mut self, fragment: Fragment<'_>) {
        let position =
            fragment.label().position_in(self.calls.iter().map(Call::label)).unwrap_or_else(|| {
                self.calls.push(Call { index: fragment.index, ..Call::default() });
                self.calls.len() - 1
            });
        let call = &mut self.calls[position];
        call.id = call.id.take().or_else(|| fragment.id.filter(|id| !id.is_empty()).map(Cow::into_owned));
        let Some(function) = fragment.function else { return };
        if call.name.is_empty() {
            call.name = function.name.unwrap_or_default().into_owned();
        }
        if let Some(arguments) = function.arguments {
            // Some servers send the arguments themselves instead of a string that holds them.
            let text = serde_json::from_str::<String>(arguments.get());
            call.arguments.push_str(text.as_deref().unwrap_or_else(|_| arguments.get()));
        }
    }
}

impl Call {
    fn label(&self) -> CallLabel<'_> {
        CallLabel::new(self.index, self.id.as_deref().map(Cow::Borrowed), Some(&self.name))
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Usage>,
    timings: Option<Timings>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    completion_tokens: u64,
}

#[derive(Deserialize)]
struct Timings {
    #[serde(default)]
    predicted_n: u64,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Fragment<'a>>>,
}

#[derive(Deserialize)]
struct Fragment<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

impl Fragment<'_> {
    fn label(&self) -> CallLabel<'_> {
        let name = self.function.as_ref().and_then(|function| function.name.as_deref());
        CallLabel::new(self.index, self.id.as_deref().map(Cow::Borrowed), name)
    }
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}
