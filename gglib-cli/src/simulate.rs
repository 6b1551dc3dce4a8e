//! Retry policies and admission under load, on a virtual clock: what many clients do to one machine.
//!
//! The simulations hold no rules of gglib's. Every delay is asked of [`gglib_core::retry`], exactly as the completion
//! client does, and every engine and place of [`gglib_core::admission`], as the endpoint does; what is modelled here is
//! only the world around them: the network, the server, and time, which jumps from one event to the next. A simulation
//! is a function of its settings, the seed included: the same settings give the same result.

pub mod admission;
pub mod contention;
pub mod layers;
pub mod overload;
pub mod plots;
pub mod replay;
pub mod startup;

pub use statistics::{Estimate, percentile};

mod agenda;
mod driven;
mod random;
mod statistics;
