//! What a command can fail with, and the exit code of each.

use std::io;
use std::path::PathBuf;

use gglib_core::config::ConfigErrors;
use gglib_runtime::completion::CompletionError;
use gglib_runtime::engine::DiscoverError;
use gglib_runtime::http::HttpError;
use gglib_runtime::install::{DataDirUnknown, InstallError};
use thiserror::Error;

use crate::drill::trouble::Trouble;
use crate::exit::Exit;

/// A command's failure. The text is for a person and ends with what to do, where that is known.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error("cannot read {}", path.display())]
    ReadConfig { path: PathBuf, source: io::Error },
    #[error("there is no configuration at {}; `gglib up` writes one, and so does `gglib config init`", .0.display())]
    NoConfig(PathBuf),
    #[error("cannot write {}", path.display())]
    WriteConfig { path: PathBuf, source: io::Error },
    #[error("cannot write the plot to {}", path.display())]
    WritePlot { path: PathBuf, source: io::Error },
    #[error("{} is not valid TOML", path.display())]
    EditConfig { path: PathBuf, source: toml_edit::TomlError },
    #[error("`{key}` in {} has to be a table, and is {found}; correct it by hand", path.display())]
    NotTable { path: PathBuf, key: String, found: String },
    #[error("{} exists already; edit it, or remove it first", .0.display())]
    ConfigExists(PathBuf),
    #[error("{0}")]
    Model(String),
    #[error("{what} has to be downloaded ({size}); run `gglib up --yes` to agree, or {instead}")]
    Consent { what: &'static str, size: String, instead: &'static str },
    #[error("stopped: {0} was not downloaded")]
    Declined(&'static str),
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error(transparent)]
    DataDir(#[from] DataDirUnknown),
    #[error("the home directory is unknown; set HOME, or name the file with --config")]
    NoHome,
    #[error(
        "another program already listens at {0}; stop it, or choose another port (`gglib up --port`, \
         `gglib serve --listen`)"
    )]
    AddressTaken(std::net::SocketAddr),
    #[error(
        "the gglib that listens at {address} has no model `{model}`: it does not use {}; stop it, or choose another \
         port (`gglib up --port`)",
        config.display()
    )]
    OtherConfiguration { address: std::net::SocketAddr, model: String, config: PathBuf },
    #[error("cannot listen at {address}")]
    Listen { address: std::net::SocketAddr, source: io::Error },
    #[error("no endpoint answers at {0}; start it with `gglib serve` or `gglib up`")]
    Unreachable(String),
    #[error("{url} answered with {answer}; is it a gglib endpoint?")]
    Strange { url: String, answer: String },
    #[error("{url} answered: {reason}")]
    NotNow { url: String, reason: String },
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Completion(#[from] CompletionError),
    #[error("engines cannot be started")]
    Launcher(#[source] io::Error),
    #[error("the endpoint failed")]
    Serve(#[source] io::Error),
    #[error("standard input cannot be read")]
    Stdin(#[source] io::Error),
    #[error("the terminal cannot be used; `gglib status` needs none")]
    Terminal(#[source] io::Error),
    #[error("the drill's own endpoint cannot be set up")]
    Drill(#[source] io::Error),
    #[error("engines of {0} are to be killed; run `gglib drill --live --yes` to agree, or leave out --live")]
    LiveConsent(String),
    #[error("stopped: nothing was done to {0}")]
    LiveDeclined(String),
    #[error("others use the endpoint all the time; drill it when it is idle")]
    InUse(#[source] Trouble),
    #[error("gglib cannot start")]
    Runtime(#[source] io::Error),
}

impl CliError {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Config(_)
            | Self::ReadConfig { .. }
            | Self::NoConfig(_)
            | Self::WriteConfig { .. }
            | Self::EditConfig { .. }
            | Self::NotTable { .. }
            | Self::ConfigExists(_)
            | Self::Model(_)
            | Self::NoHome => Exit::Config,
            Self::Consent { .. } | Self::Declined(_) | Self::LiveConsent(_) | Self::LiveDeclined(_) => {
                Exit::Consent
            }
            Self::Discover(_) | Self::Install(_) | Self::DataDir(_) => Exit::Install,
            Self::AddressTaken(_) | Self::OtherConfiguration { .. } | Self::Listen { .. } => Exit::Listen,
            Self::Unreachable(_) | Self::Strange { .. } | Self::NotNow { .. } => Exit::Unreachable,
            Self::Completion(CompletionError::GaveUp { .. } | CompletionError::CircuitOpen { .. }) => {
                Exit::GaveUp
            }
            Self::Completion(_) => Exit::Rejected,
            Self::Http(_) => Exit::Usage,
            Self::WritePlot { .. }
            | Self::Launcher(_)
            | Self::Serve(_)
            | Self::Stdin(_)
            | Self::Terminal(_)
            | Self::Drill(_)
            | Self::InUse(_)
            | Self::Runtime(_) => Exit::Failure,
        }
    }
}
