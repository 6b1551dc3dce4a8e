//! What must be the same for a saved slot to be of use.

use serde::{Deserialize, Serialize};

/// Everything that the meaning of a saved slot depends on. Keys are compared as a whole; a difference in any part
/// means that the slot is not restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The build that the engine itself names (`build_info` of its `/props`).
    pub build: String,
    /// The engine's arguments, address and names left out: context, parallel, KV types and all others.
    pub arguments: Vec<String>,
    /// The model, the engine's program, and every file that an argument names, such as a projector.
    pub files: Vec<FileIdentity>,
}

/// A file as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileIdentity {
    /// Where it is.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// When it was last written, in nanoseconds since the Unix epoch; 0 where that is unknown.
    pub modified_ns: u64,
}

impl Key {
    /// What differs, in words for the log; `None` when the keys are equal.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        match () {
            () if self.build != other.build => Some("the engine's build"),
            () if self.arguments != other.arguments => Some("the engine's arguments"),
            () if self.files != other.files => Some("a file of the model or the engine"),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts() {
        let file = FileIdentity { path: "/m.gguf".to_owned(), bytes: 7, modified_ns: 1 };
        let key = Key { build: "b1".to_owned(), arguments: vec!["-c".to_owned()], files: vec![file.clone()] };
        let changed = |change: &dyn Fn(&mut Key)| {
            let mut other = key.clone();
            change(&mut other);
            key.difference(&other)
        };
        assert_eq!(changed(&|_| {}), None);
        assert_eq!(changed(&|key| key.build.push('x')), Some("the engine's build"));
        assert_eq!(changed(&|key| key.arguments.clear()), Some("the engine's arguments"));
        for other in [
            FileIdentity { path: "/n.gguf".to_owned(), ..file.clone() },
            FileIdentity { bytes: 8, ..file.clone() },
            FileIdentity { modified_ns: 2, ..file.clone() },
        ] {
            let found = changed(&|key| key.files[0] = other.clone());
            assert_eq!(found, Some("a file of the model or the engine"));
        }
        let projector = changed(&|key| key.files.push(file.clone()));
        assert_eq!(projector, Some("a file of the model or the engine"));
    }
}
