//! What the fuzzer runs; see `targets`.

pub mod targets;
