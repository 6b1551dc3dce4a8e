//! Backoff sequences, driven by hand: what they decide, what they tell, and what they leave behind.

mod breaker;
mod budget;
mod random;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use gglib_core::moment::Moment;
use gglib_core::ports::Phase;
use gglib_core::retry::{
    Advice, BreakerSettings, BreakerState, BudgetSettings, Cause, CircuitBreaker, Class, EventSource, Events,
    Failure, GiveUpReason, HintRule, IdempotencyWindow, Jitter, Next, Repeatability, RetriesAbove,
    RetryBudget, RetryEvent, RetryObserver, RetryPolicy, RetryRules, RetrySequence, Step, Target, preset,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::{at, secs};

const BUSY: Failure<'static> = Failure::new(Cause::Status(StatusCode::SERVICE_UNAVAILABLE));
const LIMITED: Failure<'static> = Failure::new(Cause::Status(StatusCode::TOO_MANY_REQUESTS));
const RESET: Failure<'static> = Failure::new(Cause::Transport(Phase::BeforeHeaders));
const NOT_FOUND: Failure<'static> = Failure::new(Cause::Status(StatusCode::NOT_FOUND));

fn hinted(failure: Failure<'static>, seconds: f64) -> Failure<'static> {
    Failure { hint: Some(secs(seconds)), ..failure }
}

fn wait(seconds: f64) -> Next {
    Next::Wait { delay: secs(seconds) }
}

fn gave_up(reason: GiveUpReason) -> Next {
    Next::GiveUp { reason, retry_at: None }
}

fn gave_up_until(reason: GiveUpReason, seconds: f64) -> Next {
    Next::GiveUp { reason, retry_at: Some(at(seconds)) }
}

fn events(events: Events) -> Vec<RetryEvent> {
    events.into_iter().collect()
}

fn names(events: Events) -> Vec<&'static str> {
    events.into_iter().map(|event| event.name()).collect()
}

#[track_caller]
fn begin<'r>(rules: &'r RetryRules, now: f64, target: &mut Target) -> RetrySequence<'r> {
    let (sequence, step) = RetrySequence::begin(rules, RetriesAbove::NONE, at(now), target);
    assert_eq!(step.next, Next::Attempt);
    sequence
}

/// The gglib rules, always waiting for half of the window.
fn fail(sequence: &mut RetrySequence<'_>, failure: &Failure<'_>, now: f64, target: &mut Target) -> Step {
    sequence.on_failure(failure, at(now), 0.5, target)
}

fn with_breaker(settings: BreakerSettings) -> Target {
    Target { breaker: Some(CircuitBreaker::new(settings)), ..Target::default() }
}

fn with_budget(percent: u32, min_per_window: u32) -> Target {
    let settings = BudgetSettings { percent, min_per_window, window: secs(10.0) };
    Target { budget: Some(RetryBudget::new(settings)), ..Target::default() }
}

fn usage(target: &mut Target, now: f64) -> (u64, u64) {
    let usage = target.budget.as_mut().expect("a target with a budget").usage(at(now));
    (usage.originals, usage.retries)
}

fn state(target: &Target) -> BreakerState {
    target.breaker.as_ref().expect("a target with a breaker").state()
}

#[test]
fn c37_attempts_and_waits_alternate_until_the_last() {
    let rules = preset::gglib();
    let target = &mut Target::default();
    let mut sequence = begin(&rules, 0.0, target);
    let mut now = 0.1;
    for (attempt, delay) in [(1, 0.5), (2, 1.0), (3, 2.0)] {
        let step = fail(&mut sequence, &BUSY, now, target);
        assert_eq!(step.next, wait(delay));
        assert_eq!(
            events(step.events),
            [RetryEvent::RetryScheduled {
                attempt,
                max_attempts: 4,
                class: Class::Overloaded,
                hint: None,
                delay: secs(delay),
            }]
        );
        now += delay;
        let step = sequence.on_wake(at(now), target);
        assert_eq!(step.next, Next::Attempt);
        assert_eq!(events(step.events), [RetryEvent::AttemptStarted { attempt: attempt + 1 }]);
        now += 0.1;
    }
    let step = fail(&mut sequence, &BUSY, now, target);
    assert_eq!(step.next, gave_up(GiveUpReason::AttemptsExhausted));
    assert_eq!(
        events(step.events),
        [RetryEvent::GaveUp {
            reason: GiveUpReason::AttemptsExhausted,
            attempts: 4,
            total_delay: secs(3.5),
            class: Some(Class::Overloaded),
            retry_at: None,
        }]
    );
    // What is over stays over, and says no more.
    for step in [fail(&mut sequence, &BUSY, now, target), sequence.on_wake(at(now), target)] {
        assert_eq!(step.next, gave_up(GiveUpReason::AttemptsExhausted));
        assert_eq!(names(step.events), [""; 0]);
    }
    assert_eq!(names(sequence.on_cancel(at(now), target)), [""; 0]);
}

