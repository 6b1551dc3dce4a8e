//! Invariants, checked command by command over random sequences of events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gglib_core::admission::{Admission, Command, Event, Generation, LeaseId, Ticket, Urgency};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;
use proptest::prelude::*;

use crate::SETTINGS;

/// One step of the random world.
#[derive(Clone, Debug)]
enum Step {
    Arrive(usize),
    Leave(usize),
    Release(usize),
    AnswerLaunch { ok: bool },
    Crash,
    Condemn,
    Stale(usize),
    Wait(u64),
    Drain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..3usize).prop_map(Step::Arrive),
        2 => (0..32usize).prop_map(Step::Leave),
        6 => (0..8usize).prop_map(Step::Release),
        6 => prop::bool::weighted(0.9).prop_map(|ok| Step::AnswerLaunch { ok }),
        1 => Just(Step::Crash),
        1 => Just(Step::Condemn),
        2 => (0..4usize).prop_map(Step::Stale),
        3 => (0..200u64).prop_map(Step::Wait),
    ];
    (prop::collection::vec(step, 0..120), prop::bool::weighted(0.3)).prop_map(|(mut steps, drain)| {
        if drain {
            let at = steps.len() / 2;
            steps.insert(at, Step::Drain);
        }
        steps
    })
}

/// The world around the machine, which checks every command against the rules as it is issued.
struct World {
    machine: Admission,
    now: Moment,
    tickets: u64,
    waiting: BTreeMap<Ticket, (ModelName, Moment)>,
    leases: BTreeSet<LeaseId>,
    engine: Option<(Generation, ModelName, Process)>,
    ended: BTreeSet<Generation>,
    condemned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    Loading,
    Ready,
    Stopping,
}

const PARALLEL: u32 = 2;

impl World {
    fn new() -> Self {
        Self {
            machine: Admission::new(SETTINGS),
            now: Moment::ORIGIN,
            tickets: 0,
            waiting: BTreeMap::new(),
            leases: BTreeSet::new(),
            engine: None,
            ended: BTreeSet::new(),
            condemned: false,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive(model) => {
                self.tickets += 1;
                let ticket = Ticket(self.tickets);
                let model = ModelName::new(["a", "b", "c"][model]);
                self.waiting.insert(ticket, (model.clone(), self.now));
                self.tell(Event::Arrive { ticket, model, parallel: PARALLEL });
            }
            Step::Leave(index) => {
                if let Some(ticket) = self.waiting.keys().nth(index).copied() {
                    self.waiting.remove(&ticket);
                    self.tell(Event::Leave { ticket });
                }
            }
            Step::Release(index) => {
                if let Some(lease) = self.leases.iter().nth(index).copied() {
                    self.leases.remove(&lease);
                    self.tell(Event::Release { lease });
                }
            }
            Step::AnswerLaunch { ok } => self.answer(ok),
            Step::Crash => {
                if let Some((generation, _, Process::Ready)) = self.engine {
                    self.end(generation);
                    self.tell(Event::Ended { generation });
                }
            }
            Step::Condemn => {
                if let Some((generation, _, Process::Ready)) = self.engine {
                    self.condemned = true;
                    self.tell(Event::Condemn { generation });
                    self.condemned = false;
                }
            }
            Step::Stale(kind) => self.stale(kind),
            Step::Wait(seconds) => {
                self.now = self.now.saturating_add(Duration::from_secs(seconds));
                self.tell(Event::Tick);
            }
            Step::Drain => self.tell(Event::Drain),
        }
    }

    /// The engine's process answers whatever was last asked of it.
    fn answer(&mut self, ok: bool) {
        match self.engine.clone() {
            Some((generation, model, Process::Loading)) if ok => {
                self.engine = Some((generation, model, Process::Ready));
                self.tell(Event::Loaded { generation });
            }
            Some((generation, _, Process::Loading)) => {
                self.end(generation);
                self.tell(Event::LoadFailed { generation, reason: "broken".to_owned() });
            }
            Some((generation, _, Process::Stopping)) => {
                self.end(generation);
                self.tell(Event::Ended { generation });
            }
            _ => {}
        }
    }

