//! Counting what happened within the last while.

use std::time::Duration;

use crate::moment::Moment;

/// The slots that a window is divided into.
const SLOTS: u64 = 100;

/// A count over a sliding window, kept in slots of a hundredth of it.
///
/// An event leaves the count together with its slot. The moments may not go back; one that does is taken for the
/// latest.
#[derive(Debug)]
pub(super) struct Window {
    /// Nanoseconds, at least 1.
    slot_width: u64,
    /// The counts of the slots up to `current`, that of slot `s` at `s % len`.
    slots: Box<[u64]>,
    current: u64,
    total: u64,
}

impl Window {
    /// In which an event counts for at most `length`, and for a hundredth less at least.
    pub(super) fn at_most(length: Duration) -> Self {
        Self::new(SLOTS, length.as_nanos() / u128::from(SLOTS))
    }

    /// In which an event counts for at least `length`, and for a hundredth more at most.
    pub(super) fn at_least(length: Duration) -> Self {
        Self::new(SLOTS + 1, length.as_nanos().div_ceil(u128::from(SLOTS)))
    }

    fn new(slots: u64, slot_width: u128) -> Self {
        let slot_width = u64::try_from(slot_width).unwrap_or(u64::MAX).max(1);
        Self { slot_width, slots: (0..slots).map(|_| 0).collect(), current: 0, total: 0 }
    }

    /// Counts one event; returns its slot.
    pub(super) fn add(&mut self, now: Moment) -> u64 {
        self.advance(now);
        *self.at(self.current) += 1;
        self.total += 1;
        self.current
    }

    /// Takes back one event of `slot`, which there must have been, unless it has left the count already.
    pub(super) fn take_back(&mut self, slot: u64, now: Moment) {
        self.advance(now);
        if self.current - slot < self.len() {
            *self.at(slot) -= 1;
            self.total -= 1;
        }
    }

    /// The events that count now.
    pub(super) fn count(&mut self, now: Moment) -> u64 {
        self.advance(now);
        self.total
    }

    /// Forgets the slots that have left the window since the last call.
    fn advance(&mut self, now: Moment) {
        let target = (now.as_nanos() / self.slot_width).max(self.current);
        for age in 0..(target - self.current).min(self.len()) {
            self.total -= std::mem::take(self.at(target - age));
        }
        self.current = target;
    }

    fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    fn at(&mut self, slot: u64) -> &mut u64 {
        let index = usize::try_from(slot % self.len()).expect("an index below the number of slots");
        &mut self.slots[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::ORIGIN.saturating_add(Duration::from_millis(millis))
    }

    #[test]
    fn an_event_counts_for_a_window_less_a_slot_at_least() {
        // Slots of 100 ms; the event is in the middle of slot 12.
        let mut window = Window::at_most(Duration::from_secs(10));
        window.add(at(1_250));
        assert_eq!(window.count(at(11_199)), 1);
        assert_eq!(window.count(at(11_200)), 0);

        let mut longer = Window::at_least(Duration::from_secs(10));
        longer.add(at(1_250));
        assert_eq!(longer.count(at(11_299)), 1);
        assert_eq!(longer.count(at(11_300)), 0);
    }

    #[test]
    fn a_length_that_cannot_be_divided_is_rounded_to_the_safe_side() {
        let length = Duration::from_nanos(199);
        for (mut window, longest, shortest) in
            [(Window::at_most(length), 199, 99), (Window::at_least(length), 202, 199)]
        {
            window.add(at(0));
            let counted =
                (0..1_000).take_while(|&nanos| window.count(Moment::from_nanos(nanos)) == 1).count();
            assert!((shortest..=longest).contains(&counted), "{counted}");
        }
    }

    #[test]
    fn what_has_left_is_not_taken_back() {
        let mut window = Window::at_most(Duration::from_secs(10));
        let [early, late] = [0, 5_000].map(|millis| window.add(at(millis)));
        window.take_back(early, at(10_000));
        assert_eq!(window.count(at(10_000)), 1);
        window.take_back(late, at(10_000));
        assert_eq!(window.count(at(10_000)), 0);
    }

    #[test]
    fn long_silence_and_the_ends_of_time() {
        for length in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(10), Duration::MAX] {
            for mut window in [Window::at_most(length), Window::at_least(length)] {
                window.add(at(0));
                let slot = window.add(Moment::from_nanos(u64::MAX));
                let count = window.count(Moment::from_nanos(u64::MAX));
                assert_eq!(count, if length == Duration::MAX { 2 } else { 1 }, "{length:?}");
                // Back in time is no time at all.
                assert_eq!(window.count(at(0)), count, "{length:?}");
                window.take_back(slot, at(0));
                assert_eq!(window.count(at(0)), count - 1, "{length:?}");
            }
        }
    }
}
