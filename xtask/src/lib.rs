//! The tasks behind `cargo xtask`: what keeps the house rules true without anybody remembering them.
//!
//! Each task takes the workspace's root directory, so that tests run it on scratch copies, and answers with a
//! [`Report`](finding::Report); only [`ci`] prints while it works.

pub mod audit;
pub mod bench;
pub mod ci;
pub mod drill;
pub mod finding;
pub mod registry;
pub mod soak;
pub mod tables;
pub mod workspace;

mod endpoint;
mod imports;
mod source;
