//! Why a scenario could not be played.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// What kept a scenario from happening. That is no judgement on the endpoint.
#[derive(Debug, Error)]
pub(crate) enum Trouble {
    #[error("waited {} s in vain for {what}", after.as_secs())]
    InVain { what: &'static str, after: Duration },
    #[error("the engine was too fast: it had answered before anything could happen to it")]
    TooFast,
    #[error("process {pid} does not look like the engine at {address}, and was left alone")]
    Stranger { pid: i32, address: String },
    #[error("the engine's process {pid} cannot be signalled: {source}")]
    Signal { pid: i32, source: io::Error },
    #[error("the port could not be taken: {0}")]
    Port(io::Error),
    #[error("slots could be saved in spite of the limit on files, or were never saved at all")]
    NothingFailed,
    #[error("the endpoint has not recovered from what was played before")]
    Unwell,
    #[error("others use the endpoint, so that it cannot be told when it was rid of the drill's request")]
    Others,
    #[error("it needs a second model, and the endpoint has one")]
    OneModel,
    #[error("it needs an endpoint that is set up for it; leave out --live")]
    NotLive,
}
