//! The admission queue: its rules one by one, and its invariants over random sequences of events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gglib_core::admission::{
    Admission, Command, EngineState, Event, Generation, LeaseId, Refusal, Settings, Ticket, Urgency,
};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;
use proptest::prelude::*;

const SETTINGS: Settings =
    Settings { stall: Duration::from_secs(180), max_wait: Duration::from_secs(600), queue: 8 };

/// The machine with a clock, spoken to in short words; answers are rendered so that tests read as tables.
struct Desk {
    machine: Admission,
    now: Moment,
    tickets: u64,
}

impl Desk {
    fn new() -> Self {
        Self { machine: Admission::new(SETTINGS), now: Moment::ORIGIN, tickets: 0 }
    }

    fn tell(&mut self, event: Event) -> String {
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        out.iter().map(render).collect::<Vec<_>>().join(", ")
    }

    fn arrive(&mut self, model: &str) -> String {
        self.arrive_with(model, 1)
    }

    fn arrive_with(&mut self, model: &str, parallel: u32) -> String {
        self.tickets += 1;
        self.tell(Event::Arrive { ticket: Ticket(self.tickets), model: ModelName::new(model), parallel })
    }

    fn leave(&mut self, ticket: u64) -> String {
        self.tell(Event::Leave { ticket: Ticket(ticket) })
    }

    fn loaded(&mut self, generation: u64) -> String {
        self.tell(Event::Loaded { generation: Generation(generation) })
    }

    fn load_failed(&mut self, generation: u64) -> String {
        self.tell(Event::LoadFailed { generation: Generation(generation), reason: "broken".to_owned() })
    }

    fn ended(&mut self, generation: u64) -> String {
        self.tell(Event::Ended { generation: Generation(generation) })
    }

    fn release(&mut self, generation: u64, ticket: u64) -> String {
        let lease = LeaseId { generation: Generation(generation), ticket: Ticket(ticket) };
        self.tell(Event::Release { lease })
    }

    fn after(&mut self, seconds: u64) -> String {
        self.now = self.now.saturating_add(Duration::from_secs(seconds));
        self.tell(Event::Tick)
    }

    fn state(&self) -> Option<EngineState> {
        self.machine.snapshot(self.now).engines.first().map(|engine| engine.state)
    }
}

fn render(command: &Command) -> String {
    match command {
        Command::Launch { generation, model } => format!("launch {model} as g{}", generation.0),
        Command::Stop { generation, urgency: Urgency::Graceful } => format!("stop g{}", generation.0),
        Command::Stop { generation, urgency: Urgency::Immediate } => format!("kill g{}", generation.0),
        Command::Grant { lease } => format!("grant t{} on g{}", lease.ticket.0, lease.generation.0),
        Command::Refuse { ticket, refusal } => {
            let why = match refusal {
                Refusal::QueueFull { .. } => "queue full",
                Refusal::LoadFailed { .. } => "load failed",
                Refusal::Stalled { .. } => "stalled",
                Refusal::WaitedTooLong { .. } => "waited too long",
                Refusal::Draining => "draining",
            };
            format!("refuse t{}: {why}", ticket.0)
        }
    }
}

#[test]
fn one_launch_however_many_wait_and_the_first_waiter_is_leased_as_it_becomes_ready() {
    let mut desk = Desk::new();
    assert_eq!(desk.arrive("a"), "launch a as g1");
    assert_eq!(desk.arrive("a"), "");
    assert_eq!(desk.arrive("a"), "");
    assert_eq!(desk.loaded(1), "grant t1 on g1");
    assert_eq!(desk.release(1, 1), "grant t2 on g1");
}

#[test]
fn an_engine_takes_as_many_as_it_was_started_for() {
    let mut desk = Desk::new();
    desk.arrive_with("a", 2);
    desk.arrive_with("a", 2);
    desk.arrive_with("a", 2);
    assert_eq!(desk.loaded(1), "grant t1 on g1, grant t2 on g1");
    assert_eq!(desk.release(1, 2), "grant t3 on g1");
}

