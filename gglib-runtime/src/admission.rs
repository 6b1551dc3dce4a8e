//! The driver of the admission queue: one task owns the machine, carries out its commands and keeps time.
//!
//! Everybody else sends it messages. It never waits for an engine, a file or a client itself, so it always
//! answers; [`Pool::snapshot`](gglib_core::ports::Residency::snapshot) doubles as the proof that it does.

pub use pool::Pool;

mod breakers;
mod gate;
mod lease;
mod owner;
mod place;
mod pool;
mod report;
