//! The list of what has been saved.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::{Key, Remembered};
use crate::model::ModelName;

/// The version of the manifest's form. One of another version is not read.
pub const MANIFEST_VERSION: u64 = 2;

const EXTENSION: &str = ".kv";

/// Which file holds which slot of which model, the oldest first.
///
/// It is written as one JSON object. Half of it, or one with a hole in it, is none: [`decode`](Self::decode) takes
/// all or nothing, and file names are made from numbers, so that a manifest cannot point out of its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
    switched_off: Vec<SwitchedOff>,
}

/// A model whose slots are of no use, as long as its key is this one: another build or file may do better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchedOff {
    /// The model's name.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
    pub model: ModelName,
    /// What was found not to work.
    pub key: Key,
}

/// One saved slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The model's name.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
    pub model: ModelName,
    /// The slot's number in its engine.
    pub slot: u32,
    /// The number of its file; see [`file_name`].
    pub file: u64,
    /// The file's length.
    pub bytes: u64,
    /// Tokens in the slot.
    pub tokens: u64,
    /// The last conversation in it, if that was known.
    pub remembered: Option<Remembered>,
    /// What it depends on.
    pub key: Key,
}

/// Why something is no manifest of ours.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// It is torn, damaged, or something else.
    #[error("it is not a list of saved slots: {0}")]
    Malformed(serde_json::Error),
    /// Another gglib wrote it.
    #[error("it has version {found}, and this gglib reads {MANIFEST_VERSION}")]
    Foreign {
        /// Its version.
        found: u64,
    },
    /// Two entries claim the same.
    #[error("it lists {what} twice")]
    Repeated {
        /// A file, or a slot of a model.
        what: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Version {
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    version: u64,
    entries: Vec<Entry>,
    switched_off: Vec<SwitchedOff>,
}

impl Manifest {
    /// Reads a manifest's bytes.
    ///
    /// # Errors
    /// [`ManifestError`]; whoever reads it goes on with an empty one.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let Version { version } = serde_json::from_slice(bytes).map_err(ManifestError::Malformed)?;
        if version != MANIFEST_VERSION {
            return Err(ManifestError::Foreign { found: version });
        }
        let Wire { entries, switched_off, .. } =
            serde_json::from_slice(bytes).map_err(ManifestError::Malformed)?;
        let (mut files, mut slots) = (BTreeSet::new(), BTreeSet::new());
        for entry in &entries {
            if !files.insert(entry.file) {
                return Err(ManifestError::Repeated { what: file_name(entry.file) });
            }
            if !slots.insert((&entry.model, entry.slot)) {
                return Err(ManifestError::Repeated {
                    what: format!("slot {} of {}", entry.slot, entry.model),
                });
            }
        }
        Ok(Self { entries, switched_off })
    }

    /// The manifest's bytes.
    ///
    /// # Panics
    /// Never: names, numbers and texts are JSON.
    pub fn encode(&self) -> Vec<u8> {
        let Self { entries, switched_off } = self.clone();
        let wire = Wire { version: MANIFEST_VERSION, entries, switched_off };
        serde_json::to_vec_pretty(&wire).expect("names, numbers and texts are JSON")
    }

    /// The saved slots, the oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What the files take, in bytes; saturates.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// A number that no file has; larger than all.
    pub fn next_file(&self) -> u64 {
        self.entries.iter().map(|entry| entry.file).max().map_or(0, |file| file.saturating_add(1))
    }

    /// Adds the newest entry. Returns the one whose place it takes, of the same slot of the same model.
    pub fn put(&mut self, entry: Entry) -> Option<Entry> {
        let same = |old: &Entry| old.model == entry.model && old.slot == entry.slot;
        let replaced = self.entries.iter().position(same).map(|at| self.entries.remove(at));
        self.entries.push(entry);
        replaced
    }

    /// The models that are switched off.
    pub fn switched_off(&self) -> impl Iterator<Item = &ModelName> {
        self.switched_off.iter().map(|off| &off.model)
    }

    /// Nothing of the model is to be saved or restored as long as its key is this one. Returns what was saved of it.
    pub fn switch_off(&mut self, off: SwitchedOff) -> Vec<Entry> {
        let gone = self.remove(|entry| entry.model == off.model);
        self.switched_off.retain(|old| old.model != off.model);
        self.switched_off.push(off);
        gone
    }

    /// Whether the model is switched off with this key. If it was with another one, it is not any more.
    pub fn stays_off(&mut self, model: &ModelName, key: &Key) -> bool {
        let holds = |off: &SwitchedOff| off.key.difference(key).is_none();
        self.switched_off.retain(|off| off.model != *model || holds(off));
        self.switched_off.iter().any(|off| off.model == *model)
    }

    /// Takes out every entry that `unwanted` holds for.
    pub fn remove(&mut self, unwanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.entries.extract_if(.., |entry| unwanted(entry)).collect()
    }

    /// Takes out the oldest entries until the rest fits into `budget` bytes.
    pub fn evict(&mut self, budget: u64) -> Vec<Entry> {
        let mut room = budget;
        let fits = |entry: &&Entry| {
            let left = room.checked_sub(entry.bytes);
            room = left.unwrap_or(room);
            left.is_some()
        };
        let kept = self.entries.iter().rev().take_while(fits).count();
        self.entries.drain(..self.entries.len() - kept).collect()
    }
}

