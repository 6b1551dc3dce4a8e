//! `gglib status`: what the running endpoint says of itself.

use std::fmt::Write;

use serde_json::Value;

use crate::args::{Common, Status};
use crate::client;
use crate::error::CliError;
use crate::exit::Exit;
use crate::{settings, ui};

pub(super) async fn run(args: &Status, common: &Common) -> Result<Exit, CliError> {
    let config = settings::load(common, &[])?;
    let url = client::url(&args.target, &config);
    let status = client::get_json(&url, "/status").await?;
    ui::part(&if args.json { format!("{status}\n") } else { render(&url, &status) });
    Ok(Exit::Success)
}

/// The status as text of at most 80 columns, long names excepted.
fn render(url: &str, status: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut out = format!("gglib {} at {url}\n", text(&status["version"]));
    let rows = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let engines = rows("engines");
    if engines.is_empty() {
        out.push_str("No engine is loaded; the first request loads one.\n");
    }
    for engine in engines {
        let _ = writeln!(
            out,
            "{:<20} {:<9} pid {:<8} {} of {} in use, up {} s",
            text(&engine["model"]),
            text(&engine["state"]),
            text(&engine["pid"]),
            engine["in_flight"],
            engine["parallel"],
            engine["uptime_s"],
        );
    }
    for queue in rows("queue") {
        let wait = queue["oldest_wait_ms"].as_u64().unwrap_or(0) / 1000;
        let _ = writeln!(
            out,
            "{:<20} {} waiting, the longest for {wait} s",
            text(&queue["model"]),
            queue["waiting"]
        );
    }
    let total = |name: &str| status["totals"][name].as_u64().unwrap_or(0);
    let _ = writeln!(
        out,
        "{} requests, {} failed; {} loads, {} swaps, {} crashes, {} relaunches",
        total("requests"),
        total("failed"),
        total("loads"),
        total("swaps"),
        total("crashes"),
        total("relaunches"),
    );
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn engines_queue_and_totals_are_shown() {
        let status = json!({
            "version": "0.1.0",
            "engines": [{
                "model": "smollm2", "state": "resident", "pid": 4711, "address": "unix:/run/1.sock",
                "generation": 1, "in_flight": 1, "parallel": 1, "uptime_s": 62,
            }],
            "queue": [{ "model": "gemma", "waiting": 3, "oldest_wait_ms": 2500 }],
            "totals": { "requests": 9, "failed": 1, "loads": 2, "swaps": 1, "crashes": 0, "relaunches": 0 },
        });
        insta::assert_snapshot!(render("http://127.0.0.1:8080/v1", &status), @r"
        gglib 0.1.0 at http://127.0.0.1:8080/v1
        smollm2              resident  pid 4711     1 of 1 in use, up 62 s
        gemma                3 waiting, the longest for 2 s
        9 requests, 1 failed; 2 loads, 1 swaps, 0 crashes, 0 relaunches
        ");
    }

    #[test]
    fn an_idle_endpoint_says_so() {
        let status = json!({ "version": "0.1.0", "engines": [], "queue": [], "totals": {} });
        insta::assert_snapshot!(render("http://127.0.0.1:8080/v1", &status), @r"
        gglib 0.1.0 at http://127.0.0.1:8080/v1
        No engine is loaded; the first request loads one.
        0 requests, 0 failed; 0 loads, 0 swaps, 0 crashes, 0 relaunches
        ");
    }
}
