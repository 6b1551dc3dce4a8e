//! What goes wrong in one answer of one engine.

use std::time::Duration;

use gglib_cli::drill::outcome::Asked;
use gglib_testkit::{Fault, Launch, Reply, Script, Template};
use serde_json::{Value, json};

use super::scenario::Scenario;

/// A fault, and what it comes to in a stream and in a plain answer: the outcome, and how often an engine is asked.
struct Both {
    sources: &'static str,
    name: &'static str,
    script: fn(Asked) -> Script,
    stream: (&'static str, usize),
    plain: (&'static str, usize),
}

impl Both {
    fn each(self) -> [Scenario; 2] {
        [(Asked::Stream, self.stream), (Asked::Plain, self.plain)].map(|(asked, (expected, tries))| {
            Scenario::new(self.sources, self.name, asked, (self.script)(asked), expected).tries(tries)
        })
    }
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let both = broken().into_iter().chain(silent()).chain(refused());
    both.flat_map(Both::each).chain(failing()).chain(alone()).chain(tools()).collect()
}

pub(super) fn healthy() -> Launch {
    Launch { replies: vec![Reply::numbered(5)], ..Launch::default() }
}

/// The fault in the first answer of the first launch; everything after it is well.
pub(super) fn once(fault: Fault) -> Script {
    let replies = vec![Reply { fault: Some(fault), ..Reply::numbered(5) }, Reply::numbered(5)];
    let first = Launch { replies, ping_every: Some(Duration::from_millis(50)), ..Launch::default() };
    Script { launches: vec![first, healthy()] }
}

/// The fault after three contents; the next engine says the rest to who streams.
pub(super) fn midway(fault: fn(usize) -> Fault, asked: Asked) -> Script {
    let mut script = once(fault(3));
    if asked == Asked::Stream {
        let whole = Reply::numbered(5);
        let rest = Reply { deltas: whole.deltas[3..].to_vec(), ..whole.clone() };
        script.launches[1].replies = vec![rest, whole];
    }
    script
}

/// Two engines in a row die in the same place.
fn twice(fault: Fault) -> Script {
    let dying =
        Launch { replies: vec![Reply { fault: Some(fault), ..Reply::numbered(5) }], ..Launch::default() };
    Script { launches: vec![dying.clone(), dying, healthy()] }
}

/// Broken off, or malformed.
fn broken() -> Vec<Both> {
    const FULL: (&str, usize) = ("full answer", 1);
    const RELAUNCHED: (&str, usize) = ("full answer (relaunch)", 2);
    const RESENT: (&str, usize) = ("full answer (resend)", 2);
    const DIED: (&str, usize) = ("error event upstream_died", 1);
    const INCOMPLETE: (&str, usize) = ("error event upstream_incomplete", 1);
    const MALFORMED: (&str, usize) = ("error event upstream_malformed", 1);
    let both = |sources, name, script, stream, plain| Both { sources, name, script, stream, plain };
    vec![
        both(
            "T12",
            "the engine dies before the answer's head",
            |_| once(Fault::DieBeforeHeaders),
            RELAUNCHED,
            RELAUNCHED,
        ),
        both("T12", "it dies between head and content", |_| once(Fault::DieAfter(0)), RELAUNCHED, RELAUNCHED),
        both(
            "T14",
            "it sends nothing but comments, then dies",
            |_| once(Fault::PingThenDie(0, Duration::from_secs(1))),
            RELAUNCHED,
            RELAUNCHED,
        ),
        both(
            "T11, S08",
            "it dies in the middle",
            |asked| midway(Fault::DieAfter, asked),
            ("full answer (continuation)", 2),
            RELAUNCHED,
        ),
        both(
            "S14",
            "it dies in the middle, and the next one too",
            |_| twice(Fault::DieAfter(2)),
            ("error event upstream_died", 2),
            ("502 upstream_died", 2),
        ),
        both(
            "T12",
            "it dies before the head, and the next one too",
            |_| twice(Fault::DieBeforeHeaders),
            ("502 upstream_died", 2),
            ("502 upstream_died", 2),
        ),
        both("S05", "the connection is cut before content", |_| once(Fault::CutAfter(0)), RESENT, RESENT),
        both("S08", "the connection is cut in the middle", |_| once(Fault::CutAfter(2)), DIED, RESENT),
        both(
            "S08",
            "the answer ends without a finish_reason",
            |_| once(Fault::EndAfter(2)),
            INCOMPLETE,
            RESENT,
        ),
        both("S08", "a proxy's error is appended as text", |_| once(Fault::TextAfter(2)), INCOMPLETE, RESENT),
        both(
            "S10",
            "one chunk is half a JSON object",
            |_| once(Fault::GarbageAfter(2)),
            MALFORMED,
            ("502 upstream_malformed", 1),
        ),
        both("S11", "[DONE] is missing", |_| once(Fault::NoDone), FULL, FULL),
        both("S11", "the chunk with the role is missing", |_| once(Fault::NoRole), FULL, FULL),
    ]
}

/// Silent, slow, or only seemingly so.
fn silent() -> Vec<Both> {
    const FULL: (&str, usize) = ("full answer", 1);
    const RELAUNCHED: (&str, usize) = ("full answer (relaunch)", 2);
    const CONTINUED: (&str, usize) = ("full answer (continuation)", 2);
    let both = |sources, name, script, stream, plain| Both { sources, name, script, stream, plain };
    vec![
        both(
            "S06",
            "the engine takes the request and says nothing",
            |_| once(Fault::HangBeforeHeaders),
            RELAUNCHED,
            RELAUNCHED,
        ),
        both("S06", "it is silent after the head", |_| once(Fault::HangAfter(0)), RELAUNCHED, RELAUNCHED),
        both(
            "S06",
            "it is silent after the head, and the next one too",
            |_| twice(Fault::HangAfter(0)),
            ("error event timeout_first_content", 2),
            ("504 timeout_first_content", 2),
        ),
        both("T14", "it sends comments for ever", |_| once(Fault::PingAfter(0)), RELAUNCHED, RELAUNCHED),
        both(
            "S09, T16",
            "it falls silent in the middle",
            |asked| midway(Fault::HangAfter, asked),
            CONTINUED,
            RELAUNCHED,
        ),
        both(
            "S09",
            "only comments come after the middle",
            |asked| midway(Fault::PingAfter, asked),
            CONTINUED,
            RELAUNCHED,
        ),
        both(
            "S09",
            "it is stopped by SIGSTOP in the middle",
            |asked| midway(Fault::StopAfter, asked),
            CONTINUED,
            RELAUNCHED,
        ),
        both("S07, T24", "a prompt takes longer than any timer, and advances", |_| slow_prompt(), FULL, FULL),
        both(
            "T14",
            "an answer takes longer than any timer between two pieces",
            |_| slow_answer(),
            FULL,
            FULL,
        ),
    ]
}

fn slow_prompt() -> Script {
    let prefill = Duration::from_secs(6);
    let slow = Reply { prefill, prefill_steps: 12, ..Reply::numbered(5) };
    Script::always(Launch { replies: vec![slow, Reply::numbered(5)], ..Launch::default() })
}

fn slow_answer() -> Script {
    let slow = Reply { pace: Duration::from_millis(1200), ..Reply::numbered(5) };
    Script::always(Launch { replies: vec![slow, Reply::numbered(5)], ..Launch::default() })
}

/// Refused by the engine itself: that is its answer, and asked for once.
fn refused() -> Vec<Both> {
    let both = |sources, name, status: fn(Asked) -> Script, expected| Both {
        sources,
        name,
        script: status,
        stream: (expected, 1),
        plain: (expected, 1),
    };
    vec![
        both("S03, T15", "the engine says 500 once", |_| once(Fault::Status(500)), "500 upstream_error"),
        both("S04", "the engine says 503", |_| once(Fault::Status(503)), "503 upstream_error, Retry-After"),
        both(
            "S13",
            "the engine says 400, as for a content filter",
            |_| once(Fault::Status(400)),
            "400 invalid_request",
        ),
    ]
}

/// Engines that fail at everything, or do not last.
fn failing() -> Vec<Scenario> {
    let fails = Launch { fails_with: Some(500), ignores_sigterm: true, ..Launch::default() };
    let dies = Launch {
        replies: vec![Reply { fault: Some(Fault::DieBeforeHeaders), ..Reply::numbered(5) }],
        ..Launch::default()
    };
    let looping = Script { launches: [vec![dies; 3], vec![healthy()]].concat() };
    let failing = Script { launches: vec![fails, healthy()] };
    vec![
        Scenario::new(
            "T15",
            "the third request in a row that fails, of an engine whose health is good",
            Asked::Plain,
            failing,
            "full answer (relaunch)",
        )
        .play(|stage| async move {
            stage.ask("a", Asked::Plain).await;
            stage.ask("a", Asked::Stream).await;
            Ok(stage.ask("a", Asked::Plain).await)
        }),
        Scenario::new(
            "T20",
            "three engines in a row have died over their first request",
            Asked::Plain,
            looping,
            "503 breaker_open, Retry-After",
        )
        .play(|stage| async move {
            stage.ask("a", Asked::Plain).await;
            Ok(stage.ask("a", Asked::Plain).await)
        }),
    ]
}

/// What depends on the request.
fn alone() -> Vec<Scenario> {
    let healthy = || Script::always(healthy());
    let words = json!({ "messages": [{ "role": "user", "content": "word ".repeat(2100) }] });
    let large = json!({ "messages": [{ "role": "user", "content": "x".repeat(3 << 20) }] });
    let unknown = json!({ "model": "b" });
    vec![
        Scenario::new(
            "S12",
            "the prompt is longer than the context",
            Asked::Plain,
            healthy(),
            "400 context_length_exceeded",
        )
        .body(words)
        .tries(1),
        Scenario::new("D", "the body has 3 MiB", Asked::Plain, healthy(), "full answer")
            .body(large.clone())
            .tries(1),
        Scenario::new("D", "the body is above the limit", Asked::Plain, healthy(), "413 body_too_large")
            .set("server.body_limit", "\"1MiB\"")
            .body(large)
            .tries(0),
        Scenario::new(
            "T40",
            "nobody has configured the model",
            Asked::Stream,
            healthy(),
            "404 model_not_found",
        )
        .body(unknown)
        .tries(0),
        Scenario::new(
            "T11",
            "it dies in the middle, and nothing may go on",
            Asked::Stream,
            once(Fault::DieAfter(3)),
            "error event upstream_died",
        )
        .set("recovery.continue_streams", "false")
        .tries(1),
        Scenario::new("S16", "model and usage are told as they are", Asked::Stream, healthy(), "full answer")
            .play(|stage| async move {
                let seen = stage
                    .ask_with("a", Asked::Stream, &json!({ "stream_options": { "include_usage": true } }))
                    .await;
                let text = String::from_utf8_lossy(&seen.body).into_owned();
                let chunks: Vec<Value> = text
                    .lines()
                    .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
                    .collect();
                let named = chunks.iter().all(|chunk| chunk["model"] == "a");
                let usages = chunks.iter().filter(|chunk| chunk["usage"]["total_tokens"].is_u64()).count();
                if named && usages == 1 {
                    Ok(seen)
                } else {
                    Err(format!("{usages} usages, the model right: {named}"))
                }
            }),
    ]
}

/// Tool calls that nobody can run.
fn tools() -> Vec<Scenario> {
    let parameters =
        json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let tools = json!([{ "type": "function", "function": { "name": "weather", "parameters": parameters } }]);
    let broken = || Reply::tool_call("weather", ["{"]);
    let script = |replies: Vec<Reply>| {
        Script::always(Launch { replies, template: Template::WithTools, ..Launch::default() })
    };
    let good = || Reply::tool_call("weather", ["{\"city\":", " \"Rome\"}"]);
    let history = json!([
        { "role": "user", "content": "Weather?" },
        { "role": "assistant", "content": null, "tool_calls": [{ "id": "1", "type": "function",
            "function": { "name": "weather", "arguments": "{\"city\": \"Ro" } }] },
        { "role": "tool", "tool_call_id": "1", "content": "?" },
    ]);
    let both = [Asked::Stream, Asked::Plain].into_iter();
    let repaired = both.flat_map(|asked| {
        let hang = Reply { fault: Some(Fault::HangAfter(0)), ..Reply::numbered(1) };
        [
            Scenario::new(
                "T27",
                "arguments of a tool call are no JSON",
                asked,
                script(vec![broken(), good()]),
                "full answer (repair)",
            )
            .body(json!({ "tools": tools }))
            .tries(2)
            .text(None),
            Scenario::new(
                "T27",
                "their repair hangs",
                asked,
                script(vec![broken(), hang, good()]),
                "full answer",
            )
            .body(json!({ "tools": tools }))
            .tries(2)
            .text(None),
        ]
    });
    let sent = Scenario::new(
        "T27",
        "the history has such a call",
        Asked::Plain,
        script(vec![good()]),
        "400 invalid_request",
    )
    .body(json!({ "tools": tools, "messages": history }))
    .tries(0);
    repaired.chain([sent]).collect()
}
