//! What a model is: its name and what an engine is started with.

pub use name::ModelName;

mod name;
