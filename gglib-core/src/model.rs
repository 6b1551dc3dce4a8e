//! What a model is: its names, and what its engine is started with.

pub(crate) use catalog::nearest;
pub use catalog::{Catalog, Unknown};
pub use name::ModelName;
pub use spec::ModelSpec;

mod catalog;
mod name;
mod spec;
