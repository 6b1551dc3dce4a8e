//! Whether the endpoint counts as its clients do.

use super::ledger::Ledger;
use super::rig::{MODELS, Rig};

/// Requests of the rig itself before and after the traffic, at the least: one for each model.
const OWN: u64 = 2 * MODELS.len() as u64;

/// What `/metrics` and `/status` say, as far as it must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Books {
    received: u64,
    ended: u64,
    succeeded: u64,
    in_flight: u64,
    leases: u64,
    waiting: u64,
    /// `totals.requests` of `/status`.
    told: u64,
}

/// Where the clients' count and the endpoint's differ.
///
/// A client that left may have done so before its request was read, or after its answer was whole; so the endpoint's
/// counts lie within bounds.
pub(super) async fn disagreements(rig: &Rig, ledger: &Ledger) -> Vec<String> {
    let Ok(text) = rig.metrics().await else { return vec!["/metrics does not answer".to_owned()] };
    let told = rig.totals().await["requests"].as_u64().unwrap_or_default();
    let books = Books::read(&text, told);
    let counts = ledger.counts();
    let [sent, answered, left] = [counts.sent, counts.answered, counts.left].map(|count| count as u64);
    books.compare(sent, answered, left)
}

impl Books {
    fn read(metrics: &str, told: u64) -> Self {
        let sum = |name: &str, label: &str| samples(metrics, name, label);
        Self {
            received: sum("gglib_requests_received_total", ""),
            ended: sum("gglib_requests_total", ""),
            succeeded: sum("gglib_requests_total", "outcome=\"success\""),
            in_flight: sum("gglib_requests_in_flight", ""),
            leases: sum("gglib_engine_requests_in_flight", ""),
            waiting: sum("gglib_queue_waiting", ""),
            told,
        }
    }

    fn compare(self, sent: u64, answered: u64, left: u64) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |holds: bool, what: &str| {
            if !holds {
                problems.push(format!(
                    "{what}: {self:?}, clients: {sent} sent, {answered} answered, {left} left"
                ));
            }
        };
        check(self.received == self.ended, "not every request that came has ended");
        check(self.told == self.received, "/status and /metrics differ");
        check(self.in_flight + self.leases + self.waiting == 0, "something is in flight");
        // The rig asks again when it is refused, a few times.
        let own = OWN..=4 * OWN;
        check(self.received + left >= sent + own.start(), "fewer requests came than were sent");
        check(self.received <= sent + own.end(), "more requests came than were sent");
        check(self.succeeded >= answered, "fewer requests succeeded than were answered");
        check(self.succeeded <= answered + left + own.end(), "more requests succeeded than were answered");
        problems
    }
}

/// The sum of the samples of `name` that have `label`.
pub(super) fn samples(metrics: &str, name: &str, label: &str) -> u64 {
    let of_name = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let of_name = of_name.filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(label));
    of_name.filter_map(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# HELP gglib_requests_total Completion requests that have ended, by how.
gglib_requests_received_total 24
gglib_requests_total{model=\"a\",outcome=\"success\",code=\"\"} 15
gglib_requests_total{model=\"b\",outcome=\"error\",code=\"upstream_died\"} 9
gglib_requests_in_flight{model=\"a\"} 0
gglib_queue_waiting{model=\"a\"} 0
";

    #[test]
    fn books_that_agree_within_what_leavers_leave_open_are_in_order() {
        let books = Books::read(METRICS, 24);
        assert_eq!((books.received, books.ended, books.succeeded), (24, 24, 15));
        assert_eq!(books.compare(20, 11, 0), Vec::<String>::new());
        assert_eq!(books.compare(22, 9, 2), Vec::<String>::new());
        assert_eq!(books.compare(22, 9, 0).len(), 1, "two have not come");
        assert_eq!(books.compare(20, 16, 0).len(), 1, "an answer is not in the books");
        assert_eq!(Books { ended: 23, ..books }.compare(20, 11, 0).len(), 1, "one has not ended");
        assert_eq!(Books { waiting: 1, ..books }.compare(20, 11, 0).len(), 1, "one still waits");
    }
}
