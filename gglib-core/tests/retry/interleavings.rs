//! Targets shared by threads, as a driver shares them: each step under a lock, anything between two steps.
//!
//! `shuttle` decides which thread runs and draws the random numbers, so that a run is a function of its seed. Beside
//! the targets, under the same lock, stands an account of what they should have counted.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use gglib_core::moment::Moment;
use gglib_core::ports::Phase;
use gglib_core::retry::{
    BreakerSettings, BreakerState, BudgetSettings, Cause, Failure, Next, RetriesAbove, RetryPolicy,
    RetryRules, RetrySequence, Target, TargetSettings, Targets, preset,
};
use http::StatusCode;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use shuttle::sync::{Arc, Mutex};
use shuttle::{Runner, thread};

/// Time passes by so much with each step, so that a run is far shorter than the budget's window: nothing is forgotten.
const STEP: Duration = Duration::from_millis(1);
const OPEN_FOR: Duration = Duration::from_millis(2);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

static RULES: LazyLock<RetryRules> = LazyLock::new(|| {
    RetryRules::from(RetryPolicy { max_attempts: 3, total_deadline: Duration::MAX, ..preset::gglib().policy })
});

fn settings(capacity: usize) -> TargetSettings {
    TargetSettings {
        budget: Some(BudgetSettings { percent: 50, min_per_window: 1, window: Duration::from_secs(10) }),
        breaker: Some(BreakerSettings {
            threshold: 1,
            open_for: OPEN_FOR,
            max_open_for: OPEN_FOR,
            probe_timeout: PROBE_TIMEOUT,
        }),
        capacity,
    }
}

/// What lies behind the lock.
struct World {
    targets: Targets,
    accounts: BTreeMap<&'static str, Account>,
    now: Moment,
    created: u64,
}

/// What a target should know.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Which of the targets that have had the name.
    incarnation: u64,
    /// How often its breaker has changed.
    changes: u64,
    originals: u64,
    retries: u64,
    has_probe: bool,
}

impl World {
    fn new(capacity: usize) -> Self {
        let (targets, accounts) = (Targets::new(settings(capacity)), BTreeMap::new());
        Self { targets, accounts, now: Moment::ORIGIN, created: 0 }
    }

    /// Takes one step at the target, and checks that it counts as the account does.
    fn step<T>(&mut self, name: &'static str, act: impl FnOnce(Moment, &mut Target, &mut Account) -> T) -> T {
        self.now = self.now.saturating_add(STEP);
        if !self.targets.iter_mut().any(|(known, _)| known == name) {
            self.created += 1;
            self.accounts.insert(name, Account { incarnation: self.created, ..Account::default() });
        }
        let target = self.targets.target(name, self.now);
        let account = self.accounts.get_mut(name).expect("put in before");
        let before = state(target);
        let result = act(self.now, target, account);
        account.changes += u64::from(before != state(target));
        let usage = target.budget.as_mut().expect("by the settings").usage(self.now);
        assert_eq!((usage.originals, usage.retries), (account.originals, account.retries), "{account:?}");
        result
    }
}

fn state(target: &Target) -> BreakerState {
    target.breaker.as_ref().expect("by the settings").state()
}

/// State, and the moment until which nothing is admitted.
fn standing(target: &Target, now: Moment) -> (BreakerState, Option<Moment>) {
    (state(target), target.breaker.as_ref().expect("by the settings").retry_at(now))
}

/// One sequence, and what it holds of its target.
struct Caller {
    name: &'static str,
    sequence: RetrySequence<'static>,
    /// The incarnation of the target, and the number of changes of its breaker, that its permit is from.
    permit: (u64, u64),
    is_probe: bool,
    /// The incarnation that it has paid for a retry that is not yet sent.
    paid: Option<u64>,
}

impl Caller {
    /// Begins one, if the breaker lets it.
    fn begin(world: &mut World, name: &'static str) -> Option<Self> {
        world.step(name, |now, target, account| {
            let (_, barred) = standing(target, now);
            let before = state(target);
            let (sequence, step) = RetrySequence::begin(&RULES, RetriesAbove::NONE, now, target);
            assert_eq!(step.next == Next::Attempt, barred.is_none(), "{:?}", step.next);
            if barred.is_some() {
                return None;
            }
            account.originals += 1;
            let is_probe = state(target) == BreakerState::HalfOpen;
            assert!(!(is_probe && account.has_probe), "a second probe");
            account.has_probe |= is_probe;
            let permit = (account.incarnation, account.changes + u64::from(before != state(target)));
            Some(Self { name, sequence, permit, is_probe, paid: None })
        })
    }

