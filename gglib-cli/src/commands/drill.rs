//! `gglib drill`: what happens to engines, and what clients see of it.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use gglib_core::config::Config;
use serde_json::{Value, json};

use crate::args::{Common, Drill};
use crate::client;
use crate::drill::engine::EngineProcess;
use crate::drill::instance::{Cast, Instance, Obstacle};
use crate::drill::outcome::{Breach, Outcome};
use crate::drill::play::play;
use crate::drill::scenario::{self, Scenario, Setup};
use crate::drill::scorecard::{Row, Scorecard};
use crate::drill::settings::changed;
use crate::drill::stage::{Audience, Roles, Stage, poll};
use crate::drill::trouble::Trouble;
use crate::error::CliError;
use crate::exit::Exit;
use crate::shutdown::Stop;
use crate::{choice, install, settings, ui};

/// How long the processes of engines may take to end when their endpoint has.
const GONE: Duration = Duration::from_secs(10);

pub(super) async fn run(args: &Drill, common: &Common) -> Result<Exit, CliError> {
    if args.list {
        ui::part(&scenario::list());
        return Ok(Exit::Success);
    }
    let mut stop = Stop::listen().and_then(Stop::or_hangup).map_err(CliError::Runtime)?;
    let config = settings::load(common, &[])?;
    let mut session = Session::new(args, &config);
    let outcome = tokio::select! {
        outcome = session.run() => Some(outcome),
        () = stop.requested() => None,
    };
    // After Ctrl-C, or an error, it is still there.
    session.close().await;
    session.wait_for_engines().await;
    match outcome {
        Some(outcome) => outcome.map(|()| session.report()),
        None => Ok(Exit::Interrupted),
    }
}

/// One run of the command.
struct Session<'a> {
    args: &'a Drill,
    config: &'a Config,
    card: Scorecard,
    /// Scenarios that could not be played, and why.
    unplayed: Vec<(Scenario, Trouble)>,
    /// Engines of our own endpoints.
    engines: BTreeSet<EngineProcess>,
    /// How many of them outlived their endpoint.
    left: usize,
    /// An endpoint of our own that runs.
    instance: Option<Instance>,
    progress: ui::Drilling,
}

impl<'a> Session<'a> {
    fn new(args: &'a Drill, config: &'a Config) -> Self {
        let (card, progress) = (Scorecard::default(), ui::Drilling::new());
        let (unplayed, engines) = (Vec::new(), BTreeSet::new());
        Self { args, config, card, unplayed, engines, left: 0, instance: None, progress }
    }

    async fn run(&mut self) -> Result<(), CliError> {
        if self.args.live.live { self.live().await } else { self.apart().await }
    }

    /// Plays on endpoints of our own, one for each setup.
    async fn apart(&mut self) -> Result<(), CliError> {
        let cast = Cast::of(self.config, self.args.model.as_deref())?;
        let binary = install::engine(self.config)?;
        self.introduce(&format!("{} on an endpoint of its own", cast.model), Some(&binary));
        for setup in [Setup::Usual, Setup::TakenPort, Setup::FullDisk] {
            let scenarios = self.chosen(|scenario| scenario.setup() == setup);
            if !scenarios.is_empty() {
                self.set_up(setup, &cast, &binary, &scenarios).await?;
            }
        }
        Ok(())
    }

    async fn set_up(
        &mut self,
        setup: Setup,
        cast: &Cast,
        binary: &Path,
        scenarios: &[Scenario],
    ) -> Result<(), CliError> {
        let instance = Instance::start(setup, self.config, cast, binary).await?;
        let (url, obstacle) = (instance.url(), instance.obstacle());
        self.instance = Some(instance);
        let roles = Roles {
            model: cast.model.to_string(),
            other: Some(cast.other.0.to_string()),
            context: cast.spec.context,
        };
        let stage = Stage::new(&url, self.config, roles, Audience::DrillAlone)?;
        if setup != Setup::TakenPort {
            self.warm_up(&stage).await?;
        }
        self.play_all(scenarios, &stage, &obstacle).await;
        self.engines.extend(stage.engines_seen());
        self.close().await;
        Ok(())
    }

    /// Plays on the endpoint that runs at the configured address.
    async fn live(&mut self) -> Result<(), CliError> {
        let url = format!("http://{}/v1", self.config.server.listen);
        let status = client::get_json(&url, "/status").await?;
        if !status["version"].is_string() {
            return Err(CliError::Strange { url, answer: "a status without a version".to_owned() });
        }
        self.agree(&url).await?;
        let named = client::model(self.args.model.clone(), &url, self.config).await?;
        let mut models = client::models(&url).await?;
        models.retain(|model| model["id"].as_str().is_some_and(|name| choice::may_talk(self.config, name)));
        let roles = roles(&named, &models);
        self.introduce(&format!("{} on the running endpoint {url}", roles.model), None);
        let stage = Stage::new(&url, self.config, roles, Audience::OthersToo)?;
        self.warm_up(&stage).await?;
        // What it is not set up for is only tried, and refused, if it was asked for.
        let has_two = stage.roles.other.is_some();
        let is_possible = |scenario: Scenario| match scenario.setup() {
            Setup::Usual => scenario != Scenario::TwoModels || has_two,
            Setup::TakenPort | Setup::FullDisk => false,
        };
        let scenarios = self.chosen(|scenario| !self.args.scenario.is_empty() || is_possible(scenario));
        self.play_all(&scenarios, &stage, &Obstacle::none()).await;
        Ok(())
    }

