//! Hints for a crowd: to each client the time of its own place.

use std::time::Duration;

use super::LONGEST;
use crate::moment::Moment;
use crate::retry::policy::RetryPolicy;

/// When there will be room for the clients that a server has to refuse, one after the other.
///
/// Clients that are told the same time return together, within `initial_backoff` of it: the first few fill the queue,
/// and all others are refused again. Until they are back, the queue runs empty. To come back at different times they
/// have to be told different times, and these can all be true: the first client is told when the queue will have room,
/// the next one when it will have room once more. This is the *virtual scheduling* of ITU-T I.371 (the generic cell
/// rate algorithm), where the sender is told when it conforms instead of being dropped.
///
/// A place is kept up to the policy's `max_backoff` ahead: a client by [`HintRule::Floor`](crate::retry::HintRule::Floor)
/// waits for no longer, so it would come before its place. A later client is told of a place as well, up to 60 s ahead,
/// for clients that do wait so long; but it is promised to the next ones again, who may then come closer.
///
/// Nothing but times is remembered, and nobody is recognised. A client that does not keep to its time takes the place of
/// another; so the promise is one about the crowd.
///
/// ```
/// use std::time::Duration;
/// use gglib_core::moment::Moment;
/// use gglib_core::retry::{RetryPolicy, hint};
///
/// let (policy, mut places) = (RetryPolicy::default(), hint::Places::default());
/// // The model is ready in 8 s, and then serves four requests a second.
/// let (loaded, interval) = (Duration::from_secs(8), Duration::from_millis(250));
/// let mut next = || places.take(&policy, Moment::ORIGIN, loaded, interval);
/// assert_eq!([next(), next(), next()].map(|it| it.as_millis()), [8_000, 8_250, 8_500]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The first place that nobody has been promised.
    free: Moment,
    /// The first that nobody has been told of.
    untold: Moment,
}

impl Places {
    /// The time until the next place, to be [advertised](super::advertise) to one client, and to it alone.
    ///
    /// `room` is the time until the queue takes one more request, as far as can be told: the rest of a load, say.
    /// From then on it takes another one every `interval`: the time of one answer, divided by the answers at once.
    pub fn take(
        &mut self,
        policy: &RetryPolicy,
        now: Moment,
        room: Duration,
        interval: Duration,
    ) -> Duration {
        let first = now.saturating_add(room);
        let place = self.free.max(first);
        if place <= now.saturating_add(policy.max_backoff) {
            self.free = place.saturating_add(interval);
            return place.saturating_since(now);
        }
        let latest = now.saturating_add(LONGEST).max(place);
        let place = self.untold.max(place).min(latest);
        self.untold = place.saturating_add(interval);
        place.saturating_since(now)
    }
}
