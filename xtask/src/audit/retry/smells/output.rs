//! What the linter found, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::rules::{self, Level};
use super::{Lint, Smell};

/// The schema that [`sarif`] follows.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// For people: `path:line: [rule] …` with the remedy below, and a line of counts at the end.
pub fn text(lint: &Lint) -> String {
    let mut text = String::new();
    for smell in &lint.smells {
        let note = if smell.rule.level == Level::Note { "note: " } else { "" };
        let Smell { path, line: at, item, rule } = smell;
        _ = writeln!(
            text,
            "{path}:{at}: {note}[{}] `{item}` {}\n    -> {}",
            rule.id, rule.problem, rule.remedy
        );
    }
    for path in &lint.unreadable {
        _ = writeln!(text, "{path}: not linted: it does not parse");
    }
    let notes = lint.smells.iter().filter(|smell| smell.rule.level == Level::Note).count();
    let warnings = lint.smells.len() - notes;
    _ = writeln!(text, "audit retry: {} files: {warnings} warnings, {notes} notes", lint.files);
    text
}

/// For programs: `smells`, `files` (their number) and `unreadable` (paths).
pub fn json(lint: &Lint) -> Value {
    let smell = |smell: &Smell| {
        json!({
            "path": smell.path,
            "line": smell.line,
            "item": smell.item,
            "rule": smell.rule.id,
            "level": level(smell.rule.level),
            "problem": smell.rule.problem,
            "remedy": smell.rule.remedy,
        })
    };
    let smells: Vec<Value> = lint.smells.iter().map(smell).collect();
    json!({ "smells": smells, "files": lint.files, "unreadable": lint.unreadable })
}

/// For code scanners: SARIF 2.1.0 (OASIS), with every rule and one result per smell.
pub fn sarif(lint: &Lint) -> Value {
    let rules = rules::ALL.iter().map(|rule| {
        json!({
            "id": rule.id,
            "shortDescription": { "text": rule.problem },
            "help": { "text": rule.remedy },
            "defaultConfiguration": { "level": level(rule.level) },
        })
    });
    let results = lint.smells.iter().map(|smell| {
        let place = json!({
            "artifactLocation": { "uri": smell.path.replace(' ', "%20") },
            "region": { "startLine": smell.line },
        });
        json!({
            "ruleId": smell.rule.id,
            "level": level(smell.rule.level),
            "message": { "text": format!("`{}` {}; {}", smell.item, smell.rule.problem, smell.rule.remedy) },
            "locations": [{ "physicalLocation": place }],
        })
    });
    let driver = json!({
        "name": "cargo xtask audit retry",
        "version": env!("CARGO_PKG_VERSION"),
        "rules": rules.collect::<Vec<_>>(),
    });
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{ "tool": { "driver": driver }, "results": results.collect::<Vec<_>>() }],
    })
}

/// The level's name in SARIF, and in our own JSON.
fn level(level: Level) -> &'static str {
    match level {
        Level::Warning => "warning",
        Level::Note => "note",
    }
}
