//! The name under which clients ask for a model.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// A configured model's name; cheap to clone.
///
/// Always a name from the configuration: an alias is resolved before one of these is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName(Arc<str>);

impl ModelName {
    /// A name as the configuration spells it.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ModelName {
    fn borrow(&self) -> &str {
        &self.0
    }
}
