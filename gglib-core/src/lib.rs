//! The pure part of gglib: everything here is a function of its arguments.
//!
//! No runtime, no clock, no I/O, no threads: state machines take events and [`Moment`](moment::Moment),
//! and return commands that a thin driver in `gglib-runtime` or `gglib-proxy` carries out. There are two
//! named exceptions, both at the edge: [`retry::jitter_unit`] draws a random number, and
//! [`retry::RetryPolicy::from_env`] reads two environment variables.

pub mod admission;
pub mod api;
pub mod config;
pub mod continuation;
pub mod idempotency;
pub mod memory;
pub mod model;
pub mod moment;
pub mod ports;
pub mod repair;
pub mod retry;
pub mod slots;
pub mod sse;
