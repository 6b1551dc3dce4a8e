//! Answers in the real engine's recorded bytes. Recorded with llama.cpp b10434 and SmolLM2-135M; the model's path was
//! replaced.

use serde_json::{Value, json};

use crate::slots::Counts;

pub(crate) const LOADING: &str = include_str!("../../../fixtures/loading.json");
pub(crate) const BAD_JSON: &str = include_str!("../../../fixtures/error_bad_json.json");
pub(crate) const NO_MESSAGES: &str = include_str!("../../../fixtures/error_no_messages.json");
pub(crate) const WRONG_TYPE: &str = include_str!("../../../fixtures/error_wrong_type.json");
pub(crate) const TOO_LONG: &str = include_str!("../../../fixtures/error_too_long.json");
pub(crate) const WRONG_KEY: &str = include_str!("../../../fixtures/error_key.json");
pub(crate) const NOT_FOUND: &str = include_str!("../../../fixtures/error_not_found.json");
pub(crate) const NOT_SUPPORTED: &str = include_str!("../../../fixtures/error_not_supported.json");

const PLAIN: &str = include_str!("../../../fixtures/plain.json");
const PROPS: &str = include_str!("../../../fixtures/props.json");
const MODELS: &str = include_str!("../../../fixtures/models.json");
const STREAM: &str = include_str!("../../../fixtures/stream.sse");
const STREAM_USAGE: &str = include_str!("../../../fixtures/stream_usage.sse");

/// The recorded chunks that differ in shape, of which a stream is made.
pub(crate) struct Chunks {
    role: Value,
    progress: Value,
    content: Value,
    finish: Value,
    usage: Value,
}

impl Chunks {
    /// With `model` as the model's name, and `counts` in place of those of the recorded prompt.
    pub(crate) fn of(model: &str, counts: Option<Counts>) -> Self {
        let (plain, with_usage) = (events(STREAM), events(STREAM_USAGE));
        let (id, created) = (plain[0]["id"].clone(), plain[0]["created"].clone());
        let chunk = |recorded: &Value| {
            let mut chunk = recorded.clone();
            chunk["id"] = id.clone();
            chunk["created"] = created.clone();
            chunk["model"] = model.into();
            chunk
        };
        let last = |events: &[Value]| {
            let mut last = chunk(events.last().expect("a recorded stream has chunks"));
            if let Some(Counts { cached, processed }) = counts {
                last["timings"]["cache_n"] = cached.into();
                last["timings"]["prompt_n"] = processed.into();
            }
            last
        };
        Self {
            role: chunk(&plain[0]),
            progress: chunk(&with_usage[0]),
            content: chunk(&plain[1]),
            finish: last(&plain),
            usage: last(&with_usage),
        }
    }

    pub(crate) fn role(&self) -> String {
        event(&self.role)
    }

    pub(crate) fn progress(&self, processed: u32, total: u32) -> String {
        let mut chunk = self.progress.clone();
        chunk["prompt_progress"] =
            json!({ "total": total, "cache": 0, "processed": processed, "time_ms": 0 });
        event(&chunk)
    }

    /// The event of a progress, with this text in it.
    pub(crate) fn with_prefix(progress: &str, prefix: &str) -> String {
        let mut chunk = parse(progress.trim_start_matches("data: "));
        chunk["choices"][0]["delta"] = json!({ "content": prefix });
        event(&chunk)
    }

    pub(crate) fn content(&self, delta: &Value) -> String {
        let mut chunk = self.content.clone();
        chunk["choices"][0]["delta"] = delta.clone();
        event(&chunk)
    }

    /// The finish chunk, which carries the timings if no usage chunk will.
    pub(crate) fn finish(&self, reason: &str, contents: usize) -> String {
        let mut chunk = self.finish.clone();
        chunk["choices"][0]["finish_reason"] = reason.into();
        chunk["timings"]["predicted_n"] = tokens(contents).into();
        event(&chunk)
    }

    /// The finish chunk and the usage chunk of a request with `include_usage`.
    pub(crate) fn finish_with_usage(&self, reason: &str, contents: usize) -> String {
        let mut finish = self.finish.clone();
        finish["choices"][0]["finish_reason"] = reason.into();
        finish.as_object_mut().expect("a chunk is an object").remove("timings");
        let mut usage = self.usage.clone();
        count(&mut usage, contents);
        event(&finish) + &event(&usage)
    }
}

/// The answer to a request that is not streamed.
pub(crate) fn plain(model: &str, message: Value, reason: &str, contents: usize) -> String {
    let mut answer = parse(PLAIN);
    answer["choices"][0]["finish_reason"] = reason.into();
    answer["choices"][0]["message"] = message;
    answer["model"] = model.into();
    count(&mut answer, contents);
    answer.to_string()
}

/// The answer to a text completion that is not streamed.
pub(crate) fn text(model: &str, text: &str, reason: &str) -> String {
    let choice = json!({ "index": 0, "text": text, "finish_reason": reason, "logprobs": null });
    json!({ "id": "cmpl-1", "object": "text_completion", "created": 1, "model": model, "choices": [choice] })
        .to_string()
}

