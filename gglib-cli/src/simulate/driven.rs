//! A scheduler and its clock.

use gglib_core::admission::{Admission, Command, Event};
use gglib_core::moment::Moment;

/// Takes the events of an admission queue and says what has to be done; see [`Admission`], the one that gglib has.
pub(super) trait Scheduler {
    /// Takes one event and appends what has to be done.
    fn handle(&mut self, event: Event, now: Moment, out: &mut Vec<Command>);

    /// When [`Event::Tick`] is due.
    fn next_deadline(&self) -> Option<Moment>;
}

impl Scheduler for Admission {
    fn handle(&mut self, event: Event, now: Moment, out: &mut Vec<Command>) {
        self.handle(event, now, out);
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.next_deadline()
    }
}

/// A scheduler, and the next of its deadlines that is on an agenda.
pub(super) struct Driven {
    scheduler: Box<dyn Scheduler>,
    tick: Option<Moment>,
}

impl Driven {
    pub(super) fn new(scheduler: Box<dyn Scheduler>) -> Self {
        Self { scheduler, tick: None }
    }

    /// What has to be done after `event`, and the moment at which a tick has to be put on the agenda, if one has.
    pub(super) fn handle(&mut self, event: Event, now: Moment) -> (Vec<Command>, Option<Moment>) {
        let mut commands = Vec::new();
        if event == Event::Tick {
            self.tick = None;
        }
        self.scheduler.handle(event, now, &mut commands);
        let due = self.scheduler.next_deadline().filter(|due| self.tick.is_none_or(|tick| *due < tick));
        self.tick = due.or(self.tick);
        (commands, due)
    }
}