    async fn agree(&self, url: &str) -> Result<(), CliError> {
        if self.args.live.yes {
            return Ok(());
        }
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Err(CliError::LiveConsent(url.to_owned()));
        }
        let question = format!("Kill and stop engines of {url}? Whoever else uses them will notice.");
        if ui::ask(&question).await { Ok(()) } else { Err(CliError::LiveDeclined(url.to_owned())) }
    }

    fn chosen(&self, fits: impl Fn(Scenario) -> bool) -> Vec<Scenario> {
        let asked = &self.args.scenario;
        let is_chosen = |scenario: &Scenario| asked.is_empty() || asked.contains(scenario);
        Scenario::all().iter().copied().filter(is_chosen).filter(|scenario| fits(*scenario)).collect()
    }

    fn introduce(&self, what: &str, binary: Option<&Path>) {
        if self.args.json {
            return;
        }
        let changed = changed(self.config);
        let settings = if changed.is_empty() {
            "Settings: as shipped".to_owned()
        } else {
            format!("Settings that are not as shipped:\n  {}", changed.join("\n  "))
        };
        let engine = binary.map(|binary| format!("Engine: {}\n", binary.display())).unwrap_or_default();
        let (bound, headings) = (self.config.bound(), Scorecard::headings());
        self.progress.part(&format!("Drill of {what}\n{engine}Promise: {bound}\n{settings}\n\n{headings}"));
    }

    /// Without a first answer there is nothing to drill. Who uses the endpoint is let finish first.
    async fn warm_up(&self, stage: &Stage) -> Result<(), CliError> {
        self.progress.at("waiting until nobody uses the endpoint");
        stage.idle().await.map_err(CliError::InUse)?;
        self.progress.at("loading the model");
        let answered = stage.is_well().await;
        answered.map_err(|breach| CliError::Model(format!("the model gives no answer: {breach}")))
    }

    /// Plays one after the other, and shows each.
    async fn play_all(&mut self, scenarios: &[Scenario], stage: &Stage, obstacle: &Obstacle) {
        let mut is_well = true;
        for scenario in scenarios {
            if !is_well {
                self.leave_out(*scenario, Trouble::Unwell);
                continue;
            }
            self.progress.at(scenario.about());
            match play(*scenario, stage, obstacle).await {
                Ok(rows) => {
                    if !self.args.json {
                        self.progress.part(&rows.iter().map(Row::to_text).collect::<String>());
                    }
                    let afterwards =
                        |row: &Row| matches!(row.outcome, Outcome::Broken { why: Breach::Afterwards(_) });
                    is_well = !rows.iter().any(afterwards);
                    self.card.rows.extend(rows);
                }
                Err(trouble) => self.leave_out(*scenario, trouble),
            }
        }
    }

    fn leave_out(&mut self, scenario: Scenario, trouble: Trouble) {
        self.progress.warning(&format!("{} was not played: {trouble}", scenario.name()));
        self.unplayed.push((scenario, trouble));
    }

    async fn close(&mut self) {
        if let Some(instance) = self.instance.take() {
            instance.shut_down().await;
        }
    }

    /// Waits for the engines of endpoints that have ended.
    async fn wait_for_engines(&mut self) {
        let running = || self.engines.iter().filter(|engine| engine.is_running()).count();
        let all_gone = poll("engines to end", GONE, async || (running() == 0).then_some(())).await;
        self.left = if all_gone.is_ok() { 0 } else { running() };
    }

    /// Says what it has come to.
    fn report(&self) -> Exit {
        if self.args.json {
            self.progress.part(&format!("{}\n", self.to_json()));
        } else {
            self.progress.part(&format!("\n{}\n", self.card.verdict()));
            if self.left > 0 {
                self.progress.warning(&format!("{} engines outlived their endpoint", self.left));
            }
        }
        match (self.is_held(), self.unplayed.is_empty()) {
            (false, _) => Exit::Broken,
            (true, false) => Exit::Failure,
            (true, true) => Exit::Success,
        }
    }

    fn is_held(&self) -> bool {
        self.card.rows.iter().all(Row::is_held) && self.left == 0
    }

    fn to_json(&self) -> Value {
        let unplayed = |(scenario, trouble): &(Scenario, Trouble)| json!({ "scenario": scenario.name(), "why": trouble.to_string() });
        let mut card = self.card.to_json();
        card["held"] = self.is_held().into();
        card["not_played"] = self.unplayed.iter().map(unplayed).collect();
        card["engines_left"] = self.left.into();
        card["changed_settings"] = changed(self.config).into();
        card
    }
}

/// The model that is `named`, by its own name, since that is what `/status` shows; and another one.
fn roles(named: &str, models: &[Value]) -> Roles {
    let name = |model: &Value| model["id"].as_str().map(str::to_owned);
    let meant = client::find(models, named);
    let model = meant.and_then(name).unwrap_or_else(|| named.to_owned());
    let context = meant.and_then(|model| u32::try_from(model["context_length"].as_u64()?).ok());
    let other = models.iter().filter_map(name).find(|other| *other != model);
    Roles { model, other, context }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_known_by_its_name_or_alias_and_the_other_is_another() {
        let models = [
            json!({ "id": "a", "aliases": ["x"], "context_length": 512 }),
            json!({ "id": "b", "aliases": [], "context_length": null }),
        ];
        let found = |named: &str| {
            let Roles { model, other, context } = roles(named, &models);
            (model, other, context)
        };
        assert_eq!(found("x"), ("a".to_owned(), Some("b".to_owned()), Some(512)));
        assert_eq!(found("b"), ("b".to_owned(), Some("a".to_owned()), None));
        let Roles { model, other, .. } = roles("a", &models[..1]);
        assert_eq!((&*model, other), ("a", None));
    }
}