/// The embedding of one input, with fewer dimensions than any real one.
pub(crate) fn embeddings(model: &str) -> String {
    let data = json!([{ "object": "embedding", "index": 0, "embedding": [0.25, -0.5] }]);
    let usage = json!({ "prompt_tokens": 3, "total_tokens": 3 });
    json!({ "object": "list", "model": model, "data": data, "usage": usage }).to_string()
}

/// The ranking of one document.
pub(crate) fn ranking(model: &str) -> String {
    let results = json!([{ "index": 0, "relevance_score": 0.5 }]);
    let usage = json!({ "prompt_tokens": 5, "total_tokens": 5 });
    json!({ "object": "list", "model": model, "results": results, "usage": usage }).to_string()
}

pub(crate) fn props(model: &str, slots: usize, context: usize, tools: bool) -> String {
    let mut props = parse(PROPS);
    props["model_alias"] = model.into();
    props["model_path"] = model.into();
    props["total_slots"] = slots.into();
    props["default_generation_settings"]["n_ctx"] = context.into();
    for capability in ["supports_tools", "supports_tool_calls"] {
        props["chat_template_caps"][capability] = tools.into();
    }
    props.to_string()
}

pub(crate) fn models(model: &str, context: usize) -> String {
    let mut models = parse(MODELS);
    models["models"][0]["name"] = model.into();
    models["models"][0]["model"] = model.into();
    models["data"][0]["id"] = model.into();
    models["data"][0]["aliases"] = json!([model]);
    models["data"][0]["meta"]["n_ctx"] = context.into();
    models.to_string()
}

/// One server-sent event, framed as the engine does.
pub(crate) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.take_while(|data| *data != "[DONE]").map(parse).collect()
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).expect("recordings are JSON")
}

/// Puts the number of tokens where an answer has it.
fn count(answer: &mut Value, contents: usize) {
    let completion = tokens(contents);
    let prompt = answer["usage"]["prompt_tokens"].as_u64().unwrap_or(0);
    answer["usage"]["completion_tokens"] = completion.into();
    answer["usage"]["total_tokens"] = (prompt + completion).into();
    answer["timings"]["predicted_n"] = completion.into();
}

/// A token each, and one for the end of the turn.
fn tokens(contents: usize) -> u64 {
    contents as u64 + 1
}

#[cfg(test)]
mod tests {
    use gglib_testkit::Reply;

    use super::*;

    /// The pieces of a recording, put together again by what the fake builds its streams of.
    #[test]
    fn the_chunks_are_the_recorded_bytes() {
        let chunks = Chunks::of("smollm2", None);
        let deltas = Reply::default().deltas;
        let contents: String = deltas.iter().map(|delta| chunks.content(delta)).collect();
        let built = chunks.role() + &contents + &chunks.finish("stop", 5) + "data: [DONE]\n\n";
        // The recording crossed a second.
        assert_eq!(built, STREAM.replace("1795992827", "1795992826"));
    }

    #[test]
    fn progress_is_in_the_recorded_shape() {
        let recorded = &events(include_str!("../../../fixtures/stream_progress.sse"))[1];
        let mut built: Value =
            parse(Chunks::of("smollm2", None).progress(57, 57).strip_prefix("data: ").unwrap());
        for differs in ["id", "created"] {
            built[differs] = recorded[differs].clone();
        }
        for differs in ["cache", "time_ms"] {
            built["prompt_progress"][differs] = recorded["prompt_progress"][differs].clone();
        }
        assert_eq!(built.to_string(), recorded.to_string());
    }

    #[test]
    fn the_tool_call_is_in_the_recorded_shape() {
        let recorded = events(include_str!("../../../fixtures/stream_tools.sse"));
        let pieces =
            ["{", "\"", "city", "\":", " \"", "Berlin", "\",", " \"", "unit", "\":", " \"", "c", "\"}"];
        let deltas: Vec<_> = recorded.iter().map(|chunk| chunk["choices"][0]["delta"].clone()).collect();
        let call = Reply::tool_call("get_weather", pieces);
        let recorded_call: Vec<_> = deltas[1..=pieces.len()].to_vec();
        let id = |delta: &Value| delta["tool_calls"][0]["id"].clone();
        let mut built = call.deltas;
        assert!(id(&built[0]).is_string());
        built[0]["tool_calls"][0]["id"] = id(&recorded_call[0]);
        assert_eq!(json!(built).to_string(), json!(recorded_call).to_string());
        assert_eq!(recorded[1 + pieces.len()]["choices"][0]["finish_reason"], call.finish_reason);
    }

    #[test]
    fn reasoning_is_in_the_recorded_shape() {
        let recorded = events(include_str!("../../../fixtures/stream_reasoning.sse"));
        let built = Reply::reasoning(["The", " answer", " I", "\n"], ["T", "w", "o", "."]).deltas;
        let deltas: Vec<_> = recorded.iter().map(|chunk| chunk["choices"][0]["delta"].clone()).collect();
        assert_eq!(json!(built).to_string(), json!(deltas[1..=built.len()]).to_string());
    }
}
