//! Every metric, once: its name, kind, labels and meaning.
//!
//! Registration takes name and help from here, and so does the reference page of the book.

use prometheus_client::registry::{self, Registry};

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name of its samples; those of a histogram go on with `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// What its samples are.
    pub kind: Kind,
    /// The names of its labels, `le` excepted.
    pub labels: &'static [&'static str],
    /// What it means, one sentence without its full stop.
    pub help: &'static str,
}

/// What the samples of a metric are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until gglib is started again.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations in buckets, and sums them up.
    Histogram,
}

impl Kind {
    /// The word of the text format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Metric {
    /// Puts `metric` into `registry` under this name.
    pub(super) fn register(&self, registry: &mut Registry, metric: impl registry::Metric) {
        // The encoder adds the suffix of counters and the full stop itself.
        let name = self.name.strip_suffix("_total").filter(|_| self.kind == Kind::Counter);
        registry.register(name.unwrap_or(self.name), self.help, metric);
    }
}

/// Declares the constants and their list from the same lines, so that neither can lack what the other has.
macro_rules! metrics {
    ($( $kind:ident $constant:ident $name:literal [$( $label:literal ),*] $help:literal, )+) => {
        $(
            pub(super) const $constant: Metric =
                Metric { name: $name, kind: Kind::$kind, labels: &[$( $label ),*], help: $help };
        )+

        /// Every metric, in the order of the reference page.
        pub const METRICS: &[Metric] = &[$( $constant ),+];
    };
}

metrics! {
    Counter RECEIVED "gglib_requests_received_total" []
        "Completion requests that came",
    Gauge IN_FLIGHT "gglib_requests_in_flight" ["model"]
        "Completion requests that have been read and not ended, the waiting ones included",
    Counter ENDED "gglib_requests_total" ["model", "outcome", "code"]
        "Completion requests that have ended, by how",
    Histogram DURATION "gglib_request_duration_seconds" ["model", "outcome"]
        "Time from a request's head to the end of its answer",
    Histogram QUEUE_WAIT "gglib_queue_wait_seconds" ["model"]
        "Time that requests waited for an engine, also those that were refused or left; loads included",
    Histogram FIRST_CONTENT "gglib_time_to_first_content_seconds" ["model"]
        "Time from a request's last byte to the first text, reasoning or tool call of its answer",
    Histogram GENERATION "gglib_generation_seconds" ["model"]
        "Time from the first content of a whole answer to its end",
    Counter PROMPT_TOKENS "gglib_prompt_tokens_total" ["model"]
        "Tokens of the prompts of whole answers, the cached ones included",
    Counter CACHED_TOKENS "gglib_cached_prompt_tokens_total" ["model"]
        "Tokens of prompts that an engine had in its cache",
    Counter COMPLETION_TOKENS "gglib_completion_tokens_total" ["model"]
        "Tokens of whole answers",
    Counter ATTACHED "gglib_attached_requests_total" ["model"]
        "Requests that were answered by the run of the same idempotency key, and not by one of their own",
    Counter RELAUNCHES "gglib_relaunches_total" ["model"]
        "Requests that began anew on another engine because theirs was dead",
    Counter RESENDS "gglib_resends_total" ["model"]
        "Requests sent again because their connection broke",
    Counter CONTINUATIONS "gglib_continuations_total" ["model"]
        "Streams whose engine died and that went on, with another one if more than the end was missing",
    Counter BROKEN_TURNS "gglib_broken_turns_total" ["model"]
        "Answers with tool calls that no client could run, or without one that was due",
    Counter MENDS "gglib_mends_total" ["model"]
        "Broken turns of which only the packaging was wrong",
    Counter REPAIRS "gglib_repairs_total" ["model"]
        "Broken turns that a second request has put right",
    Histogram RETRIES_ABOVE "gglib_retries_above" ["model"]
        "How often the clients of requests say that they have made them before, at most 16",
    Counter RETRIED "gglib_retried_requests_total" ["model"]
        "Requests whose clients say that they have made them before",
    Counter RETRY_EVENTS "gglib_retry_events_total" ["model", "event"]
        "Events of backoff sequences, and of the budget that the clients' retries are counted against",
    Counter GIVE_UPS "gglib_retry_give_ups_total" ["model", "reason"]
        "Backoff sequences that ended without an answer, and error responses whose `x-should-retry` is false",
    Counter BREAKER_CHANGES "gglib_breaker_changes_total" ["model", "to"]
        "Changes of state of circuit breakers",
    Gauge TASKS "gglib_tasks" []
        "Tasks that run within gglib: some for each engine, connection and request, and all others for as long as it runs",
    Gauge SCHEDULER_UP "gglib_scheduler_up" []
        "1 if the owner of the queue has answered, else 0, and then what is below is missing",
    Gauge ENGINES "gglib_engines" ["model", "state"]
        "Engines that exist",
    Gauge ENGINE_LEASES "gglib_engine_requests_in_flight" ["model"]
        "Requests that use an engine now",
    Gauge WAITING "gglib_queue_waiting" ["model"]
        "Requests that wait for an engine now",
    Gauge OLDEST_WAIT "gglib_queue_oldest_wait_seconds" ["model"]
        "The longest wait of those that wait now",
    Gauge MEMORY "gglib_engine_memory_bytes" ["model", "known_by", "kind"]
        "What engines take, by estimate when they were launched and by measurement when they were ready",
    Gauge BREAKERS "gglib_load_breakers" ["model", "state"]
        "1 for a model whose last load has failed: no load is tried (open), or a single one (half open)",
    Counter LOADS "gglib_loads_total" ["model"]
        "Launches that became ready",
    Counter LOADING "gglib_load_seconds_total" ["model"]
        "Time that these launches took",
    Counter FAILED_LOADS "gglib_failed_loads_total" []
        "Launches that did not",
    Counter CANCELLED_LOADS "gglib_cancelled_loads_total" []
        "Launches given up because nobody wanted them any more",
    Counter SWAPS "gglib_swaps_total" []
        "Launches for which another model had to make room",
    Counter EVICTIONS "gglib_evictions_total" []
        "Engines stopped to make room",
    Counter RECYCLES "gglib_recycles_total" []
        "Engines stopped because they had come to take much more memory than when they were ready",
    Counter EXPIRED "gglib_expired_waits_total" []
        "Waits ended by one of their bounds",
    Counter CRASHES "gglib_crashes_total" []
        "Ready engines that ended by themselves, or hung and were killed",
}
