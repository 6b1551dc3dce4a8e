//! The names by which code gives a retry away.

/// Words of a function's name that say that it does something again.
const AGAIN: &[&str] = &[
    "backoff",
    "reattempt",
    "reconnect",
    "redial",
    "reissue",
    "relaunch",
    "resend",
    "retransmit",
    "retries",
    "retry",
    "retrying",
    "tries",
];

/// Words of a variable's name that say that it counts or spaces tries.
const COUNTERS: &[&str] = &["attempt", "attempts", "backoff", "retries", "retry", "tries"];

/// Calls that send a request and answer with its outcome.
const SENDS: &[&str] = &["execute", "fetch", "request", "send_request"];

/// Whether a function of this name is taken for one that repeats work; it is a site when it also acts.
///
/// `attempt` is no such word: a function of this name is one try. `retry_after` is a header, and `retryable` a
/// verdict.
pub(super) fn repeats(function: &str) -> bool {
    let is_header = function.contains("retry_after");
    !is_header && function.split('_').any(|word| AGAIN.contains(&word))
}

/// Whether a variable of this name counts or spaces tries, when a loop binds or changes it.
pub(super) fn counts(variable: &str) -> bool {
    let is_header = variable.contains("retry_after");
    !is_header && variable.split('_').any(|word| COUNTERS.contains(&word))
}

/// Whether a call of this name sends a request: `arguments` counts the receiver.
///
/// `send` with nothing but its receiver is a request builder's; a channel's takes the message.
pub(super) fn sends(name: &str, arguments: usize) -> bool {
    SENDS.contains(&name) || name == "send" && arguments == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_repeat_are_told_from_headers_verdicts_and_single_tries() {
        let repeating = ["retry", "fetch_with_retries", "reconnect", "resend", "backoff_loop"];
        assert!(repeating.into_iter().all(repeats));
        let others = ["with_retry_after", "is_retryable", "attempt", "entry", "send", "countries"];
        assert!(!others.into_iter().any(repeats));
    }

    #[test]
    fn counters_are_told_from_other_variables() {
        assert!(["attempt", "max_retries", "num_tries", "next_backoff"].into_iter().all(counts));
        assert!(!["retry_after", "entries", "delay", "count"].into_iter().any(counts));
    }

    #[test]
    fn a_channel_sends_no_request() {
        assert!(sends("send", 1) && sends("execute", 2) && sends("send_request", 2));
        assert!(!sends("send", 2) && !sends("call", 2));
    }
}
