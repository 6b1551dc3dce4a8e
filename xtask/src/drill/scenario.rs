//! One scenario: engines, a request, and what must come of it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use gglib_cli::drill::outcome::{Asked, Breach, Outcome, Seen};
use gglib_cli::drill::scorecard::Row;
use gglib_testkit::{Reply, Script};
use serde_json::{Value, json};

use super::stage::Stage;

/// What is played on a stage; what the client saw of the request that counts, or what went wrong beside it.
type Play = Box<dyn FnOnce(Arc<Stage>) -> Pin<Box<dyn Future<Output = Result<Seen, String>> + Send>> + Send>;

/// A scenario. Unless it says otherwise, model `a` is asked once, with a conversation of one message.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Where it comes from: rows of trackers (T), scenarios of failoverbench (S).
    pub(super) sources: &'static str,
    pub(super) asked: Asked,
    /// The right outcome as [`Outcome`] is shown, without times; see [`expects`](Self::expects).
    pub(super) expected: &'static str,
    /// How often the engines of model `a` have to be asked for it, where that counts.
    pub(super) tries: Option<usize>,
    /// The models, what their engines do, and further keys of theirs.
    pub(super) models: Vec<(&'static str, Script, &'static str)>,
    /// Keys of the configuration that differ from those of every scenario.
    pub(super) settings: Vec<(&'static str, &'static str)>,
    /// Members of the body, besides model and messages, or instead of them.
    body: Value,
    /// The text of the answer, if there is to be one.
    text: Option<String>,
    play: Mutex<Option<Play>>,
}

impl Scenario {
    /// A scenario with the engine of model `a`.
    pub(super) fn new(
        sources: &'static str,
        name: &'static str,
        asked: Asked,
        script: Script,
        expected: &'static str,
    ) -> Self {
        Self {
            name,
            sources,
            asked,
            expected,
            tries: None,
            models: vec![("a", script, "")],
            settings: Vec::new(),
            body: json!({}),
            text: Some(Reply::numbered(5).content()),
            play: Mutex::new(None),
        }
    }

    /// The engines of `a` are asked this often.
    pub(super) fn tries(self, tries: usize) -> Self {
        Self { tries: Some(tries), ..self }
    }

    /// A further model.
    pub(super) fn with(mut self, name: &'static str, script: Script) -> Self {
        self.models.push((name, script, ""));
        self
    }

    /// A key of model `a`.
    pub(super) fn keys(mut self, keys: &'static str) -> Self {
        self.models[0].2 = keys;
        self
    }

    /// A key of the configuration.
    pub(super) fn set(mut self, key: &'static str, value: &'static str) -> Self {
        self.settings.push((key, value));
        self
    }

    /// Members of the body.
    pub(super) fn body(self, body: Value) -> Self {
        Self { body, ..self }
    }

    /// An answer with another text, or one whose text does not matter.
    pub(super) fn text(self, text: Option<&str>) -> Self {
        Self { text: text.map(str::to_owned), ..self }
    }

    /// What is done instead of asking once.
    pub(super) fn play<F>(self, play: impl FnOnce(Arc<Stage>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<Seen, String>> + Send + 'static,
    {
        let play: Play = Box::new(|stage| Box::pin(play(stage)));
        Self { play: Mutex::new(Some(play)), ..self }
    }

    /// Whether `wanted` is in its name or its sources.
    pub(super) fn matches(&self, wanted: &str) -> bool {
        self.name.contains(wanted) || self.sources.split(", ").any(|source| source == wanted)
    }

    /// What it changes of the settings of all scenarios, as items of a Markdown list.
    pub(super) fn own_settings(&self) -> impl Iterator<Item = String> {
        let keys = self.settings.iter().map(|(key, value)| format!("{key} = {value}"));
        let model =
            self.models.iter().filter(|(_, _, keys)| !keys.is_empty()).map(|(_, _, keys)| (*keys).to_owned());
        keys.chain(model).map(|setting| format!("- *{}*: `{setting}`\n", self.name))
    }

    /// Whether this is the right outcome. A stream's error has a status as long as the head is unsent, which a busy
    /// machine may bring to its end; after that it is an event. Both are right.
    pub(super) fn expects(&self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Refused { status, code, .. } => {
                self.expected == format!("{} {code}, Retry-After", status.as_u16())
            }
            Outcome::Failed { code, .. } if self.asked == Asked::Stream => {
                self.expected.rsplit(' ').next() == Some(code)
            }
            other => self.expected == other.to_string(),
        }
    }

    /// Plays it and judges.
    pub(super) async fn run(&self) -> Result<Row> {
        let stage = Arc::new(Stage::set(self).await?);
        let bound = stage.bound;
        let play = self.play.lock().unwrap_or_else(PoisonError::into_inner).take();
        let seen = match play {
            Some(play) => play(Arc::clone(&stage)).await,
            None => Ok(stage.ask_with("a", self.asked, &self.body).await),
        };
        let (outcome, took) = match seen {
            Ok(seen) => (self.judge(&stage, &seen).await, seen.took),
            Err(wrong) => (Outcome::Broken { why: Breach::Afterwards(wrong) }, bound),
        };
        let scenario = format!("{} ({})", self.name, self.sources);
        Ok(Row { scenario, asked: self.asked, outcome, took, bound })
    }

    async fn judge(&self, stage: &Stage, seen: &Seen) -> Outcome {
        let outcome = seen.judge(stage.bound);
        if !outcome.is_kept() {
            return outcome;
        }
        let (tries, content) = (stage.tries("a"), seen.content());
        let why = if let Some(text) =
            self.text.as_ref().filter(|_| matches!(outcome, Outcome::Answered { .. }))
            && *text != content
        {
            Breach::Text(format!("{content:?} instead of {text:?}"))
        } else if let Some(expected) = self.tries.filter(|expected| *expected != tries) {
            Breach::Afterwards(format!("the engine was asked {tries} times instead of {expected}"))
        } else if let Err(wrong) = stage.afterwards().await {
            Breach::Afterwards(wrong)
        } else {
            return outcome;
        };
        Outcome::Broken { why }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gglib_testkit::Launch;
    use http::StatusCode;

    use super::*;

    #[test]
    fn an_outcome_is_right_whatever_its_times_and_a_streams_error_wherever_it_stands() {
        let expects = |asked, expected, outcome: &Outcome| {
            Scenario::new("", "", asked, Script::always(Launch::default()), expected).expects(outcome)
        };
        let failed = |status, code: &str| Outcome::Failed { status, code: code.to_owned() };
        let refused = Outcome::Refused {
            status: StatusCode::TOO_MANY_REQUESTS,
            code: "queue_full".to_owned(),
            retry_after: Duration::from_secs(7),
        };
        let event = failed(StatusCode::OK, "upstream_died");
        let status = failed(StatusCode::BAD_GATEWAY, "upstream_died");
        assert!(expects(Asked::Plain, "429 queue_full, Retry-After", &refused));
        assert!(!expects(Asked::Plain, "503 queue_full, Retry-After", &refused));
        for died in [&event, &status] {
            assert!(expects(Asked::Stream, "error event upstream_died", died));
            assert!(expects(Asked::Stream, "502 upstream_died", died));
        }
        assert!(!expects(Asked::Stream, "error event timeout_idle", &event));
        assert!(!expects(Asked::Plain, "504 upstream_died", &status));
        assert!(!expects(
            Asked::Stream,
            "full answer",
            &Outcome::Answered { recovery: Some("relaunch".into()) }
        ));
    }
}
