//! A new configuration, and what is expected of the machine then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gglib_core::admission::{Event, Profile, Settings};
use gglib_core::model::ModelName;

use super::{Known, World, size};
use crate::desk::{gib, seconds};
use crate::random::Change;

impl World {
    /// One thing is different from now on.
    pub(super) fn configure(&mut self, which: usize, change: Change) {
        let changed = self.names[which % self.names.len()].clone();
        let (mut settings, mut profiles) = (self.settings, self.profiles.clone());
        let (mut estimate, mut unloadable) = (None, BTreeMap::new());
        match change {
            Change::Revision => {
                if let Some(profile) = profiles.get_mut(&changed) {
                    profile.revision += 1;
                    estimate = Some((changed.clone(), gib(which as u64 / 4 % 7)));
                }
            }
            Change::Spoilt => {
                if let Some(profile) = profiles.get_mut(&changed) {
                    profile.revision += 1;
                    unloadable.insert(changed, "spoilt".into());
                }
            }
            Change::Group => {
                if let Some(profile) = profiles.get_mut(&changed) {
                    profile.group = profile.group.is_none().then(|| "g".to_owned());
                }
            }
            Change::Presence => {
                if profiles.remove(&changed).is_none() {
                    profiles.insert(changed.clone(), self.all.1[&changed].clone());
                }
            }
            Change::Pin => {
                if let Some(profile) = profiles.get_mut(&changed) {
                    profile.pinned = !profile.pinned;
                }
            }
            Change::Bounds(less) => {
                let Settings { budget, max_resident, .. } = self.all.0;
                settings.budget = budget.saturating_sub(gib(less));
                settings.max_resident = max_resident.saturating_sub(usize::from(less == 3)).max(1);
            }
            Change::Waits(parts) => {
                let parts = u32::try_from(parts).expect("they are few") + 1;
                let Settings { stall, max_wait, queue, quantum, .. } = self.all.0;
                (settings.stall, settings.max_wait) = (stall / parts, max_wait / parts);
                (settings.queue, settings.quantum) = (queue / parts as usize, quantum / parts);
            }
            Change::Use(more) => {
                if let Some(profile) = profiles.get_mut(&changed) {
                    profile.parallel = 1 + u32::try_from(more).expect("it is little");
                    profile.ttl = (more > 0).then(|| seconds(10 * more));
                    profile.preload = more == 2;
                }
            }
        }
        // What an engine takes is never in a configuration; the file of a model that is changed is looked at.
        for (name, profile) in &mut profiles {
            profile.footprint = estimate.as_ref().filter(|(of, _)| of == name).map(|(_, memory)| *memory);
        }
        self.take_over(settings, profiles, unloadable);
    }

    pub(super) fn take_over(
        &mut self,
        settings: Settings,
        profiles: BTreeMap<ModelName, Profile>,
        unloadable: BTreeMap<ModelName, Arc<str>>,
    ) {
        for name in &self.names.clone() {
            let (before, after) = (self.profiles.get(name), profiles.get(name));
            if before.map(|profile| profile.revision) == after.map(|profile| profile.revision) {
                continue;
            }
            self.pauses.remove(name);
            self.short_lives.remove(name);
            self.short.remove(name);
            self.known.remove(name);
            self.known.extend(after.map(|profile| (name.clone(), Known::of(profile))));
            if unloadable.contains_key(name) {
                if self.is_awaited(name) {
                    self.pause(name.clone());
                }
            } else if before.is_none() && after.is_some_and(|profile| profile.preload) {
                self.unasked.insert(name.clone());
            }
            let of_it = self.engines.iter().filter(|(_, engine)| engine.model == *name);
            self.outdated.extend(of_it.map(|(generation, _)| *generation));
        }
        for engine in self.engines.values_mut() {
            let same = |profile: &&Profile| profile.revision == engine.profile.revision;
            if let Some(profile) = profiles.get(&engine.model).filter(same) {
                engine.profile = Profile { parallel: engine.profile.parallel, ..profile.clone() };
                let known = size(&self.known, &engine.model);
                engine.charge = engine.measured.or(known).unwrap_or(engine.charge);
            }
        }
        self.settings = settings;
        self.profiles.clone_from(&profiles);
        let spoilt: Vec<_> = unloadable.keys().cloned().collect();
        self.tell(Event::Configure { settings, profiles, renamed: BTreeSet::new(), unloadable });
        assert!(
            !spoilt.iter().any(|model| self.is_awaited(model)),
            "somebody waits for what cannot be loaded"
        );
    }
}
