//! The status of an endpoint as text of 80 columns.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use self::cell::{ago, fit, left, memory, millis, right, seconds, wrap};

pub(crate) mod cell;

/// The columns of a terminal that nobody has made wider.
const WIDTH: usize = 80;

/// The lines that a failed load's reason may take; its log has the rest.
const REASON: usize = 3;

/// What the endpoint at `url` says of itself, at `now` in Unix seconds.
pub(crate) fn render(url: &str, status: &Value, now: u64) -> String {
    let mut out = String::new();
    line(&mut out, &format!("gglib {} at {url}", text(&status["version"])));
    line(&mut out, "");
    configuration(&mut out, &status["config"]);
    engines(&mut out, rows(status, "engines"));
    queue(&mut out, rows(status, "queue"));
    breakers(&mut out, rows(status, "breakers"));
    recent(&mut out, rows(status, "recent"), now);
    totals(&mut out, &status["totals"]);
    out
}

/// The time in Unix seconds.
#[expect(clippy::disallowed_methods, reason = "stamps of records are compared with it")]
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What became of the last change of the configuration, if it is not in effect.
fn configuration(out: &mut String, config: &Value) {
    let after_restart: Vec<_> = rows(config, "after_restart").iter().map(text).collect();
    if let Some(error) = config["error"].as_str() {
        line(out, "The changed configuration is not in effect; the one before still is:");
        for part in wrap(error, WIDTH - 2, REASON) {
            line(out, &format!("  {part}"));
        }
        line(out, "");
    }
    if !after_restart.is_empty() {
        let keys = format!("In effect after a restart: {}", after_restart.join(", "));
        for part in wrap(&keys, WIDTH, REASON) {
            line(out, &part);
        }
        line(out, "");
    }
}

fn engines(out: &mut String, engines: &[Value]) {
    if engines.is_empty() {
        line(out, "No engine is loaded; the first request loads one.");
        line(out, "");
        return;
    }
    let row = |cells: [&str; 7]| {
        let [model, state, in_use, up, estimated, measured, pid] = cells;
        format!(
            "{} {} {} {} {} {} {}",
            left(model, 24),
            left(state, 9),
            right(in_use, 7),
            right(up, 6),
            right(estimated, 10),
            right(measured, 10),
            right(pid, 8)
        )
    };
    line(out, &row(["ENGINE", "STATE", "IN USE", "UP", "ESTIMATED", "MEASURED", "PID"]));
    for engine in engines {
        let in_use = format!("{} of {}", number(&engine["in_flight"]), number(&engine["parallel"]));
        line(
            out,
            &row([
                text(&engine["model"]),
                text(&engine["state"]),
                &in_use,
                &seconds(number(&engine["uptime_s"])),
                &memory(&engine["memory_estimated"]),
                &memory(&engine["memory_measured"]),
                &engine["pid"].as_u64().map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            ]),
        );
    }
    line(out, "");
}

fn queue(out: &mut String, queue: &[Value]) {
    if queue.is_empty() {
        return;
    }
    let row = |model: &str, waiting: &str, oldest: &str, next: &str| {
        format!("{} {} {} {}", left(model, 34), right(waiting, 9), right(oldest, 12), right(next, 22))
    };
    line(out, &row("QUEUE", "WAITING", "LONGEST WAIT", "A NEW ONE WOULD WAIT"));
    for model in queue {
        let waiting = number(&model["waiting"]);
        let (oldest, next) = (millis(&model["oldest_wait_ms"]), millis(&model["estimate_ms"]));
        line(out, &row(text(&model["model"]), &waiting.to_string(), &oldest, &next));
        let first = rows(model, "first");
        for waiter in first {
            let what = match text(&waiter["phase"]) {
                "turn" => "until it is the model's turn".to_owned(),
                "loading" => match waiter["percent"].as_u64() {
                    Some(percent) => format!("until the model is loaded ({percent} %)"),
                    None => "until the model is loaded".to_owned(),
                },
                "place" => "until the engine has a place".to_owned(),
                other => other.to_owned(),
            };
            let place = format!("#{}", number(&waiter["position"]));
            let (waited, left_over) = (millis(&waiter["waited_ms"]), millis(&waiter["estimate_ms"]));
            line(
                out,
                &format!(
                    "{} {} {}",
                    left(&format!("  {place:<5}{what}"), 44),
                    right(&waited, 12),
                    right(&left_over, 22)
                ),
            );
        }
        let more = waiting.saturating_sub(first.len() as u64);
        if more > 0 && !first.is_empty() {
            line(out, &format!("  and {more} more"));
        }
    }
    line(out, "");
}

