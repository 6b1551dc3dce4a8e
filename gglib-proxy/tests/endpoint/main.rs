//! The endpoint from outside: byte by byte, with scripted engines behind it.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod bound;
mod busy;
mod clocks;
mod continuation;
mod disconnects;
mod exposition;
mod faults;
mod gateway;
mod health;
mod hung;
mod idempotency;
mod limits;
mod metrics;
mod passthrough;
mod pipes;
mod ports;
mod recovery;
mod repair;
mod repaired;
mod served;
mod slots;
mod waiting;
