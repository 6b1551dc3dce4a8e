//! Tells an observer of the breakers of loads.

use std::collections::BTreeMap;
use std::sync::Arc;

use gglib_core::admission::BreakerSnapshot;
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;
use gglib_core::retry::{BreakerState, EventSource, RetryEvent, RetryObserver};

/// The rules' name in events.
const RULES: &str = "model_load";

/// The breakers' last known states; those of models that are not here are closed.
#[derive(Default)]
pub(super) struct Breakers {
    pub(super) observer: Option<Arc<dyn RetryObserver>>,
    states: BTreeMap<ModelName, BreakerState>,
}

impl Breakers {
    /// Publishes what is different from the last time.
    pub(super) fn look(&mut self, breakers: &[BreakerSnapshot], now: Moment) {
        for breaker in breakers {
            let before = self.states.insert(breaker.model.clone(), breaker.state);
            let retry_at = breaker.retry_in.map(|after| now.saturating_add(after));
            self.publish(&breaker.model, before.unwrap_or(BreakerState::Closed), breaker.state, retry_at);
        }
        let is_closed = |model: &ModelName| breakers.iter().all(|breaker| breaker.model != *model);
        for (model, before) in self.states.extract_if(.., |model, _| is_closed(model)).collect::<Vec<_>>() {
            self.publish(&model, before, BreakerState::Closed, None);
        }
    }

    fn publish(&self, model: &ModelName, from: BreakerState, to: BreakerState, retry_at: Option<Moment>) {
        if let Some(observer) = self.observer.as_ref().filter(|_| from != to) {
            let source = EventSource { target: model.as_str(), rules: RULES };
            observer.observe(&source, &RetryEvent::BreakerChanged { from, to, retry_at });
        }
    }
}
