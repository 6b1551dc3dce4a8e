//! Measurements that are remembered between runs.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Footprint;

/// First line of the record. Another number is another format.
const HEAD: &str = r#"{"gglib_footprints":1}"#;
/// Engines that are remembered; the one measured longest ago is forgotten first.
const KEPT: usize = 256;

/// What a measurement holds for: the same file, started in the same way. Any change of this makes another engine.
///
/// Not of what lies beside it: companions, later parts of a model in several files, a program replaced in its place. There
/// the measurement of the next load takes the place of the one that was remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launched {
    /// The model's file.
    pub model: String,
    /// Its length, in bytes.
    pub len: u64,
    /// When it was last changed, in Unix seconds.
    pub modified: u64,
    /// The `llama-server`.
    pub engine: String,
    /// Context of one request, in tokens.
    pub context: Option<u32>,
    /// Requests at once.
    pub parallel: u32,
    /// The model's own arguments.
    pub args: Vec<String>,
}

/// The last measurement of each engine.
///
/// As text it is one line of JSON for each, after a first line that names the format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprints(VecDeque<Entry>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    launched: Launched,
    footprint: Footprint,
}

/// A text that is no record of footprints.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadRecord {
    /// Something else, or of another version.
    #[error("it does not begin with {HEAD}")]
    Head,
    /// A line that is no measurement.
    #[error("line {line} is not a measurement: {reason}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What JSON's reader says.
        reason: String,
    },
}

impl Footprints {
    /// What was measured of an engine launched like this.
    pub fn recall(&self, launched: &Launched) -> Option<Footprint> {
        self.0.iter().find(|entry| entry.launched == *launched).map(|entry| entry.footprint)
    }

    /// Keeps a measurement, in place of an earlier one of the same engine.
    pub fn remember(&mut self, launched: Launched, footprint: Footprint) {
        self.0.retain(|entry| entry.launched != launched);
        self.0.push_back(Entry { launched, footprint });
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// The record as text.
    #[expect(clippy::missing_panics_doc, reason = "what cannot happen needs no section")]
    pub fn encode(&self) -> String {
        let entries = self.0.iter().map(|entry| {
            serde_json::to_string(entry).expect("texts and whole numbers can always be written as JSON")
        });
        std::iter::once(HEAD.to_owned()).chain(entries).map(|line| line + "\n").collect()
    }

    /// The record in `text`, as [`encode`](Self::encode) writes it.
    ///
    /// # Errors
    /// When any line of it is damaged. A record is a convenience: losing it costs one measurement per model.
    pub fn decode(text: &str) -> Result<Self, BadRecord> {
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, head)| head) != Some(HEAD) {
            return Err(BadRecord::Head);
        }
        let mut footprints = Self::default();
        for (index, line) in lines {
            let Entry { launched, footprint } = serde_json::from_str(line)
                .map_err(|error| BadRecord::Line { line: index + 1, reason: error.to_string() })?;
            footprints.remember(launched, footprint);
        }
        Ok(footprints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(model: &str) -> Launched {
        Launched {
            model: model.to_owned(),
            len: 98_362_432,
            modified: 1_700_000_000,
            engine: "/opt/llama-server".to_owned(),
            context: Some(4096),
            parallel: 2,
            args: vec!["-ctk".to_owned(), "q8_0".to_owned()],
        }
    }

    fn of(anonymous: u64) -> Footprint {
        Footprint { anonymous, mapped: 7, ..Footprint::default() }
    }

    #[test]
    fn what_was_remembered_is_recalled_also_by_the_next_run() {
        let mut footprints = Footprints::default();
        footprints.remember(launched("a\n\"b\".gguf"), of(1));
        footprints.remember(launched("c.gguf"), of(2));
        footprints.remember(launched("c.gguf"), of(3));
        let next = Footprints::decode(&footprints.encode()).unwrap();
        assert_eq!(next, footprints);
        assert_eq!(next.recall(&launched("a\n\"b\".gguf")), Some(of(1)));
        assert_eq!(next.recall(&launched("c.gguf")), Some(of(3)));
    }

    #[test]
    fn another_engine_has_another_footprint() {
        let mut footprints = Footprints::default();
        footprints.remember(launched("a.gguf"), of(1));
        let a = || launched("a.gguf");
        for other in [
            Launched { len: 1, ..a() },
            Launched { modified: 1, ..a() },
            Launched { engine: String::new(), ..a() },
            Launched { context: None, ..a() },
            Launched { parallel: 1, ..a() },
            Launched { args: Vec::new(), ..a() },
        ] {
            assert_eq!(footprints.recall(&other), None);
        }
    }

    #[test]
    fn a_damaged_record_is_told_by_its_line() {
        assert_eq!(Footprints::decode(""), Err(BadRecord::Head));
        assert_eq!(Footprints::decode("{\"gglib_footprints\":2}\n"), Err(BadRecord::Head));
        let text = format!("{HEAD}\n{{\"launched\":");
        let error = Footprints::decode(&text).unwrap_err().to_string();
        assert!(error.starts_with("line 2 is not a measurement"), "{error}");
    }

    #[test]
    fn the_oldest_measurement_is_forgotten_first() {
        let mut footprints = Footprints::default();
        for n in 0..=KEPT {
            footprints.remember(launched(&n.to_string()), of(1));
        }
        assert_eq!(footprints.recall(&launched("0")), None);
        assert_eq!(footprints.recall(&launched("1")), Some(of(1)));
    }
}
