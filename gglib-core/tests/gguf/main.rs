//! Headers of model files: what is read out of them, and what becomes of damaged ones.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod estimate;
mod facts;
mod header;
mod random;
#[expect(unreachable_pub, reason = "the fuzzer reaches it from outside")]
#[path = "../../../fuzz/src/targets.rs"]
mod targets;
