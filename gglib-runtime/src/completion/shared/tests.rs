//! Calls of several threads, in many orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gglib_core::api::error::{ApiError, ErrorCode};
use gglib_core::ports::{Phase, UpstreamError};
use gglib_core::retry::{BreakerState, Next, RetryEvent, RetryPolicy, RetrySequence};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use shuttle::sync::Mutex;
use shuttle::{Runner, thread};

use super::super::call::Call;
use super::super::{Failure, Notice, Observer};
use super::*;

/// `shuttle` runs another thread whenever the lock is taken, if it likes.
impl Lock for Mutex<Target> {
    fn with<T>(&self, act: impl FnOnce(&mut Target) -> T) -> T {
        act(&mut self.lock().expect("nobody panics"))
    }
}

/// Lets a millisecond pass at each look.
#[derive(Default)]
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now(&self) -> Moment {
        let earlier = self.0.fetch_add(1_000_000, Ordering::Relaxed);
        Moment::from_nanos(earlier)
    }
}

type Interleaved = Shared<Mutex<Target>, Ticks>;

/// Counts the events, and shows that none is told under the lock: it takes that itself.
struct Counting {
    shared: Arc<Interleaved>,
    begun: AtomicU64,
    retries: AtomicU64,
    ended: AtomicU64,
}

impl Observer for Counting {
    fn notice(&self, notice: &Notice<'_>) {
        self.shared.lend(|_, _| ());
        let count = match notice.event {
            RetryEvent::AttemptStarted { attempt: 1 } => &self.begun,
            RetryEvent::AttemptStarted { .. } => &self.retries,
            RetryEvent::Succeeded { .. }
            | RetryEvent::Cancelled { .. }
            | RetryEvent::GaveUp { attempts: 1.., .. } => &self.ended,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// One call: attempts succeed, fail, say that the upstream is busy; and sometimes nobody waits for the end.
fn call(shared: &Interleaved, rules: &RetryRules, observer: &Arc<dyn Observer>) {
    let (mut call, mut next) = Call::begin(shared, rules, "shared", Some(observer));
    let mut last = None;
    loop {
        thread::yield_now();
        let luck = thread_rng().gen_range(0..8);
        next = match next {
            Next::GiveUp { .. } => return,
            _ if luck == 0 => return drop(call),
            Next::Attempt if luck == 1 => return call.succeed(),
            Next::Attempt => {
                let failure = &*last.insert(if luck == 2 {
                    let busy = ApiError::new(ErrorCode::ModelLoading, "loading");
                    Failure::Status(busy.with_retry_after(Duration::from_secs(1)))
                } else {
                    Failure::Transport(UpstreamError::new(Phase::Connect, "refused"))
                });
                call.step(Some(failure), |sequence, now, target| {
                    sequence.on_failure(&failure.facts(), now, 0.5, target)
                })
            }
            Next::Wait { .. } => call.step(last.as_ref(), RetrySequence::on_wake),
        };
    }
}

fn run() {
    let rules = RetryRules::from(RetryPolicy { max_attempts: 3, ..RetryPolicy::default() });
    let shared = Arc::new(Shared { clock: Ticks::default(), target: Mutex::new(target(&rules)) });
    let counts = Arc::new(Counting {
        shared: Arc::clone(&shared),
        begun: AtomicU64::new(0),
        retries: AtomicU64::new(0),
        ended: AtomicU64::new(0),
    });
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let (shared, rules) = (Arc::clone(&shared), rules.clone());
            let observer: Arc<dyn Observer> = Arc::clone(&counts) as _;
            thread::spawn(move || (0..3).for_each(|_| call(&shared, &rules, &observer)))
        })
        .collect();
    for caller in callers {
        caller.join().expect("nobody panics");
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(count(&counts.begun), count(&counts.ended), "a call without an end");
    shared.lend(|now, target| {
        let budget = target.budget.as_mut().expect("by the rules");
        let usage = budget.usage(now);
        // Far less than a window has passed: nothing is forgotten, nothing was paid for and not sent.
        assert_eq!((usage.originals, usage.retries), (count(&counts.begun), count(&counts.retries)));
        let breaker = target.breaker.as_mut().expect("by the rules");
        assert!(breaker.state() != BreakerState::HalfOpen, "a probe is not over");
        let later = now.saturating_add(BreakerSettings::TARGET.open_for);
        assert!(breaker.admit(later).is_ok(), "barred for ever");
    });
}

#[test]
fn nothing_is_lost_in_any_order() {
    Runner::new(RandomScheduler::new_from_seed(1, 500), shuttle::Config::default()).run(run);
}
