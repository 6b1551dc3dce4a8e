//! The wire formats that gglib must understand: request bodies, answer chunks, and the one error taxonomy.
//!
//! Everything here is bytes in, values out. What gglib does not need to understand, it does not parse: a
//! request is edited member by member and otherwise stays byte for byte, and a chunk is only probed.

pub mod body;
pub(crate) mod call;
pub mod chunk;
pub mod error;
pub mod fold;
