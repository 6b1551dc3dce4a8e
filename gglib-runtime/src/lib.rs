//! Processes and waiting: everything of gglib that needs a clock, a process or a network client.

pub mod admission;
pub mod completion;
pub mod engine;
pub mod http;
pub mod install;
pub mod memory;
pub mod slots;
