//! Where requests stand while the file of their model is looked at, before anything is stopped for it.
//!
//! They pass in their order: a look takes milliseconds, and one that does not come back is given up soon.

use std::collections::VecDeque;

use gglib_core::admission::Ticket;
use gglib_core::model::ModelName;

#[derive(Debug, Default)]
pub(super) struct Gate {
    line: VecDeque<(Ticket, ModelName)>,
    /// The model whose file is being looked at.
    looking: Option<ModelName>,
}

impl Gate {
    pub(super) fn join(&mut self, ticket: Ticket, model: ModelName) {
        self.line.push_back((ticket, model));
    }

    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.line.retain(|(place, _)| *place != ticket);
    }

    /// The model whose file is to be looked at now, if any.
    pub(super) fn next(&mut self) -> Option<ModelName> {
        if self.looking.is_some() {
            return None;
        }
        self.looking = self.line.front().map(|(_, model)| model.clone());
        self.looking.clone()
    }

    /// Takes out everybody who stands here for the model, whose file has been looked at.
    pub(super) fn open(&mut self, model: &ModelName) -> Vec<Ticket> {
        self.looking = None;
        let (through, line) = std::mem::take(&mut self.line).into_iter().partition(|(_, of)| of == model);
        self.line = line;
        let through: VecDeque<_> = through;
        through.into_iter().map(|(ticket, _)| ticket).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_at_a_time_is_looked_at_and_all_who_want_it_pass() {
        let (a, b) = (ModelName::new("a"), ModelName::new("b"));
        let mut gate = Gate::default();
        assert_eq!(gate.next(), None);
        for (ticket, model) in [(1, &a), (2, &b), (3, &a), (4, &b)] {
            gate.join(Ticket(ticket), model.clone());
        }
        assert_eq!((gate.next(), gate.next()), (Some(a.clone()), None));
        // Whoever leaves meanwhile does not hold up the others.
        gate.leave(Ticket(1));
        assert_eq!(gate.open(&a), [Ticket(3)]);
        assert_eq!(gate.next(), Some(b.clone()));
        assert_eq!(gate.open(&b), [Ticket(2), Ticket(4)]);
        assert_eq!(gate.next(), None);
    }
}