fn breakers(out: &mut String, breakers: &[Value]) {
    if breakers.is_empty() {
        return;
    }
    let row = |model: &str, state: &str, next: &str, failures: &str| {
        format!("{} {} {} {}", left(model, 34), left(state, 12), right(next, 14), right(failures, 17))
    };
    line(out, &row("FAILED LOADS OF", "BREAKER", "NEXT LOAD IN", "FAILED IN A ROW"));
    for breaker in breakers {
        let failures = number(&breaker["failures"]).to_string();
        line(
            out,
            &row(
                text(&breaker["model"]),
                text(&breaker["state"]),
                &millis(&breaker["retry_in_ms"]),
                &failures,
            ),
        );
        for part in wrap(text(&breaker["reason"]), WIDTH - 2, REASON) {
            line(out, &format!("  {part}"));
        }
    }
    line(out, "");
}

fn recent(out: &mut String, recent: &[Value], now: u64) {
    if recent.is_empty() {
        return;
    }
    let row = |cells: [&str; 7]| {
        let [when, model, outcome, waited, took, tokens, id] = cells;
        format!(
            "{} {} {} {} {} {} {}",
            right(when, 4),
            left(model, 13),
            left(outcome, 16),
            right(waited, 6),
            right(took, 6),
            right(tokens, 9),
            left(id, 20)
        )
    };
    line(out, &row(["AGO", "MODEL", "OUTCOME", "WAITED", "TOOK", "TOKENS", "REQUEST"]));
    for request in recent {
        let outcome = match (request["code"].as_str(), request["recovery"].as_str()) {
            (Some(code), _) => code.to_owned(),
            (None, Some(recovery)) => format!("{} {recovery}", text(&request["outcome"])),
            (None, None) => text(&request["outcome"]).to_owned(),
        };
        let tokens =
            format!("{}+{}", number(&request["prompt_tokens"]), number(&request["completion_tokens"]));
        line(
            out,
            &row([
                &ago(number(&request["ended_at"]), now),
                request["model"].as_str().unwrap_or("-"),
                &outcome,
                &millis(&request["waited_ms"]),
                &millis(&request["duration_ms"]),
                &tokens,
                text(&request["request_id"]),
            ]),
        );
    }
    line(out, "");
}

fn totals(out: &mut String, totals: &Value) {
    let counts = |names: &[(&str, &str)]| {
        names
            .iter()
            .map(|(label, name)| format!("{label} {}", number(&totals[name])))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let sentences = [
        format!(
            "{}: {}.",
            counts(&[("Requests", "requests")]),
            counts(&[("failed", "failed"), ("abandoned", "abandoned"), ("retried by clients", "retries")])
        ),
        format!(
            "{}: {}. {}.",
            counts(&[("Loads", "loads")]),
            counts(&[("failed", "failed_loads"), ("cancelled", "cancelled_loads")]),
            counts(&[
                ("Swaps", "swaps"),
                ("evictions", "evictions"),
                ("crashes", "crashes"),
                ("recycles", "recycles")
            ])
        ),
        format!(
            "{}. {}.",
            counts(&[("Waits expired", "expired")]),
            counts(&[
                ("Relaunches", "relaunches"),
                ("resends", "resends"),
                ("continuations", "continuations"),
                ("mends", "mends"),
                ("repairs", "repairs")
            ])
        ),
    ];
    for part in sentences.iter().flat_map(|sentence| wrap(sentence, WIDTH, 2)) {
        line(out, &part);
    }
}

/// One line, without what does not fit and without blanks at its end.
fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{}", fit(text, WIDTH).trim_end());
}

fn rows<'a>(status: &'a Value, name: &str) -> &'a [Value] {
    status[name].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests;
