//! What an engine of one model is started with.

use std::path::PathBuf;

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
}
