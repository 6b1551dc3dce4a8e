//! What the endpoint counts and measures: one book, from which `/status` and `/metrics` are read.
//!
//! Every event of a request is recorded here, and every event of a backoff sequence observed. What is known of engines
//! and queues is read from a snapshot at the moment of asking. Nothing of it loads a model.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use gglib_core::admission::Snapshot;
use gglib_core::model::{Catalog, ModelName};
use gglib_core::retry::{BreakerState, EventSource, GiveUpReason, RetryEvent, RetryObserver};
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::labels::{Changed, Ended, GaveUp, Happened, Lasted, Model, OfModel};
use self::recent::Recents;

pub(crate) use self::answer::{AnswerMeter, Tokens};
pub(crate) use self::event::{End, Event};
pub(crate) use self::recent::Recent;
pub use self::table::{Kind, METRICS, Metric};

mod answer;
mod event;
mod labels;
mod recent;
mod scheduler;
mod table;

/// The bounds of all histograms of time, in seconds: from a cached answer of a small model to a long one of a large
/// model, loads included.
const SECONDS: [f64; 15] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];

/// The bounds of a number of retries.
const RETRIES: [f64; 6] = [0.0, 1.0, 2.0, 3.0, 5.0, 10.0];

type Seconds<Labels> = Family<Labels, Histogram, fn() -> Histogram>;

/// The counters, gauges and histograms of one endpoint.
pub(crate) struct Metrics {
    registry: Registry,
    /// Every model that is or has been configured.
    models: RwLock<BTreeSet<ModelName>>,
    received: Counter,
    in_flight: Family<OfModel, Gauge>,
    ended: Family<Ended, Counter>,
    duration: Seconds<Lasted>,
    queue_wait: Seconds<OfModel>,
    first_content: Seconds<OfModel>,
    generation: Seconds<OfModel>,
    prompt_tokens: Family<OfModel, Counter>,
    cached_tokens: Family<OfModel, Counter>,
    completion_tokens: Family<OfModel, Counter>,
    attached: Family<OfModel, Counter>,
    relaunches: Family<OfModel, Counter>,
    resends: Family<OfModel, Counter>,
    continuations: Family<OfModel, Counter>,
    broken_turns: Family<OfModel, Counter>,
    mends: Family<OfModel, Counter>,
    repairs: Family<OfModel, Counter>,
    retries_above: Seconds<OfModel>,
    retried: Family<OfModel, Counter>,
    retry_events: Family<Happened, Counter>,
    give_ups: Family<GaveUp, Counter>,
    breaker_changes: Family<Changed, Counter>,
    recent: Recents,
}

/// Counted since the start, over all models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Completion requests that came.
    pub(crate) requests: u64,
    /// Those that ended in an error, refusals included.
    pub(crate) failed: u64,
    /// Those whose client left before the end.
    pub(crate) abandoned: u64,
    /// Requests that began anew on another engine.
    pub(crate) relaunches: u64,
    /// Requests sent again because their connection broke.
    pub(crate) resends: u64,
    /// Streams that went on after their engine had died.
    pub(crate) continuations: u64,
    /// Answers with tool calls that no client could run, or without one that was due.
    pub(crate) broken_turns: u64,
    /// Those of them whose packaging alone was wrong.
    pub(crate) mends: u64,
    /// Those that a second request has put right.
    pub(crate) repairs: u64,
    /// Requests that their client had made before.
    pub(crate) retries: u64,
}

