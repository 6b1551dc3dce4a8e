//! Many sequences against one target, in any order.

use std::time::Duration;

use gglib_core::moment::Moment;
use gglib_core::ports::Phase;
use gglib_core::retry::{
    Advice, BreakerSettings, BreakerState, BudgetSettings, Cause, Class, Failure, GiveUpReason, Next,
    RetriesAbove, RetryEvent, RetryRules, RetrySequence, TargetSettings, Targets, preset,
};
use http::StatusCode;
use proptest::prelude::*;
use proptest::sample::Index;

const BREAKER: BreakerSettings = BreakerSettings {
    threshold: 2,
    open_for: Duration::from_secs(5),
    max_open_for: Duration::from_secs(20),
    probe_timeout: Duration::from_secs(10),
};

const SETTINGS: TargetSettings = TargetSettings {
    budget: Some(BudgetSettings { percent: 20, min_per_window: 2, window: Duration::from_secs(10) }),
    breaker: Some(BREAKER),
    capacity: 2,
};

#[derive(Clone, Debug)]
enum Act {
    Pass { millis: u64 },
    Begin,
    Succeed { which: Index },
    Fail { which: Index, failure: Failure<'static>, unit: f64 },
    Cancel { which: Index },
    Drop { which: Index },
}

fn any_failure() -> impl Strategy<Value = Failure<'static>> {
    let status = |code| Failure::new(Cause::Status(StatusCode::from_u16(code).expect("a status")));
    let hint = prop::option::of((0..100_000_u64).prop_map(Duration::from_millis));
    let advice = prop::option::weighted(0.1, prop::sample::select(vec![Advice::Retry, Advice::GiveUp]));
    let failure = prop_oneof![
        Just(Failure::new(Cause::Transport(Phase::BeforeHeaders))),
        Just(Failure::new(Cause::Timeout(Phase::Connect))),
        Just(Failure::new(Cause::Malformed)),
        prop::sample::select(vec![404, 429, 500, 501, 502, 503, 529]).prop_map(status),
    ];
    (failure, hint, advice).prop_map(|(failure, hint, advice)| Failure { hint, advice, ..failure })
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..3_000_u64).prop_map(|millis| Act::Pass { millis }),
        4 => Just(Act::Begin),
        2 => any::<Index>().prop_map(|which| Act::Succeed { which }),
        6 => (any::<Index>(), any_failure(), 0.0..1.0)
            .prop_map(|(which, failure, unit)| Act::Fail { which, failure, unit }),
        1 => any::<Index>().prop_map(|which| Act::Cancel { which }),
        1 => any::<Index>().prop_map(|which| Act::Drop { which }),
    ]
}

/// A sequence as its driver sees it.
struct Client<'r> {
    sequence: RetrySequence<'r>,
    started: Moment,
    /// When the sleep ends; `None` during an attempt.
    wakes: Option<Moment>,
    log: Vec<RetryEvent>,
}

struct World<'r> {
    rules: &'r RetryRules,
    targets: Targets,
    now: Moment,
    clients: Vec<Client<'r>>,
    finished: Vec<Vec<RetryEvent>>,
    originals: Vec<Moment>,
    /// Retries that were scheduled and not cancelled asleep.
    retries: Vec<Moment>,
}

impl<'r> World<'r> {
    fn new(rules: &'r RetryRules) -> Self {
        Self {
            rules,
            targets: Targets::new(SETTINGS),
            now: Moment::ORIGIN,
            clients: Vec::new(),
            finished: Vec::new(),
            originals: Vec::new(),
            retries: Vec::new(),
        }
    }

    fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        let now = self.now;
        let target = self.targets.target("one", now);
        let pick = |which: &Index, asleep: bool, clients: &[Client<'_>]| {
            let places: Vec<_> =
                (0..clients.len()).filter(|&place| clients[place].wakes.is_some() == asleep).collect();
            (!places.is_empty()).then(|| places[which.index(places.len())])
        };
        match act {
            Act::Pass { millis } => return self.pass(Duration::from_millis(*millis)),
            Act::Begin => {
                let (sequence, step) = RetrySequence::begin(self.rules, RetriesAbove::NONE, now, target);
                let log = step.events.into_iter().collect();
                if step.next == Next::Attempt {
                    self.originals.push(now);
                    self.clients.push(Client { sequence, started: now, wakes: None, log });
                } else {
                    let Next::GiveUp { reason, retry_at } = step.next else { panic!("{step:?}") };
                    prop_assert_eq!(reason, GiveUpReason::CircuitOpen);
                    prop_assert!(retry_at.is_some_and(|at| at > now));
                    self.finished.push(log);
                }
            }
            Act::Succeed { which } => {
                if let Some(place) = pick(which, false, &self.clients) {
                    let mut client = self.clients.swap_remove(place);
                    client.log.extend(client.sequence.on_success(now, target));
                    self.finished.push(client.log);
                }
            }
            Act::Fail { which, failure, unit } => {
                if let Some(place) = pick(which, false, &self.clients) {
                    self.fail(place, failure, *unit)?;
                }
            }
            Act::Cancel { which } => {
                if !self.clients.is_empty() {
                    let mut client = self.clients.swap_remove(which.index(self.clients.len()));
                    client.log.extend(client.sequence.on_cancel(now, target));
                    if let Some(wakes) = client.wakes {
                        self.forget_retry(&client.log, wakes);
                    }
                    self.finished.push(client.log);
                }
            }
            Act::Drop { which } => {
                if !self.clients.is_empty() {
                    drop(self.clients.swap_remove(which.index(self.clients.len())));
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, place: usize, failure: &Failure<'static>, unit: f64) -> Result<(), TestCaseError> {
        let now = self.now;
        let target = self.targets.target("one", now);
        let client = &mut self.clients[place];
        let policy = self.rules.policy_for(failure.class());
        let step = client.sequence.on_failure(failure, now, unit, target);
        client.log.extend(step.events);
        match step.next {
            Next::Wait { delay } => {
                let wakes = now.saturating_add(delay);
                prop_assert!(client.sequence.attempts() < policy.max_attempts);
                prop_assert!(wakes.saturating_since(client.started) < policy.total_deadline);
                client.wakes = Some(wakes);
                self.retries.push(now);
                let within = |moments: &[Moment]| {
                    let recent = |&&at: &&Moment| now.saturating_since(at) < Duration::from_secs(10);
                    moments.iter().filter(recent).count()
                };
                prop_assert!(within(&self.retries) <= within(&self.originals) / 5 + 2);
            }
            Next::GiveUp { .. } => {
                let client = self.clients.swap_remove(place);
                self.finished.push(client.log);
            }
            Next::Attempt => prop_assert!(false, "no attempt follows a failure at once"),
        }
        Ok(())
    }

    /// Lets time go by, and wakes everybody whose sleep ends meanwhile.
    fn pass(&mut self, by: Duration) -> Result<(), TestCaseError> {
        self.now = self.now.saturating_add(by);
        let mut place = 0;
        while place < self.clients.len() {
            let client = &mut self.clients[place];
            let Some(wakes) = client.wakes.filter(|&wakes| wakes <= self.now) else {
                place += 1;
                continue;
            };
            let step = client.sequence.on_wake(self.now, self.targets.target("one", self.now));
            client.log.extend(step.events);
            if step.next == Next::Attempt {
                client.wakes = None;
                place += 1;
                continue;
            }
            let late = self.now.saturating_since(client.started) >= Duration::from_secs(60);
            let reason = if late { GiveUpReason::DeadlineExceeded } else { GiveUpReason::CircuitOpen };
            let Next::GiveUp { reason: given, .. } = step.next else { panic!("{step:?}") };
            prop_assert_eq!(given, reason);
            let client = self.clients.swap_remove(place);
            self.forget_retry(&client.log, wakes);
            self.finished.push(client.log);
        }
        Ok(())
    }

    /// The retry that would have been sent at `wakes` is refunded.
    fn forget_retry(&mut self, log: &[RetryEvent], wakes: Moment) {
        let delay = log.iter().rev().find_map(|event| match event {
            RetryEvent::RetryScheduled { delay, .. } => Some(*delay),
            _ => None,
        });
        let scheduled = Moment::ORIGIN.saturating_add(
            wakes.saturating_since(Moment::ORIGIN).saturating_sub(delay.expect("it was scheduled")),
        );
        let place = self.retries.iter().position(|&at| at == scheduled).expect("it was counted");
        self.retries.swap_remove(place);
    }
}

/// Every sequence ends once, attempts are numbered, and each but the first was scheduled.
fn check_log(log: &[RetryEvent]) -> Result<(), TestCaseError> {
    let is_end = |event: &&RetryEvent| {
        matches!(
            event,
            RetryEvent::Succeeded { .. } | RetryEvent::GaveUp { .. } | RetryEvent::Cancelled { .. }
        )
    };
    prop_assert_eq!(log.iter().filter(is_end).count(), 1, "{:?}", log);
    let mut started = 0;
    let mut scheduled = 0;
    for event in log {
        match *event {
            RetryEvent::AttemptStarted { attempt } => {
                prop_assert_eq!(attempt, started + 1);
                prop_assert_eq!(scheduled, started);
                started += 1;
            }
            RetryEvent::RetryScheduled { attempt, .. } => {
                prop_assert_eq!(attempt, started);
                scheduled += 1;
            }
            RetryEvent::Succeeded { attempts, .. }
            | RetryEvent::Cancelled { attempts, .. }
            | RetryEvent::GaveUp { attempts, .. } => prop_assert_eq!(attempts, started),
            RetryEvent::BudgetExceeded { usage, .. } => prop_assert_eq!(usage.available, 0),
            RetryEvent::BreakerChanged { from, to, .. } => {
                prop_assert!(from != to && (from, to) != (BreakerState::Open, BreakerState::Closed));
            }
        }
    }
    Ok(())
}

fn rules() -> RetryRules {
    let gglib = preset::gglib();
    let patient = gglib_core::retry::RetryPolicy { max_attempts: 6, ..gglib.policy };
    RetryRules { per_class: [(Class::RateLimited, patient)].into(), ..gglib }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Over any interleaving of many callers: the budget holds, deadlines and attempts hold, every sequence ends
    /// exactly once; and the same history again gives the same events.
    #[test]
    fn any_interleaving(acts in prop::collection::vec(any_act(), 0..150)) {
        let rules = rules();
        let run = || -> Result<Vec<Vec<RetryEvent>>, TestCaseError> {
            let mut world = World::new(&rules);
            for act in &acts {
                world.act(act)?;
            }
            for log in &world.finished {
                check_log(log)?;
            }
            Ok(world.finished)
        };
        prop_assert_eq!(run()?, run()?);
    }
}
