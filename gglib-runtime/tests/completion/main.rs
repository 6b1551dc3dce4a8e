//! The completion client against a scripted upstream, on a paused clock: every delay is exact, none is waited for.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod backoff;
mod cancel;
mod cases;
mod plain;
mod script;
mod shared;
mod streams;
mod window;