#[test]
fn a_rival_waits_for_the_leases_and_newcomers_for_the_resident_queue_behind_it() {
    let mut desk = Desk::new();
    desk.arrive_with("a", 4);
    desk.loaded(1);
    assert_eq!(desk.arrive("b"), "");
    assert_eq!(desk.state(), Some(EngineState::Draining));
    assert_eq!(desk.arrive_with("a", 4), "", "overlapping traffic must not starve b");
    assert_eq!(desk.release(1, 1), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g2");
    assert_eq!(desk.loaded(2), "grant t2 on g2");
    assert_eq!(desk.release(2, 2), "stop g2");
    assert_eq!(desk.ended(2), "launch a as g3");
    assert_eq!(desk.loaded(3), "grant t3 on g3");
}

#[test]
fn a_turn_serves_everybody_who_waited_when_it_began() {
    let mut desk = Desk::new();
    for model in ["a", "b", "a", "a", "c", "a", "b", "c"] {
        desk.arrive(model);
    }
    assert_eq!(desk.loaded(1), "grant t1 on g1");
    assert_eq!(desk.release(1, 1), "grant t3 on g1");
    assert_eq!(desk.release(1, 3), "grant t4 on g1");
    assert_eq!(desk.release(1, 4), "grant t6 on g1");
    assert_eq!(desk.release(1, 6), "stop g1");
    assert_eq!(desk.ended(1), "launch b as g2", "8 requests for 3 models cost 3 loads");
}

#[test]
fn a_full_queue_refuses_at_once_and_only_for_that_model() {
    let mut desk = Desk::new();
    for _ in 0..8 {
        desk.arrive("a");
    }
    assert_eq!(desk.arrive("a"), "refuse t9: queue full");
    assert_eq!(desk.arrive("b"), "");
    desk.leave(3);
    assert_eq!(desk.arrive("a"), "", "a leaver frees its place");
}

#[test]
fn a_load_that_nobody_wants_is_finished_unless_a_rival_waits() {
    let mut desk = Desk::new();
    desk.arrive("a");
    assert_eq!(desk.leave(1), "");
    assert_eq!(desk.arrive("b"), "kill g1");
    assert_eq!(desk.load_failed(1), "launch b as g2", "the cancelled load is nobody's failure");
    desk.leave(2);
    assert_eq!(desk.loaded(2), "");
    assert_eq!(desk.state(), Some(EngineState::Resident));
}

#[test]
fn a_failed_load_is_told_to_all_who_waited_for_it_and_to_nobody_else() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.arrive("b");
    desk.arrive("a");
    assert_eq!(desk.load_failed(1), "refuse t1: load failed, refuse t3: load failed, launch b as g2");
    assert_eq!(desk.arrive("a"), "");
}

#[test]
fn an_engine_that_ends_by_itself_frees_the_slot_and_its_leases_are_stale() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("a");
    assert_eq!(desk.ended(1), "launch a as g2");
    assert_eq!(desk.machine.snapshot(desk.now).totals.crashes, 1);
    assert_eq!(desk.loaded(2), "grant t2 on g2");
    desk.arrive("a");
    assert_eq!(desk.release(1, 1), "", "the old lease must not free the new engine");
    assert_eq!(desk.machine.snapshot(desk.now).engines[0].in_flight, 1);
}

#[test]
fn a_condemned_engine_is_stopped_under_its_leases_but_an_older_generation_never_is() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    assert_eq!(desk.tell(Event::Condemn { generation: Generation(1) }), "kill g1");
    assert_eq!(desk.tell(Event::Condemn { generation: Generation(1) }), "");
    desk.arrive("a");
    assert_eq!(desk.ended(1), "launch a as g2");
    desk.loaded(2);
    assert_eq!(desk.tell(Event::Condemn { generation: Generation(1) }), "");
    assert_eq!(desk.state(), Some(EngineState::Resident));
}

#[test]
fn the_stall_clock_is_held_by_a_load_and_reset_by_movement() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.arrive("a");
    assert_eq!(desk.after(300), "", "a load in progress holds the clock");
    assert_eq!(desk.loaded(1), "grant t1 on g1");
    assert_eq!(desk.after(179), "");
    assert_eq!(desk.after(1), "refuse t2: stalled");
    desk.arrive("a");
    desk.after(100);
    desk.release(1, 1);
    desk.arrive("a");
    assert_eq!(desk.after(179), "", "the grant to t3 moved the queue");
    assert_eq!(desk.after(1), "refuse t4: stalled");
}

#[test]
fn no_wait_outlives_its_hard_bound_even_under_a_load() {
    let mut desk = Desk::new();
    desk.arrive("a");
    assert_eq!(desk.machine.next_deadline(), Some(Moment::from_nanos(600_000_000_000)));
    assert_eq!(desk.after(600), "refuse t1: waited too long");
    assert_eq!(desk.machine.next_deadline(), None);
}

#[test]
fn draining_refuses_who_waits_and_who_comes_and_lets_leases_finish() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.arrive("a");
    assert_eq!(desk.tell(Event::Drain), "refuse t2: draining");
    assert_eq!(desk.arrive("a"), "refuse t3: draining");
    assert_eq!(desk.release(1, 1), "stop g1");
    assert!(!desk.machine.is_idle());
    assert_eq!(desk.ended(1), "");
    assert!(desk.machine.is_idle());
}

#[test]
fn draining_gives_up_a_load_and_stops_an_idle_engine() {
    let mut desk = Desk::new();
    desk.arrive("a");
    assert_eq!(desk.tell(Event::Drain), "refuse t1: draining, kill g1");
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.loaded(1);
    desk.release(1, 1);
    assert_eq!(desk.tell(Event::Drain), "stop g1");
}

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
