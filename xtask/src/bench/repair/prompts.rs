//! Questions that are to be answered with one call, and the judgement on what came instead.

use fastrand::Rng;
use serde_json::{Value, json};

const CITIES: [&str; 24] = [
    "Berlin", "Oslo", "Rome", "Madrid", "Vienna", "Prague", "Athens", "Dublin", "Cairo", "Lima", "Tokyo",
    "Delhi", "Boston", "Chicago", "Toronto", "Sydney", "Nairobi", "Seoul", "Hanoi", "Lisbon", "Warsaw",
    "Helsinki", "Zurich", "New York",
];
const TITLES: [&str; 8] =
    ["Lunch", "Review", "Planning", "Workshop", "Interview", "Dinner", "Team call", "Budget talk"];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const NAMES: [&str; 12] =
    ["Eve", "Max", "Lena", "Omar", "Ida", "Tom", "Nina", "Paul", "Rosa", "Hugo", "Mia", "Karl"];

/// What is asked for.
pub(super) struct Prompt {
    question: String,
    name: &'static str,
    arguments: Value,
}

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The one call that was asked for.
    Right,
    /// Calls, and all of them valid.
    Valid,
    /// At least one call that cannot be run.
    Invalid,
    /// No call.
    NoCall,
    /// No answer.
    Failed,
}

impl Prompt {
    /// The question with this number, always the same.
    pub(super) fn seeded(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        if rng.bool() {
            let city = CITIES[rng.usize(..CITIES.len())];
            let unit = ["celsius", "fahrenheit"][rng.usize(..2)];
            return Self {
                question: format!("What is the weather in {city}, in {unit}?"),
                name: "get_weather",
                arguments: json!({ "city": city, "unit": unit[..1] }),
            };
        }
        let title = TITLES[rng.usize(..TITLES.len())];
        let names = rng.choose_multiple(NAMES, 2);
        let start =
            format!("{} {}:{}0", DAYS[rng.usize(..DAYS.len())], rng.u8(8..20), [0, 3][rng.usize(..2)]);
        let priority = rng.u8(1..=5);
        Self {
            question: format!("{title} with {} and {} on {start}, priority {priority}.", names[0], names[1]),
            name: "create_event",
            arguments: json!({ "title": title, "start": start, "attendees": names, "priority": priority }),
        }
    }

    /// The request: two functions, two worked examples, the question.
    pub(super) fn body(&self, choice: &str, temperature: f64, seed: u64, max_tokens: u32) -> Value {
        let user = |content: &str| json!({ "role": "user", "content": content });
        let call = |name: &str, arguments: &Value| {
            let function = json!({ "name": name, "arguments": arguments.to_string() });
            json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "1", "type": "function", "function": function }] })
        };
        let done = |content: &str| json!({ "role": "tool", "tool_call_id": "1", "content": content });
        let function = |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": schema(name) } });
        json!({
            "messages": [
                { "role": "system", "content": "You call functions." },
                user("What is the weather in Paris, in celsius?"),
                call("get_weather", &json!({ "city": "Paris", "unit": "c" })),
                done("{\"temperature\": 18}"),
                user("Meeting with Ann and Bob on Monday 9:00, priority 2."),
                call("create_event", &json!({ "title": "Meeting", "start": "Monday 9:00", "attendees": ["Ann", "Bob"], "priority": 2 })),
                done("{\"created\": true}"),
                user(&self.question),
            ],
            "tools": [function("get_weather"), function("create_event")],
            "tool_choice": choice,
            "stop": ["</tool_call>"],
            "temperature": temperature,
            "seed": seed,
            "max_tokens": max_tokens,
        })
    }

    /// Judges the body of a plain answer by the schemas.
    pub(super) fn judge(&self, answer: &Value) -> Verdict {
        let Some(message) = answer.pointer("/choices/0/message") else { return Verdict::Failed };
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        let arguments = |call: &Value| -> Option<Value> {
            serde_json::from_str(call["function"]["arguments"].as_str()?).ok()
        };
        let is_valid = |call: &Value| {
            let schema = schema(call["function"]["name"].as_str().unwrap_or_default());
            arguments(call).is_some_and(|arguments| jsonschema::is_valid(&schema, &arguments))
        };
        match calls {
            [] => Verdict::NoCall,
            [call]
                if call["function"]["name"] == self.name
                    && arguments(call).as_ref() == Some(&self.arguments) =>
            {
                Verdict::Right
            }
            calls if calls.iter().all(is_valid) => Verdict::Valid,
            _ => Verdict::Invalid,
        }
    }
}

/// The schema of a function's arguments; nothing is valid for one that does not exist.
fn schema(name: &str) -> Value {
    match name {
        "get_weather" => json!({
            "type": "object",
            "properties": { "city": { "type": "string" }, "unit": { "type": "string", "enum": ["c", "f"] } },
            "required": ["city", "unit"],
            "additionalProperties": false,
        }),
        "create_event" => json!({
            "type": "object",
            "properties": {
                "title": { "type": "string" },
                "start": { "type": "string" },
                "attendees": { "type": "array", "items": { "type": "string" } },
                "priority": { "type": "integer", "minimum": 1, "maximum": 5 },
            },
            "required": ["title", "start", "attendees", "priority"],
            "additionalProperties": false,
        }),
        _ => Value::Bool(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_judged_by_the_schemas_and_by_what_was_asked() {
        let prompt = Prompt {
            question: String::new(),
            name: "get_weather",
            arguments: json!({ "city": "Oslo", "unit": "c" }),
        };
        let judge = |calls: &[(&str, &str)]| {
            let call = |(name, arguments): &(&str, &str)| json!({ "function": { "name": name, "arguments": arguments } });
            let calls: Vec<Value> = calls.iter().map(call).collect();
            prompt.judge(&json!({ "choices": [{ "message": { "tool_calls": calls } }] }))
        };
        let right = ("get_weather", r#"{"unit":"c","city":"Oslo"}"#);
        let table: [(&[_], _); 8] = [
            (&[right], Verdict::Right),
            (&[right, right], Verdict::Valid),
            (&[("get_weather", r#"{"unit":"f","city":"Oslo"}"#)], Verdict::Valid),
            (&[("get_weather", r#"{"unit":"F","city":"Oslo"}"#)], Verdict::Invalid),
            (&[("get_weather", r#"{"unit":"c","city":"Oslo","x":1}"#)], Verdict::Invalid),
            (&[("weather", r#"{"unit":"c","city":"Oslo"}"#)], Verdict::Invalid),
            (&[right, ("get_weather", "{")], Verdict::Invalid),
            (&[], Verdict::NoCall),
        ];
        for (calls, verdict) in table {
            assert_eq!(judge(calls), verdict, "{calls:?}");
        }
        assert_eq!(prompt.judge(&json!({ "error": "x" })), Verdict::Failed);
        // Each question's own answer is valid.
        for seed in 0..50 {
            let prompt = Prompt::seeded(seed);
            assert!(jsonschema::is_valid(&schema(prompt.name), &prompt.arguments), "{seed}");
        }
    }
}