impl Metrics {
    /// Metrics of the models of `catalog`. What will be counted of each begins at 0: a series that first appears
    /// with a 1 has no increase.
    pub(crate) fn new(catalog: &Catalog) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        let retries: fn() -> Histogram = || Histogram::new(RETRIES);
        let metrics = Self {
            registry: Registry::default(),
            models: RwLock::default(),
            received: Counter::default(),
            in_flight: Family::default(),
            ended: Family::default(),
            duration: Family::new_with_constructor(seconds),
            queue_wait: Family::new_with_constructor(seconds),
            first_content: Family::new_with_constructor(seconds),
            generation: Family::new_with_constructor(seconds),
            prompt_tokens: Family::default(),
            cached_tokens: Family::default(),
            completion_tokens: Family::default(),
            attached: Family::default(),
            relaunches: Family::default(),
            resends: Family::default(),
            continuations: Family::default(),
            broken_turns: Family::default(),
            mends: Family::default(),
            repairs: Family::default(),
            retries_above: Family::new_with_constructor(retries),
            retried: Family::default(),
            retry_events: Family::default(),
            give_ups: Family::default(),
            breaker_changes: Family::default(),
            recent: Recents::default(),
        };
        metrics.extend(catalog);
        metrics.registered()
    }

    /// Takes in the models of `catalog`; those that were known before keep their counts.
    pub(crate) fn extend(&self, catalog: &Catalog) {
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        for (name, _) in catalog.iter() {
            if models.insert(name.clone()) {
                self.begin_at_zero(name);
            }
        }
    }

    fn models(&self) -> BTreeSet<ModelName> {
        self.models.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts what has happened to a request.
    pub(crate) fn record(&self, event: Event<'_>) {
        match event {
            Event::Received => {
                self.received.inc();
            }
            Event::Identified { model, above } => {
                self.in_flight.get_or_create(&of(model)).inc();
                self.retries_above.get_or_create(&of(model)).observe(above.count().into());
                self.retried.get_or_create(&of(model)).inc_by(above.is_retry().into());
            }
            Event::LeftQueue { model, waited } => {
                self.queue_wait.get_or_create(&of(model)).observe(waited.as_secs_f64());
            }
            Event::Attached { model } => {
                self.attached.get_or_create(&of(model)).inc();
            }
            Event::Resent { model } => {
                self.resends.get_or_create(&of(model)).inc();
            }
            Event::Relaunched { model } => {
                self.relaunches.get_or_create(&of(model)).inc();
            }
            Event::Continued { model } => {
                self.continuations.get_or_create(&of(model)).inc();
            }
            Event::BrokenTurn { model } => {
                self.broken_turns.get_or_create(&of(model)).inc();
            }
            Event::Mended { model } => {
                self.mends.get_or_create(&of(model)).inc();
            }
            Event::Repaired { model } => {
                self.repairs.get_or_create(&of(model)).inc();
            }
            Event::FirstContent { model, after } => {
                self.first_content.get_or_create(&of(model)).observe(after.as_secs_f64());
            }
            Event::Answered { model, generation, tokens } => {
                if let Some(generation) = generation {
                    self.generation.get_or_create(&of(model)).observe(generation.as_secs_f64());
                }
                self.prompt_tokens.get_or_create(&of(model)).inc_by(tokens.prompt);
                self.cached_tokens.get_or_create(&of(model)).inc_by(tokens.cached);
                self.completion_tokens.get_or_create(&of(model)).inc_by(tokens.completion);
            }
            Event::Ended { model, end, after } => {
                if let Some(model) = model {
                    self.in_flight.get_or_create(&of(model)).dec();
                }
                let (model, outcome) = (label(model), end.outcome());
                self.duration
                    .get_or_create(&Lasted { model: model.clone(), outcome })
                    .observe(after.as_secs_f64());
                self.ended.get_or_create(&Ended { model, outcome, code: end.code() }).inc();
            }
        }
    }

    /// Keeps a request that has ended, and forgets the oldest.
    pub(crate) fn remember(&self, recent: Recent) {
        self.recent.push(recent);
    }

    /// The requests that ended last, the latest first.
    pub(crate) fn recent(&self) -> Vec<Recent> {
        self.recent.list()
    }

    /// The totals of `/status`.
    pub(crate) fn totals(&self) -> Totals {
        let models = self.models();
        let sum = |family: &Family<OfModel, Counter>| -> u64 {
            models.iter().filter_map(|model| family.get(&of(model)).map(|count| count.get())).sum()
        };
        let ended = |outcome| -> u64 {
            let labels =
                models.iter().map(Some).chain([None]).flat_map(|model| {
                    End::codes().map(move |code| Ended { model: label(model), outcome, code })
                });
            labels.filter_map(|labels| self.ended.get(&labels).map(|count| count.get())).sum()
        };
        Totals {
            requests: self.received.get(),
            failed: ended("failed") + ended("refused"),
            abandoned: ended("abandoned"),
            relaunches: sum(&self.relaunches),
            resends: sum(&self.resends),
            continuations: sum(&self.continuations),
            broken_turns: sum(&self.broken_turns),
            mends: sum(&self.mends),
            repairs: sum(&self.repairs),
            retries: sum(&self.retried),
        }
    }

    /// Everything in the text format of Prometheus, version 0.0.4.
    ///
    /// `tasks` is how many of them there are, and `snapshot` is missing when the owner of the queue has not answered.
    pub(crate) fn encode(&self, tasks: usize, snapshot: Option<&Snapshot>) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        let mut process = Registry::default();
        table::TASKS.register(&mut process, ConstGauge::new(i64::try_from(tasks).unwrap_or(i64::MAX)));
        prometheus_text::encode(&mut text, &process)?;
        prometheus_text::encode(&mut text, &scheduler::registry(snapshot))?;
        Ok(text)
    }

    fn begin_at_zero(&self, model: &ModelName) {
        let model = Some(Model(model.clone()));
        let of = OfModel { model: model.clone() };
        drop(self.in_flight.get_or_create(&of));
        drop(self.ended.get_or_create(&Ended { model: model.clone(), outcome: "success", code: "" }));
        for outcome in End::OUTCOMES {
            drop(self.duration.get_or_create(&Lasted { model: model.clone(), outcome }));
        }
        for histogram in [&self.queue_wait, &self.first_content, &self.generation, &self.retries_above] {
            drop(histogram.get_or_create(&of));
        }
        for counter in [
            &self.prompt_tokens,
            &self.cached_tokens,
            &self.completion_tokens,
            &self.attached,
            &self.relaunches,
            &self.resends,
            &self.continuations,
            &self.broken_turns,
            &self.mends,
            &self.repairs,
            &self.retried,
        ] {
            drop(counter.get_or_create(&of));
        }
        drop(self.retry_events.get_or_create(&Happened { model: model.clone(), event: "budget_exceeded" }));
        for reason in [GiveUpReason::NotRetryable, GiveUpReason::BudgetExhausted] {
            drop(self.give_ups.get_or_create(&GaveUp { model: model.clone(), reason: reason.as_str() }));
        }
        for to in [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen] {
            drop(self.breaker_changes.get_or_create(&Changed { model: model.clone(), to: to.as_str() }));
        }
    }

    /// In the order of the table.
    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        table::RECEIVED.register(registry, self.received.clone());
        table::IN_FLIGHT.register(registry, self.in_flight.clone());
        table::ENDED.register(registry, self.ended.clone());
        table::DURATION.register(registry, self.duration.clone());
        table::QUEUE_WAIT.register(registry, self.queue_wait.clone());
        table::FIRST_CONTENT.register(registry, self.first_content.clone());
        table::GENERATION.register(registry, self.generation.clone());
        table::PROMPT_TOKENS.register(registry, self.prompt_tokens.clone());
        table::CACHED_TOKENS.register(registry, self.cached_tokens.clone());
        table::COMPLETION_TOKENS.register(registry, self.completion_tokens.clone());
        table::ATTACHED.register(registry, self.attached.clone());
        table::RELAUNCHES.register(registry, self.relaunches.clone());
        table::RESENDS.register(registry, self.resends.clone());
        table::CONTINUATIONS.register(registry, self.continuations.clone());
        table::BROKEN_TURNS.register(registry, self.broken_turns.clone());
        table::MENDS.register(registry, self.mends.clone());
        table::REPAIRS.register(registry, self.repairs.clone());
        table::RETRIES_ABOVE.register(registry, self.retries_above.clone());
        table::RETRIED.register(registry, self.retried.clone());
        table::RETRY_EVENTS.register(registry, self.retry_events.clone());
        table::GIVE_UPS.register(registry, self.give_ups.clone());
        table::BREAKER_CHANGES.register(registry, self.breaker_changes.clone());
        self
    }
}

