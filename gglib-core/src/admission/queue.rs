//! The waiting requests, oldest first.

use std::collections::VecDeque;

use crate::model::ModelName;
use crate::moment::Moment;

/// One request's place, numbered in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) model: ModelName,
    /// What the model's engine would be started with.
    pub(super) parallel: u32,
    pub(super) since: Moment,
}

/// All waiters in the order of their tickets.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiters: VecDeque<Waiter>,
}

impl Queue {
    pub(super) fn push(&mut self, waiter: Waiter) {
        self.waiters.push_back(waiter);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let index = self.waiters.iter().position(|waiter| waiter.ticket == ticket)?;
        self.waiters.remove(index)
    }

    /// Takes the oldest waiter of `model` that arrived no later than `gate`.
    pub(super) fn take(&mut self, model: &ModelName, gate: Ticket) -> Option<Waiter> {
        let index = self.waiters.iter().position(|waiter| waiter.model == *model && waiter.ticket <= gate)?;
        self.waiters.remove(index)
    }

    /// Takes every waiter for whom `leaves` holds.
    pub(super) fn drain_where(&mut self, mut leaves: impl FnMut(&Waiter) -> bool) -> Vec<Waiter> {
        let (left, kept) = std::mem::take(&mut self.waiters).into_iter().partition(|waiter| leaves(waiter));
        self.waiters = kept;
        Vec::from_iter::<VecDeque<Waiter>>(left)
    }

    pub(super) fn oldest(&self) -> Option<&Waiter> {
        self.waiters.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter()
    }

    pub(super) fn waiting_for(&self, model: &ModelName) -> usize {
        self.waiters.iter().filter(|waiter| waiter.model == *model).count()
    }

    /// Whether a model other than `model` is waited for.
    pub(super) fn has_rival(&self, model: &ModelName) -> bool {
        self.waiters.iter().any(|waiter| waiter.model != *model)
    }
}
