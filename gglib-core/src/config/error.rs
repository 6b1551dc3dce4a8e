//! What can be wrong with a configuration.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The file is not TOML; `message` shows the place.
    #[error("{} is not valid TOML: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, column and what was expected there.
        message: String,
    },
    /// No such key.
    #[error("unknown key `{key}` in {origin}{}", suggestion(nearest.as_deref()))]
    UnknownKey {
        /// The full path of the key.
        key: String,
        /// File, variable or flag.
        origin: String,
        /// The full path of the most similar key at that place.
        nearest: Option<String>,
    },
    /// The value is of the wrong kind or out of range.
    #[error("`{key}` in {origin}: expected {expected}, found {found}")]
    Value {
        /// The full path of the key.
        key: String,
        /// File, variable or flag.
        origin: String,
        /// What a good value looks like.
        expected: String,
        /// The value as given.
        found: String,
    },
    /// A `${env:NAME}` whose variable is not set.
    #[error("`{key}` in {origin} refers to the environment variable {variable}, which is not set")]
    MissingVariable {
        /// The full path of the key.
        key: String,
        /// The file.
        origin: String,
        /// The variable.
        variable: String,
    },
    /// A model without a file.
    #[error("model `{model}` has no `path`; add `path = \"/where/it/is.gguf\"` below `[models.{model}]`")]
    MissingPath {
        /// The model.
        model: String,
    },
    /// An argument that would take the engine out of our hands.
    #[error("`{key}` in {origin}: {argument} is gglib's own to set; {}", remedy(instead.as_deref()))]
    ReservedArgument {
        /// The full path of the key.
        key: String,
        /// The file.
        origin: String,
        /// The argument.
        argument: String,
        /// The full path of the key that says the same.
        instead: Option<String>,
    },
    /// Two models answer to one name.
    #[error("the name `{name}` means both `{first}` and `{second}`; remove one of the aliases")]
    AmbiguousName {
        /// The name or alias.
        name: String,
        /// A model with it.
        first: String,
        /// Another one.
        second: String,
    },
}

/// All problems of a configuration; shown one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

fn remedy(instead: Option<&str>) -> String {
    instead.map_or_else(|| "remove it from the list".to_owned(), |key| format!("use `{key}` instead"))
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}
