//! Where gglib keeps what it installed.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use etcetera::BaseStrategy;

/// Moves the data directory.
pub const DATA_DIR_ENV_VAR: &str = "GGLIB_DATA_DIR";

/// The data directory, absolute: `GGLIB_DATA_DIR` if set and not empty, else `gglib` in the user's data directory
/// (XDG on Linux and macOS: `$XDG_DATA_HOME` or `~/.local/share`). It need not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir(PathBuf);

/// Neither `GGLIB_DATA_DIR` nor a home directory is known.
#[derive(Debug, thiserror::Error)]
#[error("no data directory: the home directory is unknown; set HOME or {DATA_DIR_ENV_VAR}")]
pub struct DataDirUnknown;

impl DataDir {
    /// Finds it from the environment.
    pub fn locate() -> Result<Self, DataDirUnknown> {
        let user_data = || etcetera::choose_base_strategy().ok().map(|strategy| strategy.data_dir());
        Self::choose(env::var_os(DATA_DIR_ENV_VAR), user_data)
    }

    fn choose(
        override_var: Option<OsString>,
        user_data: impl FnOnce() -> Option<PathBuf>,
    ) -> Result<Self, DataDirUnknown> {
        let chosen = match override_var.filter(|value| !value.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => user_data().ok_or(DataDirUnknown)?.join("gglib"),
        };
        std::path::absolute(chosen).map(Self).map_err(|_| DataDirUnknown)
    }
}

impl AsRef<Path> for DataDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(override_var: Option<&str>, user_data: Option<&str>) -> Option<PathBuf> {
        DataDir::choose(override_var.map(Into::into), || user_data.map(Into::into)).ok().map(|dir| dir.0)
    }

    #[test]
    fn the_variable_wins_over_the_users_data_directory() {
        assert_eq!(choose(Some("/srv/gg"), Some("/home/u/.local/share")), Some("/srv/gg".into()));
        assert_eq!(choose(Some("/srv/gg"), None), Some("/srv/gg".into()));
    }

    #[test]
    fn unset_and_empty_mean_the_users_data_directory() {
        for unset in [None, Some("")] {
            assert_eq!(
                choose(unset, Some("/home/u/.local/share")),
                Some("/home/u/.local/share/gglib".into())
            );
        }
    }

    #[test]
    fn a_relative_path_is_made_absolute() {
        assert_eq!(choose(Some("here"), None), Some(env::current_dir().unwrap().join("here")));
    }

    #[test]
    fn without_a_home_the_error_names_both_remedies() {
        let error = DataDir::choose(None, || None).unwrap_err().to_string();
        assert!(error.contains("HOME") && error.contains(DATA_DIR_ENV_VAR), "{error}");
    }
}
