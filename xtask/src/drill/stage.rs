//! Where a scenario is played: a `gglib serve`, its fake engines and a client.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use gglib_cli::drill::client::{Call, Client};
use gglib_cli::drill::outcome::{Asked, Outcome, Seen};
use gglib_core::config::{self, Sources};
use gglib_testkit::{Entry, Log, Scripted, fake_engine};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::scenario::Scenario;
use crate::endpoint::Endpoint;

/// What every scenario changes of the shipped defaults.
const CHANGED: &[(&str, &str)] = &[
    ("admission.max_wait", "\"15s\""),
    ("admission.quantum", "\"1s\""),
    ("engine.load_limit", "\"10s\""),
    ("engine.load_stall", "\"3s\""),
    ("recovery.repair_timeout", "\"3s\""),
    ("timeouts.first_content", "\"3s\""),
    ("timeouts.idle", "\"3s\""),
    ("timeouts.request", "\"20s\""),
    ("timeouts.response_headers", "\"2s\""),
    ("timeouts.total", "\"15s\""),
];

/// For what has to happen by itself.
const SOON: Duration = Duration::from_secs(20);
const GRAIN: Duration = Duration::from_millis(10);

/// An endpoint that is being drilled.
pub(super) struct Stage {
    pub(super) client: Client,
    /// The longest that a request may take.
    pub(super) bound: Duration,
    pub(super) endpoint: Endpoint,
    scripts: BTreeMap<&'static str, Scripted>,
    directory: tempfile::TempDir,
}

impl Stage {
    /// Starts the endpoint; no engine is loaded yet.
    pub(super) async fn set(scenario: &Scenario) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let scripts: BTreeMap<_, _> =
            scenario.models.iter().map(|(name, script, _)| (*name, script.place())).collect();
        let mut toml = settings(&scenario.settings);
        writeln!(toml, "engine.binary = \"{}\"", fake_engine().display())?;
        for (name, _, keys) in &scenario.models {
            let script = &scripts[name];
            let (model, args) = (script.model(), script.args());
            writeln!(
                toml,
                "[models.{name}]\npath = \"{}\"\nargs = {args:?}\ncontext = 2048\n{keys}",
                model.display()
            )?;
        }
        let bound = longest(&toml).with_context(|| scenario.name)?;
        let (xtask, place) = (std::env::current_exe()?, directory.path().to_owned());
        // It blocks until the endpoint says its address, and the other scenarios have clocks to watch.
        let endpoint = spawn_blocking(move || Endpoint::start(&xtask, &place, &toml)).await??;
        let client = Client::new(&endpoint.base_url(), bound + Duration::from_secs(10))?;
        Ok(Self { client, bound, endpoint, scripts, directory })
    }

    /// Asks `model` and waits for the end.
    pub(super) async fn ask(&self, model: &str, asked: Asked) -> Seen {
        self.ask_with(model, asked, &json!({})).await
    }

    /// The same with further members of the body.
    pub(super) async fn ask_with(&self, model: &str, asked: Asked, more: &Value) -> Seen {
        self.client.ask(asked, body(model, more)).await
    }

    /// Sends a request to `model`.
    pub(super) fn send(&self, model: &str, asked: Asked) -> Call {
        self.client.send(asked, body(model, &json!({})))
    }

    /// A request that must be answered in full, as a part of a scenario.
    pub(super) async fn must_answer(&self, model: &str) -> Result<(), String> {
        answered(&self.ask(model, Asked::Plain).await, self.bound, model)
    }

    /// Waits until a `POST` has reached an engine of `model`, `count` in all.
    pub(super) async fn until_tries(&self, model: &str, count: usize) -> Result<(), String> {
        self.until_log(model, "requests", |log| log.requests() >= count).await
    }

    /// Waits until what the engines of `model` have done fulfils `condition`.
    pub(super) async fn until_log(
        &self,
        model: &str,
        what: &str,
        condition: impl Fn(&Log) -> bool,
    ) -> Result<(), String> {
        let waited = timeout(SOON, async {
            while !condition(&self.scripts[model].log()) {
                sleep(GRAIN).await;
            }
        });
        waited.await.map_err(|_| format!("the engine of {model} had not the right {what}"))
    }

    /// Waits until `/status` fulfils `condition`.
    pub(super) async fn until_status(
        &self,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Result<(), String> {
        let waited = timeout(SOON, async {
            while !self.status().await.is_some_and(|status| condition(&status)) {
                sleep(GRAIN).await;
            }
        });
        waited.await.map_err(|_| format!("waited in vain for {what}: {:?}", self.scripts.keys()))
    }

    pub(super) async fn status(&self) -> Option<Value> {
        self.client.get("/status").await
    }

    /// The process of the only engine.
    pub(super) async fn engine(&self) -> Result<u32, String> {
        self.until_status("an engine", |status| status["engines"][0]["pid"].is_u64()).await?;
        let status = self.status().await.unwrap_or_default();
        let pid = status["engines"][0]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.ok_or_else(|| "there is no engine".to_owned())
    }

    /// Writes the configuration anew, with one more line.
    pub(super) fn save(&self, line: &str) -> Result<(), String> {
        let path = self.directory.path().join("gglib.toml");
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        std::fs::write(&path, format!("{line}\n{text}")).map_err(|error| error.to_string())
    }

    /// How often the engines of `model` were asked for a chat completion.
    pub(super) fn tries(&self, model: &str) -> usize {
        let asks =
            |entry: &&Entry| matches!(entry, Entry::Requested { path, .. } if path == "/v1/chat/completions");
        self.scripts[model].log().entries.iter().filter(asks).count()
    }

    pub(super) fn log(&self, model: &str) -> Log {
        self.scripts[model].log()
    }

    /// Whether everything is as if nothing had been: each model answers, at the latest after the time that it says
    /// itself, and nothing is held.
    pub(super) async fn afterwards(&self) -> Result<(), String> {
        for model in self.scripts.keys() {
            let seen = self.ask(model, Asked::Plain).await;
            if let Outcome::Refused { retry_after, .. } = seen.judge(self.bound) {
                sleep(retry_after).await;
                self.must_answer(model).await?;
            } else {
                answered(&seen, self.bound, model)?;
            }
        }
        self.until_status("an endpoint that holds nothing", |status| {
            let engines = status["engines"].as_array();
            let idle = engines.is_some_and(|engines| engines.iter().all(|engine| engine["in_flight"] == 0));
            idle && status["queue"].as_array().is_some_and(Vec::is_empty)
        })
        .await
    }
}

/// The settings that every scenario changes, as lines of TOML.
pub(super) fn changed() -> String {
    settings(&[])
}

/// The longest that a request may take with the configuration `toml`.
fn longest(toml: &str) -> Result<Duration> {
    let sources = Sources { file: Some((Path::new("gglib.toml"), toml)), env: &|_| None, flags: &[] };
    Ok(config::load(&sources)?.bound().total)
}

fn settings(own: &[(&str, &str)]) -> String {
    let settings: BTreeMap<_, _> = CHANGED.iter().chain(own).copied().collect();
    settings.iter().fold(String::new(), |text, (key, value)| text + key + " = " + value + "\n")
}

fn body(model: &str, more: &Value) -> Value {
    let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": "Count." }] });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// An error unless `seen` is a full answer.
pub(super) fn answered(seen: &Seen, bound: Duration, what: &str) -> Result<(), String> {
    match seen.judge(bound) {
        Outcome::Answered { .. } => Ok(()),
        other => Err(format!("{what} was not answered: {other}")),
    }
}
