//! Each rule as a short exchange with the machine.

use std::time::Duration;

use gglib_core::admission::{
    Admission, Command, EngineState, Event, Generation, LeaseId, Refusal, Ticket, Urgency,
};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

use crate::SETTINGS;

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
fn the_stall_clock_starts_over_when_a_load_is_cancelled() {
    let mut desk = Desk::new();
    desk.arrive("a");
    desk.after(1);
    desk.arrive("b");
    desk.after(300);
    assert_eq!(desk.leave(1), "kill g1");
    assert_eq!(desk.after(179), "", "b's clock was held by a's load and runs from its end");
    assert_eq!(desk.after(1), "refuse t2: stalled");
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
