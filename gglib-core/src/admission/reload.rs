//! Changes from outside: the configuration, and preloading.

use std::collections::{BTreeMap, BTreeSet};

use super::command::Command;
use super::machine::Admission;
use super::model::Model;
use super::{Profile, Refusal, Settings};
use crate::model::ModelName;

impl Admission {
    /// Marks every model that is to be loaded at the start.
    pub(super) fn preload(&mut self) {
        for model in self.models.values_mut() {
            model.preload = model.profile.preload;
        }
    }

    /// Takes over a configuration by what is different.
    ///
    /// A model that was removed is refused to its waiters, for a moment if only its name was. One whose revision is
    /// another one is new: its engine ends when its leases are back, its breaker is closed, nothing is known of it; its
    /// waiters stay. Of any other the engine goes on under the new profile.
    pub(super) fn configure(
        &mut self,
        settings: Settings,
        profiles: BTreeMap<ModelName, Profile>,
        renamed: &BTreeSet<ModelName>,
        out: &mut Vec<Command>,
    ) {
        self.settings = settings;
        let mut before = std::mem::take(&mut self.models);
        for (name, profile) in profiles {
            let model = match before.remove(&name) {
                Some(model) if model.profile.revision == profile.revision => {
                    // Estimates come from the model's file and not with the configuration.
                    let known = if profile.footprint.is_some() { &profile } else { &model.profile };
                    let (footprint, measured) = (known.footprint, known.measured);
                    Model { profile: Profile { footprint, measured, ..profile }, ..model }
                }
                Some(Model { queue, moved, behind, .. }) => {
                    Model { queue, moved, behind, ..Model::new(profile, settings.breaker) }
                }
                None => Model { preload: profile.preload, ..Model::new(profile, settings.breaker) },
            };
            self.models.insert(name, model);
        }
        for (name, mut removed) in before {
            if renamed.contains(&name) {
                removed.refuse_all(&Refusal::Renamed, Some(Refusal::RENAMED_FOR), out);
            } else {
                removed.refuse_all(&Refusal::NotConfigured, None, out);
            }
        }
        for engine in &mut self.engines {
            match self.models.get(&engine.model) {
                Some(model) if model.profile.revision == engine.profile.revision => {
                    engine.profile = Profile { parallel: engine.profile.parallel, ..model.profile.clone() };
                    engine.charge = engine.measured.or(model.footprint()).unwrap_or(engine.charge);
                }
                _ => engine.retiring = true,
            }
        }
    }
}
