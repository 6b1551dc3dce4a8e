//! What a drill has come to, row by row.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::outcome::{Asked, Outcome};
use crate::view::cell::{left, millis, right, wrap};

/// The columns, with a blank between them: 80 at most together with the last, `HELD`.
const SCENARIO: usize = 25;
const ASKED: usize = 6;
const SAW: usize = 27;
const TIME: usize = 6;
/// Lines that one cell may take.
const LINES: usize = 6;

/// One request of a drill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What happened to the engine, or what the client did.
    pub scenario: String,
    /// How the request was asked.
    pub asked: Asked,
    /// What the client saw.
    pub outcome: Outcome,
    /// From sending to the end.
    pub took: Duration,
    /// How long it may have taken.
    pub bound: Duration,
}

/// The rows of a drill, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scorecard {
    /// The rows.
    pub rows: Vec<Row>,
}

impl Row {
    /// Whether the promise was held.
    pub fn is_held(&self) -> bool {
        self.outcome.is_kept() && self.took <= self.bound
    }

    /// The row for a terminal of 80 columns, with a line end; what does not fit into a cell goes on below it.
    pub fn to_text(&self) -> String {
        let scenario = wrap(&self.scenario, SCENARIO, LINES);
        let saw = wrap(&self.outcome.to_string(), SAW, LINES);
        let (asked, took, bound) = (self.asked.to_string(), time(self.took), time(self.bound));
        let held = if self.is_held() { "yes" } else { "NO" };
        let cell = |lines: &[String], line: usize| lines.get(line).cloned().unwrap_or_default();
        let mut text = columns([&cell(&scenario, 0), &asked, &cell(&saw, 0), &took, &bound, held]);
        for line in 1..scenario.len().max(saw.len()) {
            text += &columns([&cell(&scenario, line), "", &cell(&saw, line), "", "", ""]);
        }
        text
    }

    fn to_json(&self) -> Value {
        let (kind, details) = match &self.outcome {
            Outcome::Answered { recovery } => ("answered", json!({ "recovery": recovery })),
            Outcome::Failed { status, code } => {
                ("failed", json!({ "status": status.as_u16(), "code": code }))
            }
            Outcome::Refused { status, code, retry_after } => (
                "refused",
                json!({ "status": status.as_u16(), "code": code, "retry_after_ms": in_millis(*retry_after) }),
            ),
            Outcome::LeftByClient => ("left_by_client", json!({})),
            Outcome::Broken { why } => ("broken", json!({ "why": why.to_string() })),
        };
        let mut row = json!({
            "scenario": self.scenario,
            "asked": self.asked.to_string(),
            "outcome": kind,
            "took_ms": in_millis(self.took),
            "bound_ms": in_millis(self.bound),
            "held": self.is_held(),
        });
        for (name, value) in details.as_object().into_iter().flatten() {
            row[name] = value.clone();
        }
        row
    }
}

impl Scorecard {
    /// Whether the promise was held in every row, and there is any.
    pub fn is_held(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(Row::is_held)
    }

    /// In how many rows, of how many: `The promise was held in 3 of 4 requests.`
    pub fn verdict(&self) -> String {
        let held = self.rows.iter().filter(|row| row.is_held()).count();
        format!("The promise was held in {held} of {} requests.", self.rows.len())
    }

    /// The headings of [`Row::to_text`], with a line end.
    pub fn headings() -> String {
        columns(["SCENARIO", "ASKED", "WHAT THE CLIENT SAW", "TOOK", "BOUND", "HELD"])
    }

    /// The whole card for a terminal of 80 columns.
    pub fn to_text(&self) -> String {
        let rows: String = self.rows.iter().map(Row::to_text).collect();
        format!("{}{rows}\n{}\n", Self::headings(), self.verdict())
    }

    /// The rows as a Markdown table. Without times: the same outcomes give the same text.
    pub fn to_markdown(&self) -> String {
        let mut table =
            "| Scenario | Asked | What the client saw | Bound held |\n|---|---|---|---|\n".to_owned();
        for row in &self.rows {
            let held = if row.is_held() { "yes" } else { "**no**" };
            let [scenario, saw] = [&row.scenario, &row.outcome.to_string()].map(|text| cell(text));
            // Writing to a string cannot fail.
            let _ = writeln!(table, "| {scenario} | {} | {saw} | {held} |", row.asked);
        }
        table
    }