/// Targets are models; the events of any other target are counted without a name.
impl RetryObserver for Metrics {
    fn observe(&self, source: &EventSource<'_>, event: &RetryEvent) {
        let model = || label(self.models().get(source.target));
        self.retry_events.get_or_create(&Happened { model: model(), event: event.name() }).inc();
        match *event {
            RetryEvent::GaveUp { reason, .. } => {
                self.give_ups.get_or_create(&GaveUp { model: model(), reason: reason.as_str() }).inc();
            }
            RetryEvent::BreakerChanged { to, .. } => {
                self.breaker_changes.get_or_create(&Changed { model: model(), to: to.as_str() }).inc();
            }
            RetryEvent::AttemptStarted { .. }
            | RetryEvent::RetryScheduled { .. }
            | RetryEvent::Succeeded { .. }
            | RetryEvent::BudgetExceeded { .. }
            | RetryEvent::Cancelled { .. } => {}
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("models", &self.models()).finish_non_exhaustive()
    }
}

fn of(model: &ModelName) -> OfModel {
    OfModel { model: label(Some(model)) }
}

fn label(model: Option<&ModelName>) -> Option<Model> {
    model.cloned().map(Model)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gglib_core::model::ModelSpec;
    use gglib_core::retry::{BudgetUsage, Class};

    use super::*;

    fn metrics() -> Metrics {
        let spec = ModelSpec::new("m.gguf");
        Metrics::new(&Catalog::new([(ModelName::new("m"), spec)].into()))
    }

    #[test]
    fn every_retry_event_is_counted_and_a_strange_target_has_no_name() {
        let metrics = metrics();
        let (from, to) = (BreakerState::Closed, BreakerState::Open);
        let usage = BudgetUsage { originals: 1, retries: 1, available: 0 };
        let total_delay = Duration::ZERO;
        let events = [
            RetryEvent::AttemptStarted { attempt: 1 },
            RetryEvent::RetryScheduled {
                attempt: 1,
                max_attempts: 4,
                class: Class::Overloaded,
                hint: None,
                delay: total_delay,
            },
            RetryEvent::Succeeded { attempts: 1, total_delay },
            RetryEvent::GaveUp {
                reason: GiveUpReason::DeadlineExceeded,
                attempts: 1,
                total_delay,
                class: None,
                retry_at: None,
            },
            RetryEvent::BudgetExceeded { percent: 10, usage, window: total_delay },
            RetryEvent::BreakerChanged { from, to, retry_at: None },
            RetryEvent::Cancelled { attempts: 1, total_delay },
        ];
        for target in ["m", "{strange}"] {
            for event in &events {
                metrics.observe(&EventSource { target, rules: "r" }, event);
            }
        }
        let text = metrics.encode(3, None).unwrap();
        for model in ["m", ""] {
            for event in &events {
                let line =
                    format!("gglib_retry_events_total{{model=\"{model}\",event=\"{}\"}} 1\n", event.name());
                assert!(text.contains(&line), "{line}{text}");
            }
            let of = |name: &str, label: &str| format!("gglib_{name}_total{{model=\"{model}\",{label}}} 1\n");
            assert!(text.contains(&of("breaker_changes", "to=\"open\"")), "{text}");
            assert!(text.contains(&of("retry_give_ups", "reason=\"deadline exceeded\"")), "{text}");
        }
        assert!(!text.contains("strange"));
    }

    #[test]
    fn without_an_answer_of_the_scheduler_the_rest_is_there() {
        let text = metrics().encode(3, None).unwrap();
        assert!(
            text.contains("gglib_scheduler_up 0\n") && text.contains("gglib_requests_received_total 0\n")
        );
        assert!(text.contains("gglib_tasks 3\n"));
        assert!(!text.contains("gglib_loads_total"));
    }
}
