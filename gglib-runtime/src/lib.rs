//! To be written.

pub mod install;
