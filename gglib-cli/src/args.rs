//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::admission::Admission;
use crate::commands::retry::Retry;
use crate::drill::scenario::Scenario;

/// Local models behind one dependable OpenAI-compatible endpoint.
#[derive(Debug, Parser)]
#[command(name = "gglib", version, disable_help_subcommand = true)]
pub struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Flags of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Configuration file; without it `gglib/gglib.toml` in the user's configuration directory
    #[arg(long, global = true, value_name = "FILE", env = "GGLIB_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set everything up, start the endpoint and get a first answer from a real model
    Up(Up),
    /// Run the endpoint from the configuration
    Serve(Serve),
    /// Talk to a model
    Chat(Chat),
    /// Ask one question; standard input, if piped, is its context
    Q(Question),
    /// List, add or remove models
    #[command(subcommand)]
    Model(Model),
    /// Show engines, queue, recent requests and totals of the running endpoint
    Status(Status),
    /// Watch the running endpoint: its status, again every second
    Top(Top),
    /// Compare rules by which models share a machine
    #[command(subcommand)]
    Admission(Admission),
    /// Show, explain and simulate retry policies
    #[command(subcommand)]
    Retry(Retry),
    /// Kill, stop and crowd out engines, and see that every request ends as promised
    Drill(Drill),
    /// Find, check or create the configuration
    #[command(subcommand)]
    Config(Config),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// Agree to downloads without being asked
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Model to use: a configured name, or a GGUF file to add
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) model: Option<String>,
    /// Port of the endpoint
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Address and port to listen at [default: server.listen of the configuration]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
}

/// How to reach the endpoint.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// Endpoint to talk to [default: server.listen of the configuration]
    #[arg(long, value_name = "URL", env = "GGLIB_URL")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Chat {
    /// Model to talk to [default: the first by name]
    pub(crate) model: Option<String>,
    /// Make one attempt only
    #[arg(long)]
    pub(crate) no_retry: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Question {
    /// The question
    #[arg(value_name = "QUESTION")]
    pub(crate) text: String,
    /// Model to ask [default: the first by name]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Make one attempt only
    #[arg(long)]
    pub(crate) no_retry: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// Show the configured models
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a model, or change it
    Add {
        /// The name that clients use
        name: String,
        /// The GGUF file
        path: PathBuf,
        /// A further name for it; may be repeated
        #[arg(long, value_name = "NAME")]
        alias: Vec<String>,
        /// Context window of one request, in tokens
        #[arg(long, value_name = "TOKENS")]
        context: Option<u32>,
        /// Requests that its engine serves at once
        #[arg(long, value_name = "N")]
        parallel: Option<u32>,
    },
    /// Remove a model from the configuration; its file stays
    Remove {
        /// The model's name
        name: String,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Drill {
    /// Model to drill [default: the first by name]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// What shall happen; may be repeated [default: everything]
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Vec<Scenario>,
    #[command(flatten)]
    pub(crate) live: Live,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what can happen, and do nothing
    #[arg(long)]
    pub(crate) list: bool,
}

/// Whose engines are drilled.
#[derive(Debug, clap::Args)]
pub(crate) struct Live {
    /// Do it to the running endpoint at server.listen: kills its engines, and breaks what others ask of them
    #[arg(long)]
    pub(crate) live: bool,
    /// Agree to --live without being asked
    #[arg(long, short, requires = "live")]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Print where the configuration is
    Path,
    /// Say whether the configuration is valid, and how long a request can take
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a configuration with all keys, commented out
    Init,
}
