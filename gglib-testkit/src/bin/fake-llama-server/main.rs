//! A stand-in for `llama-server` that does what a script says.

fn main() {}
