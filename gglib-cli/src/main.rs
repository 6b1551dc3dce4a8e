//! The `gglib` command.
fn main() {}
