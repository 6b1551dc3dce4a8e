//! The longest that a request can take.

use std::fmt;
use std::time::Duration;

use super::{Admission, Config, Recovery, Timeouts};

/// What an attempt may take beyond `timeouts.total`: a check of the engine's health when the response is late and
/// another when the attempt has failed, each ending an engine that does not answer (10 s), and the reading of an
/// engine's own error (10 s).
const BEYOND: Duration = Duration::from_secs(30);

/// The longest look at a model's file, before a request enters the queue for its launch. Files of several models are looked
/// at one after the other.
pub const MODEL_LOOK: Duration = Duration::from_secs(2);

/// The longest that a request can take, from its first byte to the last one of its answer, and what it is made of.
///
/// It holds whatever the engine does, for a client that sends its body and reads its answer without delay.
///
/// ```text
/// bound = min( timeouts.request,
///              waits × (admission.max_wait + models × 2 s) + attempts × (timeouts.total + 30 s) + count + repair )
/// ```
///
/// `admission.max_wait` is from the entrance into the queue to the lease, whatever happens meanwhile: it holds the stop of
/// another engine with the saving of its slots (15 s at most), the return of its memory, and the load with the restoring of
/// slots (15 s at most). Before the entrance the model's file is looked at, perhaps behind those of all other `models`.
/// A request waits for an engine once, and once more for each recovery that relaunches one (`recovery.relaunch`,
/// `recovery.continue_streams`); it is attempted after each wait, and once more on a second connection. `count` is the
/// time that the engine of a continuation has to count the delivered tokens, `timeouts.response_headers`. Tool calls are
/// asked for again once at most, of the answer that would be the last (`recovery.repair`); `repair` is all that this may
/// take, `recovery.repair_timeout`.
///
/// ```
/// use gglib_core::config::{self, Sources};
///
/// let text = "[timeouts]\ntotal = \"1m\"\n[admission]\nmax_wait = \"1m\"";
/// let bound = config::load(&Sources { file: Some(("gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] })?.bound();
/// assert_eq!((bound.waits, bound.attempts, bound.repairs), (3, 4, 1));
/// assert_eq!(bound.total.as_secs(), 3 * 60 + 4 * 90 + 30 + 60);
/// # Ok::<(), config::ConfigErrors>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The bound.
    pub total: Duration,
    /// How often the request may wait for an engine.
    pub waits: u32,
    /// How often it may be attempted.
    pub attempts: u32,
    /// How often its tool calls may be asked for again.
    pub repairs: u32,
}

impl Bound {
    /// The bound of these settings, with so many models.
    pub fn of(timeouts: &Timeouts, admission: &Admission, recovery: &Recovery, models: usize) -> Self {
        let continuation = u32::from(recovery.continue_streams);
        let waits = 1 + u32::from(recovery.relaunch) + continuation;
        let attempts = waits + 1;
        let repairs = u32::from(recovery.repair);
        let looks = MODEL_LOOK.saturating_mul(u32::try_from(models).unwrap_or(u32::MAX));
        let attempt = timeouts.total.saturating_add(BEYOND);
        let parts = [
            admission.max_wait.saturating_add(looks).saturating_mul(waits),
            attempt.saturating_mul(attempts),
            timeouts.response_headers.saturating_mul(continuation),
            recovery.repair_timeout.saturating_mul(repairs),
        ];
        let sum = parts.into_iter().fold(Duration::ZERO, Duration::saturating_add);
        Self { total: timeouts.request.min(sum), waits, attempts, repairs }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, waits, attempts, repairs } = self;
        let total = humantime::format_duration(*total);
        write!(f, "every request ends within {total} (at most {waits} waits")?;
        match repairs {
            0 => write!(f, " and {attempts} attempts)"),
            _ => write!(f, ", {attempts} attempts, {repairs} repair)"),
        }
    }
}

impl Config {
    /// The longest that a request can take.
    pub fn bound(&self) -> Bound {
        Bound::of(&self.timeouts, &self.admission, &self.recovery, self.models.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, load};

    fn bound(text: &str) -> Bound {
        load(&Sources { file: Some(("gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] })
            .expect(text)
            .bound()
    }

    #[test]
    fn by_default_it_is_the_deadline_of_the_request() {
        let text = "every request ends within 45m (at most 3 waits, 4 attempts, 1 repair)";
        assert_eq!(bound("").to_string(), text);
        let text = "every request ends within 45m (at most 3 waits and 4 attempts)";
        assert_eq!(bound("[recovery]\nrepair = false").to_string(), text);
    }

    #[test]
    fn recoveries_that_are_off_take_no_time() {
        let with = |recovery: &str| {
            let text = format!("[timeouts]\nrequest = \"9h\"\ntotal = \"10m\"\n[recovery]\n{recovery}");
            let bound = bound(&text);
            (bound.waits, bound.attempts, bound.repairs, bound.total.as_secs())
        };
        assert_eq!(with(""), (3, 4, 1, 3 * 600 + 4 * 630 + 30 + 60));
        assert_eq!(with("repair_timeout = \"2m\""), (3, 4, 1, 3 * 600 + 4 * 630 + 30 + 120));
        assert_eq!(with("repair = false"), (3, 4, 0, 3 * 600 + 4 * 630 + 30));
        assert_eq!(with("continue_streams = false"), (2, 3, 1, 2 * 600 + 3 * 630 + 60));
        assert_eq!(with("continue_streams = false\nrelaunch = false"), (1, 2, 1, 600 + 2 * 630 + 60));
    }

    #[test]
    fn each_wait_may_begin_behind_a_look_at_the_files_of_all_models() {
        let text = "[timeouts]\nrequest = \"9h\"\ntotal = \"10m\"\n[models.a]\npath = \"a\"\n[models.b]\npath = \"b\"";
        assert_eq!(bound(text).total.as_secs(), 3 * (600 + 2 * 2) + 4 * 630 + 30 + 60);
    }

    #[test]
    fn the_longest_settings_add_up() {
        let text = "[timeouts]\ntotal = \"100y\"\nrequest = \"100y\"";
        assert_eq!(bound(text).total, Duration::from_hours(100 * 8766));
    }
}
