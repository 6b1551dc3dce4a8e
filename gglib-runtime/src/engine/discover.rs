//! Which `llama-server` to launch.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Names a `llama-server` to use when the configuration names none.
pub const LLAMA_SERVER_ENV_VAR: &str = "GGLIB_LLAMA_SERVER";

/// No usable `llama-server`.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum DiscoverError {
    /// A path was given, but nothing that can be run is there.
    #[error("{}, named by {origin}, is not an executable file", path.display())]
    NotExecutable {
        /// The path as given.
        path: PathBuf,
        /// `engine.binary` or the variable.
        origin: &'static str,
    },
    /// No path was given, and it is neither on `PATH` nor installed by us.
    #[error(
        "no llama-server found; run `gglib up` to install one, put it on PATH, or set engine.binary in gglib.toml"
    )]
    Missing,
}

/// Looks in this order: the configured path, [`LLAMA_SERVER_ENV_VAR`], `PATH`, our `managed` copy.
///
/// A path that was named but cannot be run is an error, not a reason to look further.
///
/// # Errors
/// [`DiscoverError`], with the remedy.
pub fn discover(
    configured: Option<&Path>,
    env: &dyn Fn(&str) -> Option<std::ffi::OsString>,
    managed: Option<&Path>,
) -> Result<PathBuf, DiscoverError> {
    if let Some(path) = configured {
        return named(path, "engine.binary in gglib.toml");
    }
    if let Some(path) = env(LLAMA_SERVER_ENV_VAR).filter(|path| !path.is_empty()) {
        return named(Path::new(&path), LLAMA_SERVER_ENV_VAR);
    }
    on_path(env("PATH").as_deref())
        .or_else(|| managed.filter(|path| is_executable(path)).map(Path::to_owned))
        .ok_or(DiscoverError::Missing)
}

fn named(path: &Path, origin: &'static str) -> Result<PathBuf, DiscoverError> {
    if is_executable(path) {
        Ok(path.to_owned())
    } else {
        Err(DiscoverError::NotExecutable { path: path.to_owned(), origin })
    }
}

fn on_path(path: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|dir| dir.join("llama-server")).find(|file| is_executable(file))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use super::*;

    #[test]
    fn the_order_is_configured_then_variable_then_path_then_managed() {
        let dir = tempfile::tempdir().unwrap();
        let program = |name: &str| {
            let path = dir.path().join(name).join("llama-server");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let (configured, variable, on_path, managed) =
            (program("configured"), program("variable"), program("path"), program("managed"));
        let path_var = on_path.parent().unwrap().as_os_str().to_owned();
        let env = |with: &'static [&'static str]| {
            let (variable, path_var) = (variable.clone(), path_var.clone());
            move |name: &str| -> Option<OsString> {
                with.contains(&name).then(|| match name {
                    "PATH" => path_var.clone(),
                    _ => variable.clone().into(),
                })
            }
        };
        let both = env(&["PATH", LLAMA_SERVER_ENV_VAR]);
        assert_eq!(discover(Some(&configured), &both, Some(&managed)), Ok(configured));
        assert_eq!(discover(None, &both, Some(&managed)), Ok(variable.clone()));
        assert_eq!(discover(None, &env(&["PATH"]), Some(&managed)), Ok(on_path.clone()));
        assert_eq!(discover(None, &env(&[]), Some(&managed)), Ok(managed));
        assert_eq!(discover(None, &env(&[]), None), Err(DiscoverError::Missing));
        assert_eq!(discover(None, &env(&[]), Some(dir.path())), Err(DiscoverError::Missing));
    }

    #[test]
    fn a_named_path_that_cannot_be_run_is_an_error_that_names_its_origin() {
        let error = discover(Some(Path::new("/no/such")), &|_| None, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/no/such, named by engine.binary in gglib.toml, is not an executable file"
        );
    }
}
