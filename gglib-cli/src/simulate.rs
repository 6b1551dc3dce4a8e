//! Retry policies under load, on a virtual clock: what many clients do to one server.
//!
//! The simulations hold no retry rules of their own. Every delay is asked of
//! [`gglib_core::retry`], exactly as the completion client does; what is modelled here is only the world around it:
//! the network, the server, and time, which jumps from one event to the next. A simulation is a function of its
//! settings, the seed included: the same settings give the same result.

pub mod contention;
pub mod layers;
pub mod overload;
pub mod plots;
pub mod replay;
pub mod startup;

pub use statistics::{Estimate, percentile};

mod agenda;
mod random;
mod statistics;