    /// Lets it live to its end, in any of the ways there are.
    fn live(mut self, world: &Mutex<World>) {
        let mut next = Next::Attempt;
        loop {
            thread::yield_now();
            let mut world = world.lock().expect("nobody panics");
            next = match (next, thread_rng().gen_range(0..6)) {
                (Next::GiveUp { .. }, _) => return,
                (_, 0) => {
                    return self.end(&mut world, |sequence, now, target| {
                        let _ = sequence.on_cancel(now, target);
                    });
                }
                (Next::Attempt, 1 | 2) => {
                    return self.end(&mut world, |sequence, now, target| {
                        let _ = sequence.on_success(now, target);
                    });
                }
                (Next::Attempt, 3) => self.fail(
                    &mut world,
                    &Failure {
                        hint: Some(Duration::from_secs(1)),
                        ..Failure::new(Cause::Status(StatusCode::SERVICE_UNAVAILABLE))
                    },
                ),
                (Next::Attempt, _) => self.fail(&mut world, &Failure::new(Cause::Transport(Phase::Connect))),
                (Next::Wait { .. }, _) => self.wake(&mut world),
            };
        }
    }

    fn fail(&mut self, world: &mut World, failure: &Failure<'_>) -> Next {
        world.step(self.name, |now, target, account| {
            let before = standing(target, now);
            let next = self.sequence.on_failure(failure, now, 0.5, target).next;
            match next {
                Next::Wait { .. } => {
                    assert!(!self.is_probe, "a probe is one attempt");
                    account.retries += 1;
                    let allowed = account.originals / 2 + 1;
                    assert!(account.retries <= allowed, "{account:?}");
                    self.paid = Some(account.incarnation);
                    self.permit = (account.incarnation, account.changes);
                }
                Next::GiveUp { .. } => self.ended(before, now, target, account),
                Next::Attempt => panic!("no failure is followed by an attempt at once"),
            }
            next
        })
    }

    fn wake(&mut self, world: &mut World) -> Next {
        world.step(self.name, |now, target, account| {
            let before = standing(target, now);
            let next = self.sequence.on_wake(now, target).next;
            if next == Next::Attempt {
                assert_eq!(before.0, BreakerState::Closed, "nobody retries against an open breaker");
                self.paid = None;
                self.permit = (account.incarnation, account.changes);
            } else {
                self.ended(before, now, target, account);
            }
            next
        })
    }

    fn end(self, world: &mut World, end: impl FnOnce(RetrySequence<'static>, Moment, &mut Target)) {
        let Self { name, sequence, permit, is_probe, paid } = self;
        world.step(name, |now, target, account| {
            let before = standing(target, now);
            end(sequence, now, target);
            close(permit, is_probe, paid, before, now, target, account);
        });
    }

    fn ended(
        &mut self,
        before: (BreakerState, Option<Moment>),
        now: Moment,
        target: &Target,
        account: &mut Account,
    ) {
        close(self.permit, self.is_probe, self.paid.take(), before, now, target, account);
    }
}

/// Everything is given back: the retry that was not sent, and the place of the probe. What is stale changes nothing.
fn close(
    permit: (u64, u64),
    is_probe: bool,
    paid: Option<u64>,
    before: (BreakerState, Option<Moment>),
    now: Moment,
    target: &Target,
    account: &mut Account,
) {
    if paid == Some(account.incarnation) {
        account.retries -= 1;
    }
    let is_current = permit == (account.incarnation, account.changes);
    if is_probe && is_current {
        account.has_probe = false;
        assert_ne!(state(target), BreakerState::HalfOpen, "the place of the probe is free");
    }
    if !is_current && before.0 != BreakerState::Closed {
        assert_eq!(standing(target, now), before, "a stale result");
    }
}

/// Runs four threads that make four calls each, in so many orders.
fn explore(seed: u64, orders: usize, capacity: usize, names: &'static [&'static str]) {
    let run = move || {
        let world = Arc::new(Mutex::new(World::new(capacity)));
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    for _ in 0..4 {
                        let name = names[thread_rng().gen_range(0..names.len())];
                        let caller = Caller::begin(&mut world.lock().expect("nobody panics"), name);
                        if let Some(caller) = caller {
                            caller.live(&world);
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().expect("nobody panics");
        }
        let mut world = world.lock().expect("nobody panics");
        assert!(world.accounts.values().all(|account| !account.has_probe), "a place of a probe is lost");
        // Nothing holds a breaker open for longer than its pause.
        world.now = world.now.saturating_add(OPEN_FOR);
        for name in names {
            assert!(Caller::begin(&mut world, name).is_some(), "{name} is barred for ever");
        }
    };
    Runner::new(RandomScheduler::new_from_seed(seed, orders), shuttle::Config::default()).run(run);
}

#[test]
fn threads_that_share_a_target() {
    explore(1, 600, 1, &["a"]);
}

#[test]
fn threads_that_share_a_registry() {
    explore(2, 300, 2, &["a", "b"]);
}

/// Permits and withdrawals of a forgotten target come back to its successor.
#[test]
fn threads_whose_targets_are_forgotten_meanwhile() {
    explore(3, 600, 1, &["a", "b"]);
}
