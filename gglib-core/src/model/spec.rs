//! What an engine of one model is started with.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

/// One configured model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// The GGUF file.
    pub path: PathBuf,
    /// Further names under which clients may ask for it.
    pub aliases: Vec<String>,
    /// Context window of one request, in tokens; `None` leaves it to the engine, which takes the model's own.
    pub context: Option<u32>,
    /// How many requests the engine serves at once; at least 1.
    pub parallel: u32,
    /// Passed to `llama-server` as they are, after our own arguments.
    pub args: Vec<String>,
    /// An idle engine is stopped after this long; `None` leaves it until its room is needed.
    pub ttl: Option<Duration>,
    /// Once resident, it is never stopped for another model.
    pub pin: bool,
    /// It is loaded at the start, if there is room.
    pub preload: bool,
    /// Models of the same group are never resident together.
    pub group: Option<String>,
}

impl ModelSpec {
    /// A model of this file, with the default of everything else.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            aliases: Vec::new(),
            context: None,
            parallel: 1,
            args: Vec::new(),
            ttl: None,
            pin: false,
            preload: false,
            group: None,
        }
    }
}

/// The name of an option of `llama-server`, which takes `--ctx_size` for `--ctx-size` (b10434).
pub(crate) fn option_name(argument: &str) -> Cow<'_, str> {
    if argument.starts_with("--") && argument.contains('_') {
        argument.replace('_', "-").into()
    } else {
        argument.into()
    }
}