    /// The whole card for programs: `{"held": true, "rows": […]}`.
    pub fn to_json(&self) -> Value {
        json!({ "held": self.is_held(), "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>() })
    }
}

fn columns([scenario, asked, saw, took, bound, held]: [&str; 6]) -> String {
    let line = format!(
        "{} {} {} {} {} {held}",
        left(scenario, SCENARIO),
        left(asked, ASKED),
        left(saw, SAW),
        right(took, TIME),
        right(bound, TIME)
    );
    format!("{}\n", line.trim_end())
}

fn time(duration: Duration) -> String {
    millis(&in_millis(duration).into())
}

fn in_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Text that stays within one cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use insta::assert_snapshot;

    use super::*;
    use crate::drill::outcome::Breach;

    fn row(scenario: &str, asked: Asked, outcome: Outcome, took: u64) -> Row {
        let bound = Duration::from_mins(45);
        Row { scenario: scenario.to_owned(), asked, outcome, took: Duration::from_millis(took), bound }
    }

    fn kept() -> Scorecard {
        let recovery = Some("continuation".to_owned());
        let code = "timeout_first_content".to_owned();
        let status = StatusCode::GATEWAY_TIMEOUT;
        let refused = Outcome::Refused {
            status: StatusCode::TOO_MANY_REQUESTS,
            code: "queue_full".to_owned(),
            retry_after: Duration::from_millis(2300),
        };
        Scorecard {
            rows: vec![
                row("kill -9 idle", Asked::Plain, Outcome::Answered { recovery: None }, 812),
                row("kill -9 in the middle of a stream", Asked::Stream, Outcome::Answered { recovery }, 2450),
                row("SIGSTOP idle", Asked::Plain, Outcome::Failed { status, code }, 93_000),
                row("full queue", Asked::Plain, refused, 3),
                row("client leaves a stream", Asked::Stream, Outcome::LeftByClient, 40),
            ],
        }
    }

    fn broken() -> Scorecard {
        let mut card = kept();
        let why = Breach::Unfinished;
        card.rows.push(row("a | b", Asked::Stream, Outcome::Broken { why }, 7));
        card
    }

    #[test]
    fn a_card_fits_into_80_columns() {
        let text = broken().to_text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_snapshot!(text, @"
        SCENARIO                  ASKED  WHAT THE CLIENT SAW           TOOK  BOUND HELD
        kill -9 idle              plain  full answer                  812ms    45m yes
        kill -9 in the middle of  stream full answer (continuation)    2.4s    45m yes
        a stream
        SIGSTOP idle              plain  504 timeout_first_content      93s    45m yes
        full queue                plain  429 queue_full, retry after    3ms    45m yes
                                         2.3 s
        client leaves a stream    stream the client left               40ms    45m yes
        a | b                     stream broken: the stream ended       7ms    45m NO
                                         without a finish_reason,
                                         and looks complete

        The promise was held in 5 of 6 requests.
        ");
    }

    #[test]
    fn a_card_is_a_markdown_table_without_times() {
        assert_snapshot!(broken().to_markdown(), @r#"
        | Scenario | Asked | What the client saw | Bound held |
        |---|---|---|---|
        | kill -9 idle | plain | full answer | yes |
        | kill -9 in the middle of a stream | stream | full answer (continuation) | yes |
        | SIGSTOP idle | plain | 504 timeout_first_content | yes |
        | full queue | plain | 429 queue_full, retry after 2.3 s | yes |
        | client leaves a stream | stream | the client left | yes |
        | a \| b | stream | broken: the stream ended without a finish_reason, and looks complete | **no** |
        "#);
    }

    #[test]
    fn a_card_is_json_for_programs() {
        let rows = broken().to_json()["rows"].take();
        let lines: Vec<String> = rows.as_array().unwrap().iter().map(Value::to_string).collect();
        assert_snapshot!(lines.join("\n"), @r#"
        {"scenario":"kill -9 idle","asked":"plain","outcome":"answered","took_ms":812,"bound_ms":2700000,"held":true,"recovery":null}
        {"scenario":"kill -9 in the middle of a stream","asked":"stream","outcome":"answered","took_ms":2450,"bound_ms":2700000,"held":true,"recovery":"continuation"}
        {"scenario":"SIGSTOP idle","asked":"plain","outcome":"failed","took_ms":93000,"bound_ms":2700000,"held":true,"status":504,"code":"timeout_first_content"}
        {"scenario":"full queue","asked":"plain","outcome":"refused","took_ms":3,"bound_ms":2700000,"held":true,"status":429,"code":"queue_full","retry_after_ms":2300}
        {"scenario":"client leaves a stream","asked":"stream","outcome":"left_by_client","took_ms":40,"bound_ms":2700000,"held":true}
        {"scenario":"a | b","asked":"stream","outcome":"broken","took_ms":7,"bound_ms":2700000,"held":false,"why":"the stream ended without a finish_reason, and looks complete"}
        "#);
    }

    #[test]
    fn one_broken_promise_decides() {
        assert_eq!((kept().is_held(), broken().is_held()), (true, false));
        assert_eq!(broken().verdict(), "The promise was held in 5 of 6 requests.");
        assert_eq!(broken().to_json()["held"], false);
        assert!(!Scorecard::default().is_held());
        let late = row("late", Asked::Plain, Outcome::Answered { recovery: None }, 45 * 60_000 + 1);
        assert!(!late.is_held());
    }
}
