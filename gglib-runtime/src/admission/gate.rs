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

    pub(super) fn holds(&self, model: &ModelName) -> bool {
        self.line.iter().any(|(_, of)| of == model)
    }

    /// Takes out everybody whose model is not `kept`.
    pub(super) fn retain(&mut self, kept: impl Fn(&ModelName) -> bool) -> Vec<Ticket> {
        let (line, gone) = std::mem::take(&mut self.line).into_iter().partition(|(_, of)| kept(of));
        self.line = line;
        let gone: VecDeque<_> = gone;
        gone.into_iter().map(|(ticket, _)| ticket).collect()
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

    #[test]
    fn models_that_are_gone_leave_nobody_behind() {
        let (a, b) = (ModelName::new("a"), ModelName::new("b"));
        let mut gate = Gate::default();
        gate.join(Ticket(1), a.clone());
        gate.join(Ticket(2), b.clone());
        assert_eq!(gate.next(), Some(a.clone()));
        assert_eq!(gate.retain(|model| *model == b), [Ticket(1)]);
        assert!(gate.holds(&b) && !gate.holds(&a));
        // The look that was on its way comes back for nobody.
        assert_eq!(gate.open(&a), []);
        assert_eq!(gate.next(), Some(b));
    }
}
