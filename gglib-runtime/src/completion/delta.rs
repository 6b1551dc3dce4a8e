//! The pieces of a streamed answer, as a consumer wants them.

use serde::Deserialize;

/// One piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// More of the answer's text.
    Text(String),
    /// More of what the model thinks before it answers.
    Reasoning(String),
    /// More of the text by which the model declines.
    Refusal(String),
    /// More of a tool call.
    ToolCall(ToolCallFragment),
    /// The end of the answer, with its `finish_reason`: `stop`, `length`, `tool_calls` …
    Finish(String),
    /// What the answer has cost, where the upstream says so.
    Usage(Usage),
}

/// A part of a tool call. The fragments of one call share its index, and their arguments are to be appended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "WireToolCall")]
pub struct ToolCallFragment {
    /// Which call of the answer it belongs to, counted from 0.
    pub index: u64,
    /// The call's id, in its first fragment.
    pub id: Option<String>,
    /// The function's name, in its first fragment.
    pub name: Option<String>,
    /// More of the arguments' JSON text.
    pub arguments: String,
}

/// `usage`, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Usage {
    /// Of the prompt.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Of the answer.
    #[serde(default)]
    pub completion_tokens: u64,
}

/// Reads the `data` of one event into the pieces it holds, in the order in which a person would read them.
pub(super) fn parse(data: &[u8]) -> Result<Vec<Delta>, serde_json::Error> {
    let chunk: WireChunk = serde_json::from_slice(data)?;
    let mut pieces = Vec::new();
    for choice in chunk.choices.unwrap_or_default() {
        let delta = choice.delta.unwrap_or_default();
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        let reasoning = filled(delta.reasoning_content).or_else(|| filled(delta.reasoning));
        pieces.extend(reasoning.map(Delta::Reasoning));
        pieces.extend(filled(delta.content).map(Delta::Text));
        pieces.extend(filled(delta.refusal).map(Delta::Refusal));
        pieces.extend(delta.tool_calls.unwrap_or_default().into_iter().map(Delta::ToolCall));
        pieces.extend(delta.function_call.map(|function| Delta::ToolCall(function.into_fragment(0, None))));
        pieces.extend(filled(choice.finish_reason).map(Delta::Finish));
    }
    pieces.extend(chunk.usage.map(Delta::Usage));
    Ok(pieces)
}

#[derive(Deserialize)]
struct WireChunk {
    choices: Option<Vec<WireChoice>>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct WireChoice {
    delta: Option<WireDelta>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct WireDelta {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<ToolCallFragment>>,
    function_call: Option<WireFunction>,
}

#[derive(Deserialize)]
struct WireToolCall {
    index: Option<u64>,
    id: Option<String>,
    function: Option<WireFunction>,
}

#[derive(Default, Deserialize)]
struct WireFunction {
    name: Option<String>,
    arguments: Option<String>,
}

impl WireFunction {
    fn into_fragment(self, index: u64, id: Option<String>) -> ToolCallFragment {
        ToolCallFragment { index, id, name: self.name, arguments: self.arguments.unwrap_or_default() }
    }
}

impl From<WireToolCall> for ToolCallFragment {
    fn from(call: WireToolCall) -> Self {
        call.function.unwrap_or_default().into_fragment(call.index.unwrap_or(0), call.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_gives_its_pieces_in_reading_order() {
        let data = br#"{"choices":[{"index":0,"finish_reason":"tool_calls","delta":{"role":"assistant",
            "tool_calls":[{"index":1,"id":"c1","type":"function","function":{"name":"f","arguments":"{"}}],
            "content":"Hi","reasoning_content":"Hm","refusal":"No"}}],
            "usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}"#;
        let call = ToolCallFragment {
            index: 1,
            id: Some("c1".to_owned()),
            name: Some("f".to_owned()),
            arguments: "{".to_owned(),
        };
        assert_eq!(
            parse(data).unwrap(),
            [
                Delta::Reasoning("Hm".to_owned()),
                Delta::Text("Hi".to_owned()),
                Delta::Refusal("No".to_owned()),
                Delta::ToolCall(call),
                Delta::Finish("tool_calls".to_owned()),
                Delta::Usage(Usage { prompt_tokens: 7, completion_tokens: 2 }),
            ]
        );
    }

    #[test]
    fn other_servers_spellings_are_read_too() {
        let reasoning = br#"{"choices":[{"delta":{"reasoning":"Hm","content":null}}],"usage":null}"#;
        assert_eq!(parse(reasoning).unwrap(), [Delta::Reasoning("Hm".to_owned())]);
        let call = br#"{"choices":[{"delta":{"function_call":{"arguments":"}"}}}]}"#;
        let fragment = ToolCallFragment { arguments: "}".to_owned(), ..ToolCallFragment::default() };
        assert_eq!(parse(call).unwrap(), [Delta::ToolCall(fragment)]);
    }

    #[test]
    fn nothing_is_made_of_empty_members() {
        for data in [
            r#"{"choices":[{"delta":{"role":"assistant","content":null}}]}"#,
            r#"{"choices":[{"delta":{"content":"","reasoning_content":"","tool_calls":[]},"finish_reason":null}]}"#,
            r#"{"choices":null}"#,
            r"{}",
        ] {
            assert_eq!(parse(data.as_bytes()).unwrap(), [], "{data}");
        }
    }
}
