//! The one HTTP client, against raw TCP servers on loopback that count what reaches them.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod client;
mod server;
mod upstream;
