//! What a call tells of its backoff sequence while it runs.

use gglib_core::moment::Moment;
use gglib_core::retry::{BudgetUsage, Class, EventSource, RetryEvent, RetryObserver};
use tracing::{debug, info};

use super::Failure;

/// Is told what the client does between a call and its result.
pub trait Observer: Send + Sync {
    /// Takes one notice. Called by the task that waits for the answer: it should be quick, and its panic ends
    /// the call.
    fn notice(&self, notice: &Notice<'_>);
}

/// An event of the policy, and what a person may want to know beside it.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    /// The upstream and the rules.
    pub source: EventSource<'a>,
    /// What has happened.
    pub event: &'a RetryEvent,
    /// What a wait or a give-up is about: code and status, where the event has the class.
    pub last: Option<&'a Failure>,
}

/// Writes each event to the log, times in seconds.
pub(super) struct Logged {
    pub(super) now: Moment,
}

impl RetryObserver for Logged {
    fn observe(&self, source: &EventSource<'_>, event: &RetryEvent) {
        let EventSource { target: upstream, rules } = *source;
        let until = |at: Option<Moment>| at.map(|at| at.saturating_since(self.now).as_secs_f64());
        let name = event.name();
        match *event {
            RetryEvent::AttemptStarted { attempt } => debug!(upstream, rules, attempt, "{name}"),
            RetryEvent::RetryScheduled { attempt, max_attempts, class, hint, delay } => {
                let (class, hint_s) = (class.as_str(), hint.map(|hint| hint.as_secs_f64()));
                let delay_s = delay.as_secs_f64();
                debug!(upstream, rules, attempt, max_attempts, class, hint_s, delay_s, "{name}");
            }
            RetryEvent::Succeeded { attempts, total_delay } => {
                let total_delay_s = total_delay.as_secs_f64();
                debug!(upstream, rules, attempts, total_delay_s, "{name}");
            }
            RetryEvent::GaveUp { reason, attempts, total_delay, class, retry_at } => {
                let (reason, class) = (reason.as_str(), class.map(Class::as_str));
                let (total_delay_s, retry_after_s) = (total_delay.as_secs_f64(), until(retry_at));
                debug!(upstream, rules, reason, attempts, total_delay_s, class, retry_after_s, "{name}");
            }
            RetryEvent::BudgetExceeded { percent, usage, window } => {
                let BudgetUsage { originals, retries, available } = usage;
                let window_s = window.as_secs_f64();
                info!(upstream, rules, percent, originals, retries, available, window_s, "{name}");
            }
            RetryEvent::BreakerChanged { from, to, retry_at } => {
                let (from, to, retry_after_s) = (from.as_str(), to.as_str(), until(retry_at));
                info!(upstream, rules, from, to, retry_after_s, "{name}");
            }
            RetryEvent::Cancelled { attempts, total_delay } => {
                let total_delay_s = total_delay.as_secs_f64();
                debug!(upstream, rules, attempts, total_delay_s, "{name}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use gglib_core::retry::{BreakerState, GiveUpReason};
    use tracing::subscriber::with_default;

    use super::*;

    /// Collects what is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The log lines of `events` as JSON.
    fn logged(events: &[RetryEvent]) -> String {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .without_time()
            .with_target(false)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .finish();
        let observer = Logged { now: Moment::from_nanos(5_000_000_000) };
        with_default(subscriber, || {
            for event in events {
                observer.observe(&EventSource { target: "127.0.0.1:8080", rules: "gglib" }, event);
            }
        });
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_event_has_a_line_with_typed_fields() {
        let (delay, total_delay) = (Duration::from_millis(1_500), Duration::from_secs(3));
        let retry_at = Some(Moment::from_nanos(7_250_000_000));
        let usage = BudgetUsage { originals: 20, retries: 5, available: 0 };
        let lines = logged(&[
            RetryEvent::AttemptStarted { attempt: 1 },
            RetryEvent::RetryScheduled {
                attempt: 1,
                max_attempts: 4,
                class: Class::Overloaded,
                hint: Some(Duration::from_secs(1)),
                delay,
            },
            RetryEvent::RetryScheduled {
                attempt: 2,
                max_attempts: 4,
                class: Class::Transport,
                hint: None,
                delay,
            },
            RetryEvent::Succeeded { attempts: 3, total_delay },
            RetryEvent::GaveUp {
                reason: GiveUpReason::AttemptsExhausted,
                attempts: 4,
                total_delay,
                class: Some(Class::RateLimited),
                retry_at,
            },
            RetryEvent::GaveUp {
                reason: GiveUpReason::CircuitOpen,
                attempts: 0,
                total_delay: Duration::ZERO,
                class: None,
                retry_at: None,
            },
            RetryEvent::BudgetExceeded { percent: 10, usage, window: Duration::from_secs(10) },
            RetryEvent::BreakerChanged { from: BreakerState::Closed, to: BreakerState::Open, retry_at },
            RetryEvent::Cancelled { attempts: 2, total_delay },
        ]);
        insta::assert_snapshot!(lines, @r#"
        {"level":"DEBUG","message":"attempt","upstream":"127.0.0.1:8080","rules":"gglib","attempt":1}
        {"level":"DEBUG","message":"retry","upstream":"127.0.0.1:8080","rules":"gglib","attempt":1,"max_attempts":4,"class":"overloaded","hint_s":1.0,"delay_s":1.5}
        {"level":"DEBUG","message":"retry","upstream":"127.0.0.1:8080","rules":"gglib","attempt":2,"max_attempts":4,"class":"transport","delay_s":1.5}
        {"level":"DEBUG","message":"success","upstream":"127.0.0.1:8080","rules":"gglib","attempts":3,"total_delay_s":3.0}
        {"level":"DEBUG","message":"exhausted","upstream":"127.0.0.1:8080","rules":"gglib","reason":"attempts exhausted","attempts":4,"total_delay_s":3.0,"class":"rate_limited","retry_after_s":2.25}
        {"level":"DEBUG","message":"exhausted","upstream":"127.0.0.1:8080","rules":"gglib","reason":"circuit open","attempts":0,"total_delay_s":0.0}
        {"level":"INFO","message":"budget_exceeded","upstream":"127.0.0.1:8080","rules":"gglib","percent":10,"originals":20,"retries":5,"available":0,"window_s":10.0}
        {"level":"INFO","message":"breaker_changed","upstream":"127.0.0.1:8080","rules":"gglib","from":"closed","to":"open","retry_after_s":2.25}
        {"level":"DEBUG","message":"cancelled","upstream":"127.0.0.1:8080","rules":"gglib","attempts":2,"total_delay_s":3.0}
        "#);
    }
}
