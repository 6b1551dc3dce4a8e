//! What a model is: its names, what its engine is started with, and what its file says about it.

pub(crate) use catalog::nearest;
pub use catalog::{Catalog, Unknown};
pub use estimate::{EngineOptions, Estimate};
pub use name::ModelName;
pub use spec::ModelSpec;
pub(crate) use spec::option_name;

mod catalog;
pub mod estimate;
pub mod gguf;
mod name;
mod spec;
