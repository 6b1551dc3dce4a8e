//! The virtual clock: what will happen, in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gglib_core::moment::Moment;

/// Events to come. Those of one moment come in the order in which they were added.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    heap: BinaryHeap<Reverse<(Moment, u64, E)>>,
    added: u64,
}

impl<E: Ord> Agenda<E> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), added: 0 }
    }

    pub(super) fn add(&mut self, at: Moment, event: E) {
        self.added += 1;
        self.heap.push(Reverse((at, self.added, event)));
    }

    /// The next event, and the moment to which the clock jumps.
    pub(super) fn next(&mut self) -> Option<(Moment, E)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_in_the_order_of_their_addition() {
        let mut agenda = Agenda::new();
        for (at, event) in [(2, 'c'), (1, 'b'), (1, 'a'), (0, 'z')] {
            agenda.add(Moment::from_nanos(at), event);
        }
        let order: String = std::iter::from_fn(|| agenda.next()).map(|(_, event)| event).collect();
        assert_eq!(order, "zbac");
    }
}