    fn end(&mut self, generation: Generation) {
        self.engine = None;
        self.ended.insert(generation);
    }

    /// Events of generations that are over change nothing.
    fn stale(&mut self, kind: usize) {
        let Some(generation) = self.ended.iter().nth(kind).copied() else { return };
        let before = self.machine.snapshot(self.now);
        let lease = LeaseId { generation, ticket: Ticket(self.tickets) };
        let event = match kind {
            0 => Event::Loaded { generation },
            1 => Event::LoadFailed { generation, reason: "late".to_owned() },
            2 => Event::Ended { generation },
            _ => Event::Release { lease },
        };
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        assert_eq!(out, [], "a stale event caused commands");
        assert_eq!(self.machine.snapshot(self.now), before);
    }

    fn tell(&mut self, event: Event) {
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        for command in out {
            self.check(command);
        }
        for (ticket, (_, since)) in &self.waiting {
            assert!(
                since.saturating_add(SETTINGS.max_wait) > self.now,
                "{ticket:?} waits past its hard bound"
            );
        }
        assert_eq!(
            self.machine.snapshot(self.now).queue.iter().map(|entry| entry.waiting).sum::<usize>(),
            self.waiting.len(),
            "a waiter was lost or kept"
        );
    }

    fn check(&mut self, command: Command) {
        match command {
            Command::Launch { generation, model } => {
                assert_eq!(self.engine, None, "two engines at once");
                let oldest = self.waiting.values().next().map(|(model, _)| model);
                assert_eq!(oldest, Some(&model), "not the oldest waiter's model");
                self.engine = Some((generation, model, Process::Loading));
            }
            Command::Stop { generation, urgency } => {
                let (current, _, process) = self.engine.as_mut().expect("stopped nothing");
                assert_eq!(*current, generation);
                assert_ne!(*process, Process::Stopping, "stopped twice");
                let was = std::mem::replace(process, Process::Stopping);
                let leased = self.leases.iter().any(|lease| lease.generation == generation);
                assert!(!leased || self.condemned, "stopped under a lease");
                assert_eq!(urgency == Urgency::Immediate, self.condemned || was == Process::Loading);
            }
            Command::Grant { lease } => {
                let (generation, model, process) = self.engine.clone().expect("granted nothing");
                assert_eq!((lease.generation, process), (generation, Process::Ready));
                let (wanted, _) = self.waiting.remove(&lease.ticket).expect("granted twice");
                assert_eq!(wanted, model);
                self.leases.insert(lease);
                let used = self.leases.iter().filter(|lease| lease.generation == generation).count();
                assert!(used <= PARALLEL as usize, "over the engine's parallelism");
            }
            Command::Refuse { ticket, .. } => {
                self.waiting.remove(&ticket).expect("refused twice");
            }
        }
    }

    /// Lets everything finish: with leases given back and launches answered, nobody may be left.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            if self.waiting.is_empty() {
                return;
            }
            self.answer(true);
            while let Some(lease) = self.leases.pop_first() {
                self.tell(Event::Release { lease });
            }
        }
        panic!("waiters are left: {:?}", self.waiting);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_rules_hold_over_random_events(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.settle();
    }

    /// Without faults, a waiter sees at most one turn of every model before its own.
    #[test]
    fn nobody_starves(arrivals in prop::collection::vec((0..3usize, 0..3usize), 1..80)) {
        let mut world = World::new();
        let mut launched_at: BTreeMap<Ticket, u64> = BTreeMap::new();
        for (model, releases) in arrivals {
            world.step(&Step::Arrive(model));
            launched_at.insert(Ticket(world.tickets), launches(&world));
            for _ in 0..releases {
                world.step(&Step::AnswerLaunch { ok: true });
                world.step(&Step::Release(0));
            }
            for lease in &world.leases {
                if let Some(before) = launched_at.remove(&lease.ticket) {
                    prop_assert!(launches(&world) - before <= 3, "{lease:?} waited for more than 3 turns");
                }
            }
        }
    }
}

fn launches(world: &World) -> u64 {
    world.engine.as_ref().map_or(world.ended.len() as u64, |(generation, ..)| generation.0)
}
