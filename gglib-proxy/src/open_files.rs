//! How many connections may be open, of the files that the process may open.
//!
//! Who accepts connections until no file is left has none for engines: none to ask them on, and none to launch one with.
//! So connections beyond a share of the files wait to be accepted, until others end.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For everything but connections: engines that come up, their pipes, models that are read, slots, logs.
const RESERVED: u64 = 64;
/// Of one connection: its own, and one to the engine.
const EACH: u64 = 2;
/// More than are ever needed. Programs that we start inherit the limit, and some go through all there may be.
const ENOUGH: u64 = 65_536;

/// Lets this process open as many files as it may, at most 65,536; many systems begin with 1024.
pub fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })
    {
        tracing::debug!(%error, "the limit of open files could not be raised");
    }
}

/// How many connections there is room for.
pub(crate) fn connections() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(ENOUGH).min(ENOUGH);
    usize::try_from(files.saturating_sub(RESERVED) / EACH).unwrap_or(usize::MAX).max(1)
}
