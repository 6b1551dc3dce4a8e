//! Streams of the real `llama-server` that go on after its death.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "endpoint/served.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod served;

use gglib_testkit::wire::{Piece, post};
use gglib_testkit::{Engines, engines, real};
use rustix::process::Signal;
use serde_json::{Value, json};

use self::served::{Served, in_flight, shipped};

/// What is asked, with the beginning of the answer left to the model.
const PROMPTS: [&str; 24] = [
    "Tell me about the sea.",
    "Why is the sky blue?",
    "Write a short story about a fox.",
    "Explain how a bicycle works.",
    "List ten fruits.",
    "What is the capital of France, and what is it known for?",
    "Describe a sunset to somebody who has never seen one.",
    "Count from one to fifty in words.",
    "How do I bake bread?",
    "Write a Python function that reverses a list, with comments.",
    "What are the seasons of the year?",
    "Give me advice for a job interview.",
    "Who was Isaac Newton?",
    "Write a poem about winter.",
    "How do plants grow?",
    "Summarize the story of Romeo and Juliet.",
    "What is a computer made of?",
    "Write a letter to a friend about your holidays.",
    "Explain what a prime number is.",
    "What should I see in Rome?",
    "Name the planets and say one thing about each.",
    "How does a refrigerator keep food cold?",
    "Repeat: こんにちは世界 🌱🌱 déjà vu",
    "Repeat this line ten times: 🌱 é ü 世界",
];

/// Tokens of an answer, and after how many chunks with text the engine is killed.
const LENGTH: u64 = 72;
const DEATH: usize = 40;

/// A stream as its client saw it.
#[derive(Debug, Default)]
struct Seen {
    /// The text before and after the comment that tells of the recovery.
    before: String,
    after: String,
    recovered: bool,
    ids: Vec<Value>,
    roles: usize,
    finishes: Vec<String>,
    usages: Vec<Value>,
    done: usize,
}

impl Seen {
    fn take(&mut self, piece: &str) {
        self.recovered |= piece.contains(": gglib-recovery continuation\n\n");
        for data in piece.lines().filter_map(|line| line.strip_prefix("data: ")) {
            if data == "[DONE]" {
                self.done += 1;
                continue;
            }
            let chunk: Value = serde_json::from_str(data).unwrap();
            assert_eq!((chunk.get("error"), self.done), (None, 0), "{chunk}");
            self.ids.push(chunk["id"].clone());
            self.usages.extend(chunk.get("usage").cloned());
            let choice = &chunk["choices"][0];
            let text = choice["delta"]["content"].as_str().unwrap_or_default();
            let half = if self.recovered { &mut self.after } else { &mut self.before };
            *half += text;
            self.roles += usize::from(!choice["delta"]["role"].is_null());
            self.finishes.extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
    }

    fn text(&self) -> String {
        self.before.clone() + &self.after
    }

    fn usage(&self, name: &str) -> u64 {
        assert_eq!(self.usages.len(), 1, "{self:?}");
        self.usages[0][name].as_u64().unwrap()
    }

    /// Checks that it is one stream with one beginning and one end.
    fn check(&self, what: &str) {
        assert_eq!((self.roles, self.done, self.finishes.len()), (1, 1, 1), "{what}: {self:?}");
        assert!(self.ids.iter().all(|id| *id == self.ids[0]), "{what}: {self:?}");
        let parts = self.usage("prompt_tokens") + self.usage("completion_tokens");
        assert_eq!(self.usage("total_tokens"), parts, "{what}");
    }
}

fn body(messages: &Value, limit: u64) -> String {
    json!({
        "messages": messages, "max_tokens": limit, "temperature": 0, "stream": true,
        "stream_options": { "include_usage": true },
    })
    .to_string()
}

/// Streams an answer; the engine is killed after `death` chunks with text, if it comes to that.
async fn stream(served: &Served, body: &str, death: Option<usize>) -> Seen {
    let mut client = served.connect().await;
    client.send(post("/v1/chat/completions", body)).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    let (mut seen, mut texts) = (Seen::default(), 0);
    loop {
        match client.piece().await {
            Piece::Data(piece) => seen.take(&piece),
            end => {
                assert_eq!(end, Piece::End, "{seen:?}");
                return seen;
            }
        }
        texts += 1;
        if death == Some(texts) {
            kill(served).await;
        }
    }
}

async fn kill(served: &Served) {
    let status = served.status().await;
    let pid = status["engines"][0]["pid"].as_u64().expect("there is an engine");
    engines::signal(u32::try_from(pid).unwrap(), Signal::KILL);
}

#[tokio::test]
async fn killed_in_the_middle_the_stream_goes_on_as_a_fresh_engine_would() {
    let engines = Engines::real().model("smollm2", &real::smollm2(), 1, real::one_thread());
    let served = Served::start(engines, shipped()).await;
    let (mut continued, mut diverged) = (0, 0);
    for prompt in PROMPTS {
        let messages = json!([{ "role": "user", "content": prompt }]);
        let undisturbed = stream(&served, &body(&messages, LENGTH), None).await;
        undisturbed.check(prompt);
        let seen = stream(&served, &body(&messages, LENGTH), Some(DEATH)).await;
        seen.check(prompt);
        if !seen.recovered {
            // It was through before the engine was dead.
            assert_eq!(seen.text(), undisturbed.text(), "{prompt}");
            continue;
        }
        continued += 1;
        diverged += usize::from(seen.text() != undisturbed.text());
        assert!(undisturbed.text().starts_with(&seen.before), "{prompt}: {seen:?} {undisturbed:?}");
        assert_eq!(seen.usage("prompt_tokens"), undisturbed.usage("prompt_tokens"), "{prompt}");
        if seen.finishes == ["length"] {
            assert_eq!(seen.usage("completion_tokens"), LENGTH, "{prompt}: {seen:?}");
        }

        // The same prefix asked directly, of an engine that is as fresh as the one that went on.
        served.until("the engine to be idle", |status| in_flight(status) == 0).await;
        kill(&served).await;
        let mut with_prefix = messages.clone();
        with_prefix.as_array_mut().unwrap().push(json!({ "role": "assistant", "content": seen.before }));
        let direct = stream(&served, &body(&with_prefix, LENGTH), None).await;
        let tail = direct.text().strip_prefix(&seen.before).expect("the prefix is repeated").to_owned();
        assert!(tail.starts_with(&seen.after), "{prompt}: {seen:?} {tail:?}");
        assert!(seen.finishes == ["length"] || tail == seen.after, "{prompt}: {seen:?} {tail:?}");
    }
    println!(
        "{continued} of {} streams went on; {diverged} of them diverged from the undisturbed run",
        PROMPTS.len()
    );
    assert!(continued >= 20, "{continued}");
    let totals = served.status().await["totals"].take();
    assert_eq!([&totals["continuations"], &totals["failed"]], [continued, 0]);
}
