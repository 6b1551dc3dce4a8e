//! What a saved slot depends on, as it is now.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use gglib_core::model::gguf::Split;
use gglib_core::slots::{FileIdentity, Key};

/// How the engine names the variables that stand for arguments.
const VARIABLES: &str = "LLAMA_ARG_";

/// The key of an engine of this build, run from `binary` with `model` and `arguments`, which leave out where it
/// listens. Blocks.
pub(super) fn key(build: String, binary: &Path, model: &Path, arguments: &[OsString]) -> Key {
    let named = arguments.iter().map(|argument| Path::new(value(argument)));
    let files =
        [binary, model].into_iter().chain(named).flat_map(parts).filter_map(|part| file(&part)).collect();
    let text = |argument: &OsString| argument.to_string_lossy().into_owned();
    Key { build, arguments: arguments.iter().map(text).chain(variables()).collect(), files }
}

/// What follows the `=` of `--mmproj=file`, else the argument itself.
fn value(argument: &OsStr) -> &OsStr {
    let split = argument.to_str().filter(|text| text.starts_with('-')).and_then(|text| text.split_once('='));
    split.map_or(argument, |(_, value)| OsStr::new(value))
}

/// All files of a model in parts, of which the engine is given one; else the file itself.
fn parts(path: &Path) -> Vec<PathBuf> {
    let names = path.file_name().and_then(OsStr::to_str).and_then(Split::names);
    names.map_or_else(
        || vec![path.to_owned()],
        |names| names.iter().map(|name| path.with_file_name(name)).collect(),
    )
}

fn file(path: &Path) -> Option<FileIdentity> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let modified = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Some(FileIdentity {
        path: path.to_string_lossy().into_owned(),
        bytes: found.len(),
        modified_ns: modified.and_then(|time| u64::try_from(time.as_nanos()).ok()).unwrap_or(0),
    })
}

/// Our environment is the engine's.
fn variables() -> Vec<String> {
    let variables = std::env::vars_os().map(|(name, value)| (name, value.to_string_lossy().into_owned()));
    let mut arguments: Vec<_> = variables
        .filter_map(|(name, value)| Some(format!("{}={value}", name.to_str()?)))
        .filter(|argument| argument.starts_with(VARIABLES))
        .collect();
    arguments.sort();
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_the_program_and_every_file_named_by_an_argument_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["engine", "model", "projector", "adapter"] {
            fs::write(path(name), name).unwrap();
        }
        let arguments: Vec<OsString> = vec![
            "--mmproj".into(),
            path("projector").into(),
            format!("--lora={}", path("adapter").display()).into(),
            "--ctx-size".into(),
            "4096".into(),
        ];
        let now = || key("b1".to_owned(), &path("engine"), &path("model"), &arguments);
        let before = now();
        assert_eq!(before.files.len(), 4);
        assert_eq!(
            before.arguments[..5],
            arguments.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>()[..]
        );
        assert_eq!(now().difference(&before), None);
        for name in ["engine", "model", "projector", "adapter"] {
            let before = now();
            fs::write(path(name), "another text").unwrap();
            assert!(now().difference(&before).is_some(), "{name}");
        }
    }

    #[test]
    fn every_part_of_a_model_in_parts_counts() {
        let dir = tempfile::tempdir().unwrap();
        let part = |number| dir.path().join(format!("big-{number:05}-of-00003.gguf"));
        (1..=3).for_each(|number| fs::write(part(number), "part").unwrap());
        let now = || key("b1".to_owned(), Path::new("/no/engine"), &part(1), &[]);
        assert_eq!(now().files.len(), 3);
        for number in 1..=3 {
            let before = now();
            fs::write(part(number), "another text").unwrap();
            assert_eq!(now().difference(&before), Some("a file of the model or the engine"), "{number}");
        }
    }
}
