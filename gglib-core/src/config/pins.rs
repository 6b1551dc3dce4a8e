//! Pinned models that leave no place for others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Config;
use crate::model::{ModelName, ModelSpec};

/// Pinned models that keep others out for as long as they are loaded: whoever wants one of the others is refused with
/// [`PinnedOut`](crate::admission::Refusal::PinnedOut).
///
/// What their memory leaves is not looked at: how much they take is known only when their files have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinLint {
    /// Together they fill `memory.max_resident`.
    NoSlot {
        /// The pinned models.
        pinned: Vec<ModelName>,
        /// Models that are not pinned; if none, the pinned ones keep each other out.
        kept_out: Vec<ModelName>,
        /// The configured `memory.max_resident`.
        slots: usize,
        /// How many would do.
        needed: usize,
    },
    /// One of them is in a group with others.
    Group {
        /// The pinned model.
        pinned: ModelName,
        /// The others of its group.
        kept_out: Vec<ModelName>,
        /// The group.
        group: String,
    },
}

impl PinLint {
    /// What is doubtful in `config`.
    pub(super) fn all(config: &Config) -> Vec<Self> {
        let pinned: BTreeMap<_, _> = config.models.iter().filter(|(_, spec)| spec.pin).collect();
        let groups: BTreeSet<&str> = pinned.values().filter_map(|spec| spec.group.as_deref()).collect();
        let is_grouped = |spec: &ModelSpec| spec.group.as_deref().is_some_and(|group| groups.contains(group));
        let free = |(_, spec): &(&ModelName, &ModelSpec)| !spec.pin && !is_grouped(spec);
        let kept_out: Vec<_> = config.models.iter().filter(free).map(|(name, _)| name.clone()).collect();
        // Of one group, only one model is ever there.
        let taken = groups.len() + pinned.values().filter(|spec| spec.group.is_none()).count();
        let (slots, needed) = (config.memory.max_resident, taken + usize::from(!kept_out.is_empty()));
        let no_slot = (taken > 0 && needed > slots).then(|| {
            let pinned = pinned.keys().map(|name| (*name).clone()).collect();
            Self::NoSlot { pinned, kept_out, slots, needed }
        });
        let in_group = pinned.iter().filter_map(|(name, spec)| {
            let group = spec.group.clone()?;
            let beside = config
                .models
                .iter()
                .filter(|(other, spec)| other != name && spec.group.as_deref() == Some(group.as_str()));
            let kept_out: Vec<_> = beside.map(|(other, _)| other.clone()).collect();
            (!kept_out.is_empty()).then(|| Self::Group { pinned: (*name).clone(), kept_out, group })
        });
        no_slot.into_iter().chain(in_group).collect()
    }
}

/// Names the models and the remedy.
impl fmt::Display for PinLint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlot { pinned, kept_out, slots, needed } => {
                let others = if kept_out.is_empty() { "each other".to_owned() } else { names(kept_out) };
                write!(
                    f,
                    "once loaded, what is pinned ({}) fills memory.max_resident = {slots} and keeps out {others}; \
                     raise memory.max_resident to {needed}, or pin fewer",
                    names(pinned)
                )
            }
            Self::Group { pinned, kept_out, group } => write!(
                f,
                "once loaded, `{pinned}` is pinned and keeps out {}, of the same group \"{group}\"; unpin it, or take \
                 it out of the group",
                names(kept_out)
            ),
        }
    }
}

fn names(models: &[ModelName]) -> String {
    models.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use crate::config::{Sources, load};

    fn lints(slots: usize, models: &[(&str, &str)]) -> Vec<String> {
        let mut text = format!("[memory]\nmax_resident = {slots}\n");
        for (name, keys) in models {
            text.extend([format!("[models.{name}]\npath = \"{name}.gguf\"\n{keys}\n")]);
        }
        let file = Some(("gglib.toml".as_ref(), text.as_str()));
        let config = load(&Sources { file, env: &|_| None, flags: &[] }).unwrap();
        config.pin_lints().iter().map(ToString::to_string).collect()
    }

    const PINNED: &str = "pin = true";
    const BOTH: &str = "pin = true\ngroup = \"g\"";

    #[test]
    fn pinned_models_that_fill_every_slot_are_found() {
        assert_eq!(
            lints(1, &[("a", PINNED), ("b", ""), ("c", "")]),
            [
                "once loaded, what is pinned (`a`) fills memory.max_resident = 1 and keeps out `b`, `c`; raise \
                 memory.max_resident to 2, or pin fewer"
            ]
        );
        assert_eq!(
            lints(1, &[("a", PINNED), ("b", PINNED)]),
            [
                "once loaded, what is pinned (`a`, `b`) fills memory.max_resident = 1 and keeps out each other; \
                 raise memory.max_resident to 2, or pin fewer"
            ]
        );
        assert_eq!(lints(2, &[("a", PINNED), ("b", "")]), [""; 0]);
        assert_eq!(lints(1, &[("a", PINNED)]), [""; 0]);
        assert_eq!(lints(1, &[("a", ""), ("b", "")]), [""; 0]);
    }

    #[test]
    fn a_pinned_model_keeps_out_its_group_whatever_slots_there_are() {
        assert_eq!(
            lints(9, &[("a", BOTH), ("b", "group = \"g\""), ("c", "group = \"h\"")]),
            [
                "once loaded, `a` is pinned and keeps out `b`, of the same group \"g\"; unpin it, or take it out of \
                 the group"
            ]
        );
        // One of the two takes a slot, and no slot would help the other one.
        let found = lints(1, &[("a", BOTH), ("b", BOTH)]);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|lint| lint.contains("group")), "{found:?}");
    }
}
