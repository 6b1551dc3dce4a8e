//! Looks at the models' files: at the start, before a launch that requests wait for, and when the configuration changes.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use gglib_core::admission::{Command, Event, Refusal, Settings, Ticket};
use gglib_core::model::{Catalog, ModelName, ModelSpec};
use tokio::sync::oneshot;

use super::{Message, Occasion, Owner, profiles};
use crate::engine::{Launcher, Survey};
use crate::memory::Expected;

impl Owner {
    /// Looks at the file of every model, then loads those that want it.
    pub(super) fn survey_all(&self) {
        let models: Vec<_> = self.catalog.iter().map(|(name, spec)| (name.clone(), spec.clone())).collect();
        let (launcher, inbox) = (Arc::clone(&self.launcher), self.inbox.clone());
        tokio::spawn(async move {
            for (model, spec) in models {
                let survey = look(&launcher, &model, &spec).await;
                let _ = inbox.send(Message::Surveyed { model, spec, survey, occasion: Occasion::Start });
            }
            let _ = inbox.send(Message::Preload);
        });
    }

    /// Looks at the file of the model whose requests are the next to pass the gate.
    pub(super) fn survey_next(&mut self) {
        let Some(model) = self.gate.next() else { return };
        let spec = self.spec(&model);
        let (launcher, inbox) = (Arc::clone(&self.launcher), self.inbox.clone());
        tokio::spawn(async move {
            let survey = look(&launcher, &model, &spec).await;
            let _ = inbox.send(Message::Surveyed { model, spec, survey, occasion: Occasion::Launch });
        });
    }

    /// Looks at the files of the models that `catalog` brings or changes, so that nothing is launched, and nobody
    /// stopped, for a model of which nothing is known.
    pub(super) fn survey_changed(&self, catalog: Catalog, settings: Settings, done: oneshot::Sender<()>) {
        let is_changed = |(name, spec): &(&ModelName, &ModelSpec)| self.configured(name) != Some(*spec);
        let changed: Vec<_> =
            catalog.iter().filter(is_changed).map(|(name, spec)| (name.clone(), spec.clone())).collect();
        let (launcher, inbox) = (Arc::clone(&self.launcher), self.inbox.clone());
        tokio::spawn(async move {
            let surveys = changed.into_iter().map(async |(name, spec)| {
                let survey = look(&launcher, &name, &spec).await;
                (name, survey)
            });
            let surveys = join_all(surveys).await;
            let _ = inbox.send(Message::TakeOver { catalog, settings, surveys, done });
        });
    }

    pub(super) fn take_over(
        &mut self,
        catalog: Catalog,
        settings: Settings,
        surveys: Vec<(ModelName, Survey)>,
    ) {
        let (mut profiles, mut unloadable) = (profiles(&catalog), BTreeMap::new());
        for (name, survey) in surveys {
            match survey {
                Survey::Takes(Expected { estimate, measured }) => {
                    profiles.entry(name).and_modify(|profile| {
                        (profile.footprint, profile.measured) = (Some(estimate), measured);
                    });
                }
                Survey::Unloadable(error) => drop(unloadable.insert(name, error.to_string().into())),
                Survey::Unknown => {}
            }
        }
        let before = std::mem::replace(&mut self.catalog, catalog);
        let is_renamed = |name: &&ModelName| {
            self.configured(name).is_none() && self.catalog.resolve(name.as_str()).is_ok()
        };
        let renamed: BTreeSet<_> = before.iter().map(|(name, _)| name).filter(is_renamed).cloned().collect();
        let catalog = &self.catalog;
        let is_configured = |model: &ModelName| catalog.iter().any(|(name, _)| name == model);
        let removed = self.gate.retain(|model| is_configured(model) || renamed.contains(model));
        let of_other_names = self.gate.retain(is_configured);
        self.tell(Event::Configure { settings, profiles, renamed, unloadable });
        for ticket in removed {
            let refusal = Refusal::NotConfigured;
            self.carry_out(Command::Refuse { ticket, refusal, retry_after: None });
        }
        for ticket in of_other_names {
            let (refusal, retry_after) = (Refusal::Renamed, Some(Refusal::RENAMED_FOR));
            self.carry_out(Command::Refuse { ticket, refusal, retry_after });
        }
    }

    pub(super) fn take_survey(
        &mut self,
        model: &ModelName,
        spec: &ModelSpec,
        survey: Survey,
        occasion: Occasion,
    ) {
        if self.configured(model) != Some(spec) {
            // The configuration has changed over the look. Whoever still stands at the gate wants another file.
            if occasion == Occasion::Launch {
                self.gate.look_again();
                self.survey_next();
            }
            return;
        }
        let unloadable = match survey {
            Survey::Takes(Expected { estimate, measured }) => {
                self.tell(Event::Estimated { model: model.clone(), footprint: estimate, measured });
                None
            }
            Survey::Unloadable(error) if occasion == Occasion::Launch => Some(error.to_string().into()),
            Survey::Unloadable(_) | Survey::Unknown => None,
        };
        if occasion == Occasion::Start {
            return;
        }
        let through = self.gate.open(model);
        match unloadable {
            Some(reason) if !through.is_empty() => self.refuse_unloadable(model, &reason, through),
            _ => through
                .into_iter()
                .for_each(|ticket| self.tell(Event::Arrive { ticket, model: model.clone() })),
        }
        self.survey_next();
    }

    /// Refuses requests that have not entered the queue: nothing must be stopped for them.
    fn refuse_unloadable(&mut self, model: &ModelName, reason: &Arc<str>, tickets: Vec<Ticket>) {
        self.tell(Event::Unloadable { model: model.clone(), reason: Arc::clone(reason) });
        let breakers = self.machine.snapshot(self.now()).breakers;
        let breaker = breakers.into_iter().find(|breaker| breaker.model == *model);
        let retry_after = breaker.and_then(|breaker| breaker.retry_in);
        for ticket in tickets {
            let refusal = Refusal::LoadFailed { reason: Arc::clone(reason) };
            self.carry_out(Command::Refuse { ticket, refusal, retry_after });
        }
    }
}

/// A look that ends in any case: whoever stands at the gate waits for it.
async fn look(launcher: &Launcher, name: &ModelName, spec: &ModelSpec) -> Survey {
    AssertUnwindSafe(launcher.survey(name, spec)).catch_unwind().await.unwrap_or(Survey::Unknown)
}