#[test]
fn c38_a_single_attempt_mentions_no_retry() {
    let rules = RetryRules { policy: RetryPolicy::disabled(), ..preset::gglib() };
    let target = &mut Target::default();
    let step = fail(&mut begin(&rules, 0.0, target), &BUSY, 1.0, target);
    assert_eq!(step.next, gave_up(GiveUpReason::AttemptsExhausted));
    assert_eq!(names(step.events), ["exhausted"]);
}

#[test]
fn success_tells_how_much_it_took() {
    let rules = preset::gglib();
    let target = &mut Target::default();
    let sequence = begin(&rules, 0.0, target);
    let at_once = RetryEvent::Succeeded { attempts: 1, total_delay: Duration::ZERO };
    assert_eq!(events(sequence.on_success(at(1.0), target)), [at_once]);

    let mut sequence = begin(&rules, 0.0, target);
    let _ = fail(&mut sequence, &hinted(BUSY, 3.0), 0.0, target);
    let _ = sequence.on_wake(at(3.5), target);
    assert_eq!(sequence.attempts(), 2);
    let later = RetryEvent::Succeeded { attempts: 2, total_delay: secs(3.5) };
    assert_eq!(events(sequence.on_success(at(9.0), target)), [later]);
}

#[test]
fn what_is_not_retryable_ends_with_its_reason() {
    for (failure, reason) in [
        (NOT_FOUND, GiveUpReason::NotRetryable),
        (Failure { advice: Some(Advice::GiveUp), ..BUSY }, GiveUpReason::NotRetryable),
        (Failure { request: Repeatability::BodyGone, ..RESET }, GiveUpReason::NotRetryable),
        (Failure { window: IdempotencyWindow::Closed, ..RESET }, GiveUpReason::StreamCommitted),
    ] {
        let rules = preset::gglib();
        let target = &mut Target::default();
        let step = fail(&mut begin(&rules, 0.0, target), &failure, 0.0, target);
        assert_eq!(step.next, gave_up(reason), "{failure:?}");
    }
}

#[test]
fn c122_unsafe_repeats_are_a_matter_of_the_rules() {
    for (rules, expected) in
        [(preset::gglib(), wait(0.5)), (preset::exponential_jitter(), gave_up(GiveUpReason::NotRetryable))]
    {
        let target = &mut Target::default();
        let step = fail(&mut begin(&rules, 0.0, target), &RESET, 0.0, target);
        assert_eq!(step.next, expected, "{}", rules.name);
        let safe = Failure { request: Repeatability::Idempotent, ..RESET };
        let step = fail(&mut begin(&rules, 0.0, target), &safe, 0.0, target);
        assert_eq!(step.next, wait(0.5), "{}", rules.name);
    }
}

#[test]
fn c88_giving_up_tells_when_the_server_wished_to_be_asked() {
    let patient =
        RetryPolicy { hint_rule: HintRule::AtLeast { max_hint: secs(120.0) }, ..RetryPolicy::default() };
    let rules = RetryRules { policy: patient, ..preset::gglib() };
    for (failure, now, reason) in [
        // C88, C83, C86.
        (hinted(LIMITED, 10.0), 55.0, GiveUpReason::DeadlineExceeded),
        (hinted(LIMITED, 171.0), 1.0, GiveUpReason::HintTooLong),
        (Failure { advice: Some(Advice::GiveUp), ..hinted(BUSY, 7.0) }, 1.0, GiveUpReason::NotRetryable),
    ] {
        let target = &mut Target::default();
        let step = fail(&mut begin(&rules, 0.0, target), &failure, now, target);
        let hint = failure.hint.expect("each has one").as_secs_f64();
        assert_eq!(step.next, gave_up_until(reason, now + hint), "{failure:?}");
    }
    // C89: a hint on a refusal of the request itself means nothing.
    let target = &mut Target::default();
    let step = fail(&mut begin(&rules, 0.0, target), &hinted(NOT_FOUND, 5.0), 0.0, target);
    assert_eq!(step.next, gave_up(GiveUpReason::NotRetryable));
}

