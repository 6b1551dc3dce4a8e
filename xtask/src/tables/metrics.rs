//! The page on metrics: every name, kind, labels and meaning.

use gglib_core::api::error::ErrorCode;
use gglib_core::retry::{GiveUpReason, RetriesAbove};
use gglib_proxy::metrics::METRICS;

use super::markdown::{self, Page, code};

const INTRO: &str = "\
`GET /metrics` answers in the text format of Prometheus, version 0.0.4. Units are seconds and tokens. Asking never
loads a model, and works while the scheduler is stuck: then `gglib_scheduler_up` is 0, and what it would know is
missing.

The values of labels are names of the configuration and closed sets: no client can add a series. Whatever is counted
of a request begins at 0 for every configured model. `/status` shows the same counters.";

const SCRAPE: &str = "\
```yaml
scrape_configs:
  - job_name: gglib
    static_configs:
      - targets: [\"127.0.0.1:8080\"]
```";

const RETRIES: &str = "\
`gglib_retry_events_total`, `gglib_retry_give_ups_total` and `gglib_retries_above` are about the layers above the
endpoint: see [Retries](../concepts/retry.md#layers-above).";

/// Renders every metric.
pub fn render() -> String {
    let mut page = Page::new("Metrics", "gglib-proxy/src/metrics/table.rs");
    page.add(INTRO);
    page.add(SCRAPE);
    page.add("## Names");
    let rows = METRICS.iter().map(|metric| {
        let labels: Vec<_> = metric.labels.iter().map(|label| code(label)).collect();
        let kind = metric.kind.as_str().to_owned();
        [code(metric.name), kind, labels.join(", "), format!("{}.", metric.help)]
    });
    page.add(markdown::table(["name", "kind", "labels", "meaning"], rows));
    page.add(RETRIES);
    page.add("## Labels");
    page.add(markdown::table(["label", "values"], labels()));
    page.finish()
}

fn labels() -> Vec<[String; 2]> {
    let reasons: Vec<_> = [GiveUpReason::NotRetryable, GiveUpReason::BudgetExhausted]
        .iter()
        .map(|reason| code(reason.as_str()))
        .collect();
    let refusal = code(ErrorCode::QueueFull.as_str());
    [
        ("model", "A configured model, or nothing when the request did not name one.".to_owned()),
        (
            "outcome",
            format!("`success`; `failed`; `refused`: 429 or 503 with a `Retry-After`, such as {refusal}; `abandoned`: the client left."),
        ),
        (
            "code",
            "A [code](errors.md#codes), `upstream_own` for any code that an engine chose itself, or nothing.".to_owned(),
        ),
        ("event", "`attempt`, `retry`, `success`, `exhausted`, `budget_exceeded`, `breaker_changed` or `cancelled`.".to_owned()),
        ("reason", format!("Why there is no further attempt; from the endpoint {}.", reasons.join(" or "))),
        ("to", "The state that the breaker has now: `closed`, `open` or `half open`.".to_owned()),
        (
            "state",
            "Of an engine: `loading`, `resident`, `draining` or `stopping`. Of a breaker: `open` or `half open`.".to_owned(),
        ),
        ("known_by", "`estimate` or `measurement`.".to_owned()),
        ("kind", "`ram`, or `vram` for the memory of GPUs.".to_owned()),
        (
            "le",
            format!("Upper bounds of buckets: of times from 10 ms to 30 min, of retries up to 10 (of at most {}).", RetriesAbove::MAX),
        ),
    ]
    .map(|(label, values)| [code(label), values])
    .into()
}

#[cfg(test)]
mod tests {
    use gglib_proxy::metrics::{Kind, Metric};

    use super::*;

    #[test]
    fn every_metric_and_each_of_its_labels_has_a_row() {
        let page = render();
        for Metric { name, kind, labels, .. } in METRICS {
            assert!(page.contains(&format!("| `{name}` | {} |", kind.as_str())), "{name}");
            for label in *labels {
                assert!(page.contains(&format!("| `{label}` |")), "{label}");
            }
        }
        assert_eq!(METRICS.iter().any(|metric| metric.kind == Kind::Histogram), page.contains("| `le` |"));
    }
}