fn write_name<S: Serializer>(name: &ModelName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_str())
}

fn read_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ModelName, D::Error> {
    String::deserialize(deserializer).map(ModelName::new)
}

/// The name of the file with this number.
///
/// ```
/// use gglib_core::slots::{file_name, file_number};
///
/// assert_eq!(file_name(7), "7.kv");
/// assert_eq!(file_number("7.kv"), Some(7));
/// assert_eq!(file_number("../7.kv"), None);
/// ```
pub fn file_name(number: u64) -> String {
    format!("{number}{EXTENSION}")
}

/// The number of the file with this name, if the name is one of ours.
pub fn file_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(EXTENSION)?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::slots::FileIdentity;

    fn entry(model: &str, slot: u32, file: u64, bytes: u64) -> Entry {
        let key = Key {
            build: "b1-7e4c0a9".to_owned(),
            arguments: vec!["--parallel".to_owned(), "1".to_owned()],
            files: vec![FileIdentity { path: "/m.gguf".to_owned(), bytes: 98_362_432, modified_ns: 1 }],
        };
        let remembered = Some(Remembered { digest: u64::MAX, prompt_tokens: 1437 });
        Entry { model: ModelName::new(model), slot, file, bytes, tokens: 1456, remembered, key }
    }

    fn manifest(sizes: &[u64]) -> Manifest {
        let mut manifest = Manifest::default();
        let off = entry("off", 0, 0, 0);
        manifest.switch_off(SwitchedOff { model: off.model, key: off.key });
        for (file, bytes) in (0..).zip(sizes) {
            manifest.put(entry(&format!("m{file}"), 0, file, *bytes));
        }
        manifest
    }

    #[test]
    fn its_form_is_stable() {
        insta::assert_snapshot!(String::from_utf8(manifest(&[33_570_300]).encode()).unwrap());
    }

    #[test]
    fn a_model_is_switched_off_until_its_key_is_another_one() {
        let mut manifest = manifest(&[1, 2]);
        let key = entry("m0", 0, 0, 1).key;
        let other = Key { build: "b2".to_owned(), ..key.clone() };
        let off = |key: &Key| SwitchedOff { model: ModelName::new("m0"), key: key.clone() };
        let gone = manifest.switch_off(off(&other));
        assert_eq!((gone.len(), manifest.entries().len()), (1, 1), "what was saved of it goes");
        manifest.switch_off(off(&key));
        assert_eq!(manifest.switched_off().count(), 2, "the other one was before");
        let mut manifest = Manifest::decode(&manifest.encode()).unwrap();
        assert!(manifest.stays_off(&ModelName::new("m0"), &key));
        assert!(!manifest.stays_off(&ModelName::new("m1"), &key));
        assert!(!manifest.stays_off(&ModelName::new("m0"), &other), "another build may do better");
        assert!(!manifest.stays_off(&ModelName::new("m0"), &key), "and is asked from now on");
    }

    #[test]
    fn a_newer_save_takes_the_place_of_the_older_one_and_is_the_newest() {
        let mut manifest = manifest(&[1, 2]);
        let replaced = manifest.put(entry("m0", 0, 7, 3)).unwrap();
        assert_eq!(replaced.file, 0);
        assert_eq!(manifest.put(entry("m0", 1, 8, 4)), None);
        let files: Vec<_> = manifest.entries().iter().map(|entry| entry.file).collect();
        assert_eq!((files, manifest.bytes(), manifest.next_file()), (vec![1, 7, 8], 9, 9));
    }

    #[test]
    fn the_oldest_go_first_and_what_is_larger_than_the_budget_goes_too() {
        let evicted = |sizes: &[u64], budget| {
            let mut manifest = manifest(sizes);
            manifest.evict(budget).iter().map(|entry| entry.file).collect::<Vec<_>>()
        };
        assert_eq!(evicted(&[3, 3, 3], 9), [0; 0]);
        assert_eq!(evicted(&[3, 3, 3], 8), [0]);
        assert_eq!(evicted(&[1, 3, 3], 5), [0, 1]);
        assert_eq!(evicted(&[3, 9], 8), [0, 1]);
        assert_eq!(evicted(&[u64::MAX, u64::MAX], u64::MAX), [0]);
        assert_eq!(evicted(&[0], 0), [0; 0]);
    }

    #[test]
    fn what_is_not_ours_is_refused_with_a_reason() {
        let error = |text: &str| Manifest::decode(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error(r#"{"version":1,"slots":{}}"#), "it has version 1, and this gglib reads 2");
        assert!(error("").starts_with("it is not a list of saved slots: "));
        assert!(error(r#"{"version":2,"entries":[],"switched_off":[],"more":1}"#).contains("unknown field"));
        let mut twice = manifest(&[1, 2]);
        twice.entries[1].file = 0;
        assert_eq!(error(str::from_utf8(&twice.encode()).unwrap()), "it lists 0.kv twice");
        twice.entries[1] = entry("m0", 0, 1, 2);
        assert_eq!(error(str::from_utf8(&twice.encode()).unwrap()), "it lists slot 0 of m0 twice");
    }

    #[test]
    fn only_the_names_that_we_make_are_ours() {
        for name in ["7", "07.kv", "+7.kv", "a.kv", "7.kv.tmp", "../7.kv", "/7.kv", ".kv", ""] {
            assert_eq!(file_number(name), None, "{name}");
        }
        assert_eq!(file_number(&file_name(u64::MAX)), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(sizes in prop::collection::vec(any::<u64>(), 0..6)) {
            let manifest = manifest(&sizes);
            prop_assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
        }

        #[test]
        fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Manifest::decode(&bytes);
        }

        /// A write that was cut off, and a file whose blocks did not all reach the disk.
        #[test]
        fn torn_is_never_taken(sizes in prop::collection::vec(any::<u64>(), 0..4), at in any::<prop::sample::Index>(), hole in 1..64_usize) {
            let whole = manifest(&sizes).encode();
            let cut = at.index(whole.len());
            prop_assert!(Manifest::decode(&whole[..cut]).is_err());
            let mut holed = whole.clone();
            let end = (cut + hole).min(whole.len());
            holed[cut..end].fill(0);
            prop_assert!(Manifest::decode(&holed).is_err());
        }

        #[test]
        fn the_budget_holds_and_no_more_goes_than_must(
            sizes in prop::collection::vec(0..100_u64, 0..12),
            budget in 0..400_u64,
        ) {
            let mut manifest = manifest(&sizes);
            let before = manifest.clone();
            let evicted = manifest.evict(budget);
            prop_assert!(manifest.bytes() <= budget);
            // The evicted are the oldest, in order, and the last of them did not fit.
            prop_assert_eq!(&before.entries[..evicted.len()], &evicted[..]);
            prop_assert_eq!(&before.entries[evicted.len()..], manifest.entries());
            if let Some(last) = evicted.last() {
                prop_assert!(manifest.bytes() + last.bytes > budget);
            }
        }
    }
}
