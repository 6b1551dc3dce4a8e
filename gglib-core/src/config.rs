//! The typed configuration, its layers and its validation.
//!
//! One value wins per key: flag over environment over file over default. [`KEYS`] is the only list of keys;
//! reading, defaults, environment and the reference page come from it.
//!
//! ```
//! use gglib_core::config::{self, Sources};
//!
//! let text = r#"
//!     [timeouts]
//!     idel = "30s"
//! "#;
//! let sources = Sources { file: Some(("gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] };
//! assert_eq!(
//!     config::load(&sources).unwrap_err().to_string(),
//!     "unknown key `timeouts.idel` in gglib.toml; did you mean `timeouts.idle`?",
//! );
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use bound::{Bound, MODEL_LOOK};
pub use error::{ConfigError, ConfigErrors};
pub use key::{EnvVar, KEYS, Key, Kind};
pub use layers::Sources;
pub use pins::PinLint;
pub use retry::{Retry, RetryLint};

use crate::model::{Catalog, ModelName, ModelSpec};
use crate::retry::{RetryRules, Warning};

mod bound;
mod error;
mod key;
mod layers;
mod pins;
mod reload;
mod reserved;
mod retry;
mod typed;
mod value;

/// Everything that `gglib.toml`, the environment and the flags say.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[engine]`
    pub engine: Engine,
    /// `[admission]`
    pub admission: Admission,
    /// `[memory]`
    pub memory: Memory,
    /// `[timeouts]`
    pub timeouts: Timeouts,
    /// `[recovery]`
    pub recovery: Recovery,
    /// `[slots]`
    pub slots: Slots,
    /// `[retry]` and the sections beside it: the rules of our clients. The policy of `[retry]` is also the one behind
    /// our `Retry-After`.
    pub retry: Retry,
    /// `[models.*]`
    pub models: BTreeMap<ModelName, ModelSpec>,
    /// Values of the environment that were left aside, for the log.
    pub warnings: Vec<Warning>,
}

/// `[server]`: the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Largest request body, in bytes.
    pub body_limit: u64,
}

/// `[engine]`: how engines are found, reached, loaded and stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// A path of `llama-server`; `None` for `auto`.
    pub binary: Option<PathBuf>,
    /// How engines are reached.
    pub transport: Transport,
    /// Longest silence of a load.
    pub load_stall: Duration,
    /// Longest load.
    pub load_limit: Duration,
    /// From SIGTERM to SIGKILL.
    pub stop_grace: Duration,
    /// How long requests in flight go on at shutdown.
    pub drain: Duration,
}

/// How engines are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A socket of its own in a directory that only we can enter.
    Unix,
    /// A free port on the loopback address, per launch.
    Tcp,
}

/// `[admission]`: bounds of waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Longest standstill of a queue.
    pub stall: Duration,
    /// Longest wait.
    pub max_wait: Duration,
    /// Waiting requests per model.
    pub queue: usize,
    /// Shortest turn of a model that a rival waits for.
    pub quantum: Duration,
}

/// `[memory]`: what may be resident at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What all engines together may take.
    pub budget: Budget,
    /// Engines at once; at least 1.
    pub max_resident: usize,
    /// An idle engine that takes so many bytes more than when it was ready is stopped.
    pub growth: u64,
}

/// What all engines together may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// What the machine has, with a margin for others.
    Auto,
    /// So many bytes of main memory; on GPUs, what they have.
    Bytes(u64),
}

/// `[timeouts]`: of one attempt, each with an error code of its own; `request` spans all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// Until the response's head. An engine that is late but answers its health probe is busy, and has as long as
    /// for the first content.
    pub response_headers: Duration,
    /// Without progress before the first content.
    pub first_content: Duration,
    /// Between two pieces of content.
    pub idle: Duration,
    /// The attempt altogether.
    pub total: Duration,
    /// All waits and attempts of a request.
    pub request: Duration,
}

/// `[recovery]`: which one-shot recoveries are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Relaunch a dead engine and send the request again, once.
    pub relaunch: bool,
    /// Relaunch an engine that died in the middle of a stream of plain text, and go on with the stream, once.
    pub continue_streams: bool,
    /// Mend tool calls that no client could run, or ask for them again, once.
    pub repair: bool,
    /// How long asking again may take.
    pub repair_timeout: Duration,
}

/// `[slots]`: conversations that outlive their engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Whether they do.
    pub enabled: bool,
    /// What saved slots may take on the disk, in bytes.
    pub disk_budget: u64,
}

impl Config {
    /// The configured models, by name and alias.
    pub fn catalog(&self) -> Catalog {
        Catalog::new(self.models.clone())
    }

    /// The rules by which our clients repeat requests to `model`, by name or alias; those of `[retry]` for any other
    /// name, since it may be a model of another endpoint.
    pub fn retry_rules(&self, model: &str) -> &RetryRules {
        let called = |(name, spec): &(&ModelName, &ModelSpec)| {
            name.as_str() == model || spec.aliases.iter().any(|alias| alias == model)
        };
        let name = self.models.iter().find(called).map_or(model, |(name, _)| name.as_str());
        self.retry.rules_for(name)
    }

    /// What is doubtful in the sections on retries, for a client of an endpoint with the same configuration.
    ///
    /// That a request may wait (`admission.stall`) for longer than `total_deadline` is not held against it: the
    /// deadline bounds when attempts begin, and a client whose one attempt has waited for minutes in a queue that stood
    /// still is not meant to queue up again. What a client can return from, the endpoint refuses at once.
    ///
    /// ```
    /// use gglib_core::config::{self, Sources};
    ///
    /// let text = "[retry.class.timeout]\npreset = \"exponential\"\ntotal_deadline = \"1m\"";
    /// let sources = Sources { file: Some(("gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] };
    /// let lints = config::load(&sources)?.retry_lints();
    /// assert_eq!(lints[0].section, "[retry.class.timeout]");
    /// assert_eq!(lints[0].lint.name(), "no-jitter");
    /// # Ok::<(), config::ConfigErrors>(())
    /// ```
    pub fn retry_lints(&self) -> Vec<RetryLint> {
        self.retry.lints()
    }

    /// Pinned models that leave no place for others.
    ///
    /// ```
    /// use gglib_core::config::{self, Sources};
    ///
    /// let text = "[models.chat]\npath = \"chat.gguf\"\npin = true\n[models.embed]\npath = \"embed.gguf\"";
    /// let sources = Sources { file: Some(("gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] };
    /// let lints = config::load(&sources)?.pin_lints();
    /// assert!(lints[0].to_string().ends_with("raise memory.max_resident to 2, or pin fewer"));
    /// # Ok::<(), config::ConfigErrors>(())
    /// ```
    pub fn pin_lints(&self) -> Vec<PinLint> {
        PinLint::all(self)
    }
}

/// Reads all layers, or says everything that is wrong with them.
///
/// # Errors
/// [`ConfigErrors`]: every problem found, each naming its key, its origin and the remedy.
pub fn load(sources: &Sources<'_>) -> Result<Config, ConfigErrors> {
    let mut errors = Vec::new();
    let values = layers::merge(sources, &mut errors);
    if errors.is_empty() {
        let config = typed::build(&values, sources, &mut errors);
        if errors.is_empty() {
            return Ok(config);
        }
    }
    Err(ConfigErrors(errors))
}
