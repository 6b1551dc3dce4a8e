//! The retries of the layers above, counted against a budget of the model that they are for.
//!
//! The endpoint cannot refuse a retry: the work is the same, whoever repeats it, and the client's word is all there
//! is. But to an engine it makes no difference which layer repeats, and retries of several layers multiply. So
//! when the retries of a model are more than its budget allows, the refusals that are made anyway say that it is
//! not worth another retry.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gglib_core::api::error::ApiError;
use gglib_core::model::{Catalog, ModelName};
use gglib_core::moment::Moment;
use gglib_core::retry::{
    BudgetSettings, Cause, EventSource, Failure, GiveUpReason, RetriesAbove, RetryBudget, RetryEvent,
    RetryObserver, RetryPolicy, TargetSettings, Targets,
};
use http::StatusCode;
use tokio::time::Instant;

use crate::metrics::Metrics;

/// The longest `Retry-After`, so that whoever obeys it returns while its original is still remembered.
const WINDOW: Duration = Duration::from_secs(60);

/// The name of these rules in events.
const RULES: &str = "above";

pub(crate) struct Budgets {
    origin: Instant,
    targets: Mutex<Targets>,
    metrics: Arc<Metrics>,
}

impl Budgets {
    /// A budget for each model of `catalog`, at the rate that a client by `policy` allows itself.
    pub(crate) fn new(policy: &RetryPolicy, catalog: &Catalog, metrics: Arc<Metrics>) -> Self {
        let targets = TargetSettings {
            budget: Some(settings(policy)),
            breaker: None,
            capacity: catalog.iter().count(),
        };
        Self { origin: Instant::now(), targets: Mutex::new(Targets::new(targets)), metrics }
    }

    /// Counts a request for `model`: as an original, or as a retry.
    pub(crate) fn arrive(&self, model: &ModelName, above: RetriesAbove) {
        let exceeded = self.with_budget(model, |budget, now| {
            if !above.is_retry() {
                budget.deposit(now);
                return None;
            }
            if budget.withdraw(now).is_some() {
                return None;
            }
            // It is answered all the same, and so it counts.
            budget.charge(now);
            Some((*budget.settings(), budget.usage(now)))
        });
        if let Some((BudgetSettings { percent, window, .. }, usage)) = exceeded.flatten() {
            let (originals, retries) = (usage.originals, usage.retries);
            let window_s = window.as_secs();
            tracing::info!(%model, percent, originals, retries, window_s, "budget_exceeded");
            self.publish(model, &RetryEvent::BudgetExceeded { percent, usage, window });
        }
    }

    /// `error` as the client of a request for `model` is to get it.
    ///
    /// A refusal that would have the client return carries `x-should-retry: false` while the model's budget allows no
    /// further retry; its `Retry-After` stays true.
    pub(crate) fn advise(&self, model: &ModelName, above: RetriesAbove, error: ApiError) -> ApiError {
        let asks_to_return = error.should_retry.is_none()
            && matches!(error.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let is_used_up = asks_to_return
            && self.with_budget(model, |budget, now| budget.usage(now).available == 0) == Some(true);
        let error = if is_used_up { error.not_worth_retrying() } else { error };
        if error.should_retry == Some(false) {
            let reason = if is_used_up { GiveUpReason::BudgetExhausted } else { GiveUpReason::NotRetryable };
            self.publish(
                model,
                &RetryEvent::GaveUp {
                    reason,
                    attempts: above.count() + 1,
                    total_delay: Duration::ZERO,
                    class: Some(Failure::new(Cause::Status(error.status)).class()),
                    retry_at: error.retry_after.map(|delay| self.now().saturating_add(delay)),
                },
            );
        }
        error
    }

    fn with_budget<T>(
        &self,
        model: &ModelName,
        act: impl FnOnce(&mut RetryBudget, Moment) -> T,
    ) -> Option<T> {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that the budget never sees time run backwards.
        let now = self.now();
        targets.target(model.as_str(), now).budget.as_mut().map(|budget| act(budget, now))
    }

    fn now(&self) -> Moment {
        Moment::ORIGIN.saturating_add(self.origin.elapsed())
    }

    fn publish(&self, model: &ModelName, event: &RetryEvent) {
        self.metrics.observe(&EventSource { target: model.as_str(), rules: RULES }, event);
    }
}

fn settings(policy: &RetryPolicy) -> BudgetSettings {
    let own = BudgetSettings::for_policy(policy);
    let windows = WINDOW.as_nanos().div_ceil(own.window.as_nanos().max(1));
    let windows = u32::try_from(windows).unwrap_or(u32::MAX);
    BudgetSettings { min_per_window: own.min_per_window.saturating_mul(windows), window: WINDOW, ..own }
}

#[cfg(test)]
mod tests {
    use gglib_core::api::error::ErrorCode;
    use gglib_core::model::ModelSpec;
    use gglib_core::retry::ATTEMPT_HEADER;
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn above(attempt: u32) -> RetriesAbove {
        let mut headers = HeaderMap::new();
        headers.insert(ATTEMPT_HEADER, HeaderValue::from(attempt));
        RetriesAbove::parse(&headers)
    }

    fn budgets() -> (Budgets, ModelName) {
        let model = ModelName::new("m");
        let spec = ModelSpec::new("m.gguf");
        let catalog = Catalog::new([(model.clone(), spec)].into());
        let metrics = Arc::new(Metrics::new(&catalog));
        (Budgets::new(&RetryPolicy::default(), &catalog, metrics), model)
    }

    fn advice(budgets: &Budgets, model: &ModelName, code: ErrorCode) -> Option<bool> {
        budgets.advise(model, RetriesAbove::NONE, ApiError::new(code, "")).should_retry
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_advise_against_a_retry_only_while_the_budget_is_used_up() {
        let (budgets, model) = budgets();
        // 18 in a minute, as 3 in 10 s, and a tenth of the originals.
        (0..20).for_each(|_| budgets.arrive(&model, RetriesAbove::NONE));
        (0..19).for_each(|_| budgets.arrive(&model, above(2)));
        assert_eq!(advice(&budgets, &model, ErrorCode::QueueFull), None);
        budgets.arrive(&model, above(2));
        assert_eq!(advice(&budgets, &model, ErrorCode::QueueFull), Some(false));
        assert_eq!(advice(&budgets, &model, ErrorCode::WaitStalled), Some(false));
        // What is no refusal stays what it was.
        assert_eq!(advice(&budgets, &model, ErrorCode::UpstreamError), None);
        tokio::time::sleep(WINDOW + WINDOW / 50).await;
        assert_eq!(advice(&budgets, &model, ErrorCode::QueueFull), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_counts_once_however_often_its_client_claims_to_have_tried() {
        let (budgets, model) = budgets();
        (0..17).for_each(|_| budgets.arrive(&model, above(u32::MAX)));
        assert_eq!(advice(&budgets, &model, ErrorCode::QueueFull), None);
    }

    #[tokio::test(start_paused = true)]
    async fn models_have_budgets_of_their_own() {
        let (budgets, model) = budgets();
        (0..100).for_each(|_| budgets.arrive(&ModelName::new("other"), above(2)));
        assert_eq!(advice(&budgets, &model, ErrorCode::QueueFull), None);
    }
}