#[test]
fn classes_may_have_policies_of_their_own() {
    let quota = RetryPolicy {
        initial_backoff: secs(10.0),
        max_backoff: secs(40.0),
        total_deadline: secs(300.0),
        max_attempts: 6,
        ..RetryPolicy::default()
    };
    let rules = RetryRules { per_class: [(Class::RateLimited, quota)].into(), ..preset::gglib() };
    let target = &mut Target::default();
    let mut sequence = begin(&rules, 0.0, target);
    assert_eq!(fail(&mut sequence, &LIMITED, 0.0, target).next, wait(5.0));
    let _ = sequence.on_wake(at(5.0), target);
    assert_eq!(fail(&mut sequence, &RESET, 5.0, target).next, wait(1.0));
    let _ = sequence.on_wake(at(6.0), target);
    // After the deadline of the one, within that of the other.
    assert_eq!(fail(&mut sequence, &LIMITED, 70.0, target).next, wait(20.0));
    assert_eq!(sequence.on_wake(at(90.0), target).next, Next::Attempt);
    // The count is that of the sequence, whatever its failures were.
    assert_eq!(fail(&mut sequence, &RESET, 91.0, target).next, gave_up(GiveUpReason::AttemptsExhausted));
}

#[test]
fn c16_decorrelated_delays_follow_each_other() {
    let rules = preset::decorrelated_jitter();
    let target = &mut Target::default();
    let mut sequence = begin(&rules, 0.0, target);
    for delay in [2.0, 3.5, 5.75, 9.125] {
        assert_eq!(fail(&mut sequence, &BUSY, 0.0, target).next, wait(delay));
        let _ = sequence.on_wake(at(0.0), target);
    }
}

#[test]
fn c55_a_sleep_that_outlasts_the_deadline_is_followed_by_no_attempt() {
    let rules = preset::gglib();
    let target = &mut with_budget(10, 3);
    let mut sequence = begin(&rules, 0.0, target);
    assert_eq!(fail(&mut sequence, &BUSY, 1.0, target).next, wait(0.5));
    assert_eq!(usage(target, 1.0), (1, 1));
    let step = sequence.on_wake(at(7_200.0), target);
    assert_eq!(step.next, gave_up(GiveUpReason::DeadlineExceeded));

    // Exactly at the deadline is too late as well, and nothing was spent.
    let mut sequence = begin(&rules, 7_200.0, target);
    let _ = fail(&mut sequence, &BUSY, 7_201.0, target);
    assert_eq!(usage(target, 7_201.0), (1, 1));
    assert_eq!(sequence.on_wake(at(7_260.0), target).next, gave_up(GiveUpReason::DeadlineExceeded));
    let mut sequence = begin(&rules, 0.0, &mut Target::default());
    let _ = fail(&mut sequence, &BUSY, 1.0, &mut Target::default());
    assert_eq!(sequence.on_wake(at(59.999), &mut Target::default()).next, Next::Attempt);
}

#[test]
fn c56_c57_c58_cancelling_refunds_and_concludes_nothing() {
    let rules = preset::gglib();
    let target = &mut with_budget(10, 3);
    target.breaker = Some(CircuitBreaker::new(BreakerSettings::MODEL_LOAD));

    let mut asleep = begin(&rules, 0.0, target);
    let _ = fail(&mut asleep, &RESET, 0.0, target);
    assert_eq!(usage(target, 0.0), (1, 1));
    let cancelled = RetryEvent::Cancelled { attempts: 1, total_delay: Duration::ZERO };
    assert_eq!(events(asleep.on_cancel(at(0.1), target)), [cancelled]);
    assert_eq!(usage(target, 0.1), (1, 0));

    // During an attempt what was paid for has been sent.
    let mut trying = begin(&rules, 0.0, target);
    let _ = fail(&mut trying, &RESET, 0.0, target);
    let _ = trying.on_wake(at(0.5), target);
    let cancelled = RetryEvent::Cancelled { attempts: 2, total_delay: secs(0.5) };
    assert_eq!(events(trying.on_cancel(at(1.0), target)), [cancelled]);
    assert_eq!(usage(target, 1.0), (2, 1));

    // Neither was a failure, one of which would open this breaker.
    assert_eq!(state(target), BreakerState::Closed);
}

