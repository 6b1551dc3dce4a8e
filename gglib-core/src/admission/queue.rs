//! The waiting requests of one model, oldest first.

use std::collections::VecDeque;

use crate::moment::Moment;

/// One request's place, numbered in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// Of whoever has no ticket yet: behind all others.
    pub(super) const NEWCOMER: Self = Self(u64::MAX);
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) since: Moment,
}

/// Waiters in the order of their tickets, so that a place is found by bisection.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiters: VecDeque<Waiter>,
}

impl Queue {
    /// Takes a newcomer, whose ticket is the highest so far.
    pub(super) fn push(&mut self, waiter: Waiter) {
        self.waiters.push_back(waiter);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        self.waiters.remove(self.rank(ticket)?)
    }

    /// How many wait before `ticket`.
    pub(super) fn rank(&self, ticket: Ticket) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    pub(super) fn oldest(&self) -> Option<Waiter> {
        self.waiters.front().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter()
    }

    pub(super) fn pop(&mut self) -> Option<Waiter> {
        self.waiters.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }
}
