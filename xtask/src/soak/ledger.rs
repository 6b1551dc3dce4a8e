//! What became of every request.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gglib_cli::drill::outcome::{Asked, Outcome, Seen};

/// Broken promises that are told one by one.
const TOLD: usize = 20;
/// Characters of an answer that broke the promise.
const QUOTED: usize = 600;

/// The clients' own count.
#[derive(Default)]
pub(super) struct Ledger(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    sent: usize,
    answered: usize,
    failed: usize,
    left: usize,
    outcomes: BTreeMap<String, usize>,
    broken: Vec<String>,
}

/// How many requests ended in each way, broken promises left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) sent: usize,
    pub(super) answered: usize,
    /// With an error, refusals included.
    pub(super) failed: usize,
    pub(super) left: usize,
}

impl Ledger {
    /// A request is sent now. It must be [`closed`](Self::close).
    pub(super) fn open(&self) {
        self.entries().sent += 1;
    }

    /// Judges what came of a request; when to come back, if it says so.
    pub(super) fn close(&self, seen: &Seen, bound: Duration) -> Option<Duration> {
        let outcome = seen.judge(bound);
        let mut entries = self.entries();
        let (name, hint) = match &outcome {
            Outcome::Answered { .. } => {
                entries.answered += 1;
                (outcome.to_string(), None)
            }
            Outcome::Failed { .. } => {
                entries.failed += 1;
                (outcome.to_string(), None)
            }
            Outcome::Refused { status, code, retry_after } => {
                entries.failed += 1;
                (format!("{} {code}, with Retry-After", status.as_u16()), Some(*retry_after))
            }
            Outcome::LeftByClient => {
                entries.left += 1;
                (outcome.to_string(), None)
            }
            Outcome::Broken { .. } => {
                let body: String = String::from_utf8_lossy(&seen.body).chars().take(QUOTED).collect();
                let problem = format!("{}: {outcome} after {:.1?}: {body:?}", seen.asked, seen.took);
                entries.blame(problem);
                (outcome.to_string(), None)
            }
        };
        let asked = if seen.asked == Asked::Stream { "stream" } else { "plain" };
        *entries.outcomes.entry(format!("{asked:<6}  {name}")).or_default() += 1;
        hint
    }

    /// A promise was broken that no single answer shows.
    pub(super) fn blame(&self, problem: String) {
        self.entries().blame(problem);
    }

    pub(super) fn sent(&self) -> usize {
        self.entries().sent
    }

    pub(super) fn counts(&self) -> Counts {
        let Entries { sent, answered, failed, left, .. } = *self.entries();
        Counts { sent, answered, failed, left }
    }

    /// How often each outcome was seen.
    pub(super) fn outcomes(&self) -> BTreeMap<String, usize> {
        self.entries().outcomes.clone()
    }

    /// The broken promises, requests that are in no count, and that there was no answer at all, since then nothing was
    /// put to the test.
    pub(super) fn broken(&self) -> Vec<String> {
        let entries = self.entries();
        let mut problems: Vec<_> = entries.broken.iter().take(TOLD).cloned().collect();
        if entries.broken.len() > TOLD {
            problems.push(format!("and {} more broken promises", entries.broken.len() - TOLD));
        }
        if entries.answered == 0 {
            problems.push("no request was answered in full".to_owned());
        }
        let ended: usize = entries.outcomes.values().sum();
        if ended != entries.sent {
            problems.push(format!("{} requests were sent and {ended} have ended", entries.sent));
        }
        problems
    }

    /// In a line.
    pub(super) fn line(&self) -> String {
        let Entries { sent, answered, failed, left, broken, .. } = &*self.entries();
        let broken = broken.len();
        format!(
            "{sent} requests: {answered} answered, {failed} errors and refusals, {left} left, {broken} broken"
        )
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn blame(&mut self, problem: String) {
        self.broken.push(problem);
    }
}

#[cfg(test)]
mod tests {
    use gglib_cli::drill::outcome::{End, Head};
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;

    const BOUND: Duration = Duration::from_secs(9);

    fn seen(end: End) -> Seen {
        Seen {
            asked: Asked::Plain,
            head: None,
            body: Vec::new(),
            end,
            first_content: None,
            took: Duration::from_secs(1),
        }
    }

    fn answered() -> Seen {
        let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let body = br#"{"object":"chat.completion","choices":[{"index":0,"finish_reason":"stop",
            "message":{"role":"assistant","content":"Yes."}}]}"#;
        let head = Some(Head { status: StatusCode::OK, headers: json });
        Seen { head, body: body.to_vec(), ..seen(End::Clean) }
    }

    #[test]
    fn a_request_without_an_end_and_a_broken_promise_are_told() {
        let ledger = Ledger::default();
        for seen in [answered(), seen(End::Left)] {
            ledger.open();
            ledger.close(&seen, BOUND);
        }
        assert_eq!((ledger.counts().answered, ledger.counts().left, ledger.broken()), (1, 1, Vec::new()));
        ledger.open();
        assert_eq!(ledger.broken(), ["3 requests were sent and 2 have ended"]);
        ledger.close(&seen(End::Cut), BOUND);
        assert_eq!(
            ledger.broken(),
            ["plain: broken: the connection ended without an answer after 1.0s: \"\""]
        );
    }

    #[test]
    fn traffic_without_an_answer_is_a_problem() {
        let ledger = Ledger::default();
        assert_eq!(ledger.broken(), ["no request was answered in full"]);
        ledger.open();
        ledger.close(&seen(End::Left), BOUND);
        assert_eq!(ledger.broken(), ["no request was answered in full"]);
    }
}