#[test]
fn c59_a_sequence_that_is_lost_blocks_nobody() {
    let rules = preset::gglib();
    let target = &mut with_budget(0, 1);
    target.breaker = Some(CircuitBreaker::new(BreakerSettings::MODEL_LOAD));
    {
        let mut lost = begin(&rules, 0.0, target);
        let _ = fail(&mut lost, &RESET, 0.0, target);
    }
    // Its retry counts as sent until the window has passed, and its permit is missed by nobody.
    assert_eq!(usage(target, 9.9), (1, 1));
    let mut next = begin(&rules, 10.2, target);
    assert_eq!(fail(&mut next, &RESET, 10.2, target).next, wait(0.5));
}

/// Nested layers of 4 and 3 attempts would make 12 requests; the inner one, when it has given up, says so.
#[test]
fn c128_only_the_layer_above_the_refuser_retries() {
    let (inner, outer) = (preset::gglib(), preset::openai_sdk());
    let target = &mut Target::default();
    let mut requests = 0;
    let mut outer_sequence = begin(&outer, 0.0, target);
    loop {
        let mut inner_sequence = begin(&inner, 0.0, target);
        let mut next = Next::Attempt;
        while !matches!(next, Next::GiveUp { .. }) {
            next = match next {
                Next::Attempt => {
                    requests += 1;
                    fail(&mut inner_sequence, &BUSY, 0.0, target).next
                }
                _ => inner_sequence.on_wake(at(0.0), target).next,
            };
        }
        let told = Failure { advice: Some(Advice::GiveUp), ..BUSY };
        if let Next::GiveUp { reason, .. } = fail(&mut outer_sequence, &told, 0.0, target).next {
            assert_eq!(reason, GiveUpReason::NotRetryable);
            break;
        }
    }
    assert_eq!(requests, 4);
}

/// C121: an observer that goes back to the targets finds them free.
#[test]
fn c121_events_are_published_outside_of_any_lock() {
    struct Reentrant<'a> {
        target: &'a Mutex<Target>,
        seen: Mutex<BTreeMap<&'static str, String>>,
    }
    impl RetryObserver for Reentrant<'_> {
        fn observe(&self, source: &EventSource<'_>, event: &RetryEvent) {
            assert!(self.target.try_lock().is_ok());
            let line = format!("{} by {}", source.target, source.rules);
            self.seen.lock().expect("nobody panics").insert(event.name(), line);
        }
    }
    let rules = preset::gglib();
    let target = Mutex::new(with_breaker(BreakerSettings::MODEL_LOAD));
    let observer = Reentrant { target: &target, seen: Mutex::default() };
    let source = EventSource { target: "smollm2", rules: rules.name };
    let locked = || target.lock().expect("nobody panics");

    let (mut sequence, step) = RetrySequence::begin(&rules, RetriesAbove::NONE, at(0.0), &mut locked());
    step.events.publish(&observer, &source);
    let failure = Failure { advice: Some(Advice::GiveUp), ..RESET };
    let step = fail(&mut sequence, &failure, 0.0, &mut locked());
    step.events.publish(&observer, &source);
    let seen = observer.seen.into_inner().expect("nobody panics");
    let line = "smollm2 by gglib".to_owned();
    assert_eq!(seen, ["attempt", "breaker_changed", "exhausted"].map(|name| (name, line.clone())).into());
}

#[test]
fn moments_before_the_first_and_after_the_last_do_not_panic() {
    let rules = RetryRules {
        policy: RetryPolicy { max_attempts: u32::MAX, jitter: Jitter::None, ..RetryPolicy::default() },
        ..preset::gglib()
    };
    let last = Moment::from_nanos(u64::MAX);
    let target = &mut with_budget(100, 5);
    target.breaker = Some(CircuitBreaker::new(BreakerSettings::TARGET));
    let (mut sequence, _) = RetrySequence::begin(&rules, RetriesAbove::NONE, last, target);
    // Back in time is no time at all.
    let forever = Failure { hint: Some(Duration::MAX), ..BUSY };
    let step = sequence.on_failure(&forever, at(0.0), f64::NAN, target);
    assert_eq!(step.next, wait(15.0));
    assert_eq!(sequence.on_wake(at(0.0), target).next, Next::Attempt);
    let _ = sequence.on_cancel(last, target);
}
