//! The rules that are compared.

use gglib_core::admission::{Admission, Profile};

use super::bounds;
use super::rival::{Precedence, Rival};
use super::workload::{Model, Scene};
use crate::simulate::driven::Scheduler;

/// Who is served next, and who has to go for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Turns of bounded length: the endpoint's own machine.
    Gglib,
    /// Every request in the order of its arrival; the first one swaps whenever it wants another model.
    Fifo,
    /// A request that finds a free place at its model's engine has it at once. All others wait in the order of their
    /// arrival, and for the first one the engine is stopped that has been idle for longest, as soon as one is.
    Lru,
    /// A resident model serves whoever wants it, for as long as anybody does; others get the room when it is idle.
    NoBound,
}

impl Rule {
    /// Every rule, gglib's first.
    pub const ALL: [Self; 4] = [Self::Gglib, Self::Fifo, Self::Lru, Self::NoBound];

    /// The rule as a name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gglib => "gglib",
            Self::Fifo => "fifo",
            Self::Lru => "lru",
            Self::NoBound => "no-bound",
        }
    }

    pub(super) fn scheduler(self, scene: &Scene) -> Box<dyn Scheduler> {
        let rival = |precedence| Box::new(Rival::new(precedence, bounds(scene), scene)) as Box<dyn Scheduler>;
        match self {
            Self::Gglib => {
                let profile = |model: &Model| Profile { parallel: model.parallel, ..Profile::default() };
                let profiles = scene.models.iter().map(|model| (model.name(), profile(model)));
                Box::new(Admission::new(bounds(scene), profiles.collect()))
            }
            Self::Fifo => rival(Precedence::Arrival),
            Self::Lru => rival(Precedence::FreePlace),
            Self::NoBound => rival(Precedence::Resident),
        }
    }
}
