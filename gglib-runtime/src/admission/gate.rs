//! Where requests stand while the file of their model is looked at, before anything is stopped for it.
//!
//! They pass in their order: a look takes milliseconds, and one that does not come back is given up soon.

use std::collections::VecDeque;

use gglib_core::admission::{Admission, Outlook, QueueSnapshot, Ticket, WaiterSnapshot};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

#[derive(Debug, Default)]
pub(super) struct Gate {
    line: VecDeque<Stander>,
    /// The model whose file is being looked at.
    looking: Option<ModelName>,
}

#[derive(Debug)]
struct Stander {
    ticket: Ticket,
    model: ModelName,
    since: Moment,
}

impl Gate {
    pub(super) fn join(&mut self, ticket: Ticket, model: ModelName, since: Moment) {
        self.line.push_back(Stander { ticket, model, since });
    }

    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.line.retain(|stander| stander.ticket != ticket);
    }

    /// How many stand here for the model.
    pub(super) fn count(&self, model: &ModelName) -> usize {
        self.of(model).count()
    }

    /// How the wait of `ticket` stands, if it stands here: as if the file were good.
    pub(super) fn outlook(&self, ticket: Ticket, machine: &Admission, now: Moment) -> Option<Outlook> {
        let model = &self.line.iter().find(|stander| stander.ticket == ticket)?.model;
        let rank = self.of(model).position(|stander| stander.ticket == ticket)?;
        machine.outlook_for(model, rank, now)
    }

    /// Those who stand here, as the queues that they are about to be.
    pub(super) fn queues(&self, machine: &Admission, now: Moment) -> Vec<QueueSnapshot> {
        let mut queues: Vec<QueueSnapshot> = Vec::new();
        for Stander { model, .. } in &self.line {
            if queues.iter().any(|queue| queue.model == *model) {
                continue;
            }
            let waited = || self.of(model).map(|stander| now.saturating_since(stander.since));
            let first = waited().take(QueueSnapshot::SHOWN).enumerate().filter_map(|(rank, waited)| {
                Some(WaiterSnapshot { waited, outlook: machine.outlook_for(model, rank, now)? })
            });
            let waiting = self.count(model);
            queues.push(QueueSnapshot {
                model: model.clone(),
                waiting,
                oldest_wait: waited().next().unwrap_or_default(),
                estimate: machine.outlook_for(model, waiting, now).and_then(|outlook| outlook.estimate),
                first: first.collect(),
            });
        }
        queues
    }

    /// Takes out everybody whose model is not `kept`.
    pub(super) fn retain(&mut self, kept: impl Fn(&ModelName) -> bool) -> Vec<Ticket> {
        self.take_out(|stander| !kept(&stander.model))
    }

    /// The model whose file is to be looked at now, if any.
    pub(super) fn next(&mut self) -> Option<ModelName> {
        if self.looking.is_some() {
            return None;
        }
        self.looking = self.line.front().map(|stander| stander.model.clone());
        self.looking.clone()
    }

    /// The look that is on its way counts for nothing.
    pub(super) fn look_again(&mut self) {
        self.looking = None;
    }

    /// Takes out everybody who stands here for the model, whose file has been looked at.
    pub(super) fn open(&mut self, model: &ModelName) -> Vec<Ticket> {
        self.looking = None;
        self.take_out(|stander| stander.model == *model)
    }

    fn of(&self, model: &ModelName) -> impl Iterator<Item = &Stander> {
        self.line.iter().filter(move |stander| stander.model == *model)
    }

    fn take_out(&mut self, goes: impl Fn(&Stander) -> bool) -> Vec<Ticket> {
        let (gone, line): (VecDeque<_>, _) = std::mem::take(&mut self.line).into_iter().partition(goes);
        self.line = line;
        gone.into_iter().map(|stander| stander.ticket).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gglib_core::admission::{Profile, Settings, WaitPhase};

    use super::*;

    #[test]
    fn one_file_at_a_time_is_looked_at_and_all_who_want_it_pass() {
        let (a, b) = (ModelName::new("a"), ModelName::new("b"));
        let mut gate = Gate::default();
        assert_eq!(gate.next(), None);
        for (ticket, model) in [(1, &a), (2, &b), (3, &a), (4, &b)] {
            gate.join(Ticket(ticket), model.clone(), Moment::ORIGIN);
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
    fn after_a_look_that_counts_for_nothing_the_next_one_is_of_whoever_stands_first() {
        let mut gate = Gate::default();
        let a = ModelName::new("a");
        gate.join(Ticket(1), a.clone(), Moment::ORIGIN);
        assert_eq!((gate.next(), gate.next()), (Some(a.clone()), None));
        gate.look_again();
        assert_eq!(gate.next(), Some(a.clone()));
        assert_eq!(gate.open(&a), [Ticket(1)]);
    }

    #[test]
    fn models_that_are_gone_leave_nobody_behind() {
        let (a, b) = (ModelName::new("a"), ModelName::new("b"));
        let mut gate = Gate::default();
        gate.join(Ticket(1), a.clone(), Moment::ORIGIN);
        gate.join(Ticket(2), b.clone(), Moment::ORIGIN);
        assert_eq!(gate.next(), Some(a.clone()));
        assert_eq!(gate.retain(|model| *model == b), [Ticket(1)]);
        assert_eq!((gate.count(&a), gate.count(&b)), (0, 1));
        // The look that was on its way comes back for nobody.
        assert_eq!(gate.open(&a), []);
        assert_eq!(gate.next(), Some(b));
    }

    #[test]
    fn whoever_stands_here_is_shown_as_the_queue_that_it_is_about_to_be() {
        let models = ["a", "b", "c"].map(|name| (ModelName::new(name), Profile::default()));
        let machine = Admission::new(Settings::default(), models.clone().into());
        let [a, b, _] = models.map(|(name, _)| name);
        let second = |second| Moment::from_nanos(second * 1_000_000_000);
        let mut gate = Gate::default();
        for (ticket, model) in [(1, &a), (2, &b), (3, &a)] {
            gate.join(Ticket(ticket), model.clone(), second(ticket));
        }
        let outlook = |position| Outlook { position, estimate: None, phase: WaitPhase::Turn, percent: None };
        let place = |ticket| gate.outlook(Ticket(ticket), &machine, second(5));
        assert_eq!([1, 2, 3, 4].map(place), [Some(outlook(1)), Some(outlook(1)), Some(outlook(2)), None]);
        let waiter = |waited, position| WaiterSnapshot { waited, outlook: outlook(position) };
        let queue = |model: &ModelName, waits: &[u64]| QueueSnapshot {
            model: model.clone(),
            waiting: waits.len(),
            oldest_wait: Duration::from_secs(waits[0]),
            estimate: None,
            first: waits
                .iter()
                .zip(1..)
                .map(|(wait, rank)| waiter(Duration::from_secs(*wait), rank))
                .collect(),
        };
        assert_eq!(gate.queues(&machine, second(5)), [queue(&a, &[4, 2]), queue(&b, &[3])]);
    }
}
