//! File, environment and flags, merged into one flat map of values.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::error::ConfigError;
use super::key::{self, EnvVar, KEYS, Key, Kind};
use super::value;
use crate::model;

/// Where values come from.
pub struct Sources<'a> {
    /// The file's path, for messages and relative paths, and its text.
    pub file: Option<(&'a Path, &'a str)>,
    /// Looks up an environment variable.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Keys given as flags, with their value as text.
    pub flags: &'a [(&'static str, String)],
}

/// One value and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) value: Value,
    pub(super) origin: String,
}

/// The values that were given, by full path (`["models", "smollm2", "context"]`).
pub(super) type Values = BTreeMap<Vec<String>, Given>;

/// Merges the layers; the later one wins. Values are checked for their kind here.
pub(super) fn merge(sources: &Sources<'_>, errors: &mut Vec<ConfigError>) -> Values {
    let mut values = Values::new();
    if let Some((path, text)) = sources.file {
        match text.parse::<Table>() {
            Ok(table) => {
                let origin = path.display().to_string();
                walk(&table, &mut Vec::new(), &origin, sources, &mut values, errors);
            }
            Err(error) => errors.push(ConfigError::Syntax {
                path: path.to_owned(),
                message: error.to_string().trim_end().to_owned(),
            }),
        }
    }
    for key in KEYS {
        if let Some(EnvVar::Strict(name)) = key.env()
            && let Some(text) = (sources.env)(&name)
        {
            give(key, &text, name, &mut values, errors);
        }
    }
    for (path, text) in sources.flags {
        match KEYS.iter().find(|key| key.path == *path) {
            Some(key) => give(key, text, "the command line".to_owned(), &mut values, errors),
            None => errors.push(unknown(&segments(path), "the command line")),
        }
    }
    values
}

fn walk(
    table: &Table,
    prefix: &mut Vec<String>,
    origin: &str,
    sources: &Sources<'_>,
    values: &mut Values,
    errors: &mut Vec<ConfigError>,
) {
    for (name, value) in table {
        prefix.push(name.clone());
        match (key::find(prefix), value) {
            (Some(key), value) => match expanded(value, sources.env) {
                Ok(value) if fits(key.kind, &value) => {
                    values.insert(prefix.clone(), Given { value, origin: origin.to_owned() });
                }
                Ok(value) => errors.push(mismatch(&prefix.join("."), origin, key.kind, &value.to_string())),
                Err(variable) => errors.push(ConfigError::MissingVariable {
                    key: prefix.join("."),
                    origin: origin.to_owned(),
                    variable,
                }),
            },
            (None, Value::Table(inner)) if key::is_section(prefix) => {
                walk(inner, prefix, origin, sources, values, errors);
                if prefix.len() == 2 && prefix[0] == "models" && inner.is_empty() {
                    errors.push(ConfigError::MissingPath { model: name.clone() });
                }
            }
            (None, value) if key::is_section(prefix) => errors.push(ConfigError::Value {
                key: prefix.join("."),
                origin: origin.to_owned(),
                expected: "a table".to_owned(),
                found: value.to_string(),
            }),
            (None, _) => errors.push(unknown(prefix, origin)),
        }
        prefix.pop();
    }
}

/// Takes a value given as bare text: by the environment or a flag.
fn give(key: &Key, text: &str, origin: String, values: &mut Values, errors: &mut Vec<ConfigError>) {
    let value = match key.kind {
        Kind::Text | Kind::Duration | Kind::Size => Some(Value::String(text.to_owned())),
        Kind::Integer => text.trim().parse().ok().map(Value::Integer),
        Kind::Bool => text.trim().parse().ok().map(Value::Boolean),
        Kind::List => None,
    };
    match value.filter(|value| fits(key.kind, value)) {
        Some(value) => {
            values.insert(segments(key.path), Given { value, origin });
        }
        None => errors.push(mismatch(key.path, &origin, key.kind, &format!("{text:?}"))),
    }
}

fn fits(kind: Kind, value: &Value) -> bool {
    match (kind, value) {
        (Kind::Text, Value::String(_)) | (Kind::Bool, Value::Boolean(_)) => true,
        (Kind::Duration, Value::String(text)) => value::duration(text).is_some(),
        (Kind::Size, Value::String(text)) => value::size(text).is_some(),
        (Kind::Integer, Value::Integer(number)) => u32::try_from(*number).is_ok(),
        (Kind::List, Value::Array(items)) => items.iter().all(Value::is_str),
        _ => false,
    }
}

/// `value` with its `${env:NAME}` references replaced; the name of a missing variable is the error.
fn expanded(value: &Value, env: &dyn Fn(&str) -> Option<String>) -> Result<Value, String> {
    match value {
        Value::String(text) => value::expand_env(text, env).map(Value::String),
        Value::Array(items) => {
            items.iter().map(|item| expanded(item, env)).collect::<Result<_, _>>().map(Value::Array)
        }
        other => Ok(other.clone()),
    }
}

fn mismatch(key: &str, origin: &str, kind: Kind, found: &str) -> ConfigError {
    ConfigError::Value {
        key: key.to_owned(),
        origin: origin.to_owned(),
        expected: kind.expected().to_owned(),
        found: found.to_owned(),
    }
}

fn unknown(path: &[String], origin: &str) -> ConfigError {
    let (name, parent) = path.split_last().expect("a key's path has at least one segment");
    let nearest = model::nearest(name, key::children(parent).into_iter());
    ConfigError::UnknownKey {
        key: path.join("."),
        origin: origin.to_owned(),
        nearest: nearest.first().map(|child| [parent, std::slice::from_ref(child)].concat().join(".")),
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}
