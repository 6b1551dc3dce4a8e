//! The state machine itself.

use std::collections::BTreeSet;

use super::command::{Command, Urgency};
use super::engine::{Engine, Stage};
use super::event::Event;
use super::queue::{Queue, Ticket, Waiter};
use super::snapshot::{QueueSnapshot, Snapshot, Totals};
use super::{Generation, LeaseId, Refusal, Settings};
use crate::model::ModelName;
use crate::moment::Moment;

/// The queue and the one engine slot.
#[derive(Clone, Debug)]
pub struct Admission {
    settings: Settings,
    queue: Queue,
    slot: Option<Engine>,
    draining: bool,
    /// When the queue last moved: the start of every waiter's stall clock that began before it.
    moved: Moment,
    last_ticket: Ticket,
    launches: u64,
    totals: Totals,
}

impl Admission {
    /// An empty machine.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            queue: Queue::default(),
            slot: None,
            draining: false,
            moved: Moment::ORIGIN,
            last_ticket: Ticket(0),
            launches: 0,
            totals: Totals::default(),
        }
    }

    /// Takes one event and appends what has to be done to `out`.
    pub fn handle(&mut self, event: Event, now: Moment, out: &mut Vec<Command>) {
        match event {
            Event::Arrive { ticket, model, parallel } => self.arrive(ticket, model, parallel, now, out),
            Event::Leave { ticket } => {
                self.queue.remove(ticket);
            }
            Event::Release { lease } => {
                if let Some(engine) = self.engine(lease.generation) {
                    engine.leases.remove(&lease.ticket);
                }
            }
            Event::Loaded { generation } => self.loaded(generation, now),
            Event::LoadFailed { generation, reason } => self.load_failed(generation, &reason, now, out),
            Event::Condemn { generation } => {
                if self.engine(generation).is_some() {
                    self.stop(Urgency::Immediate, now, out);
                }
            }
            Event::Ended { generation } => self.ended(generation, now, out),
            Event::Drain => {
                self.draining = true;
                let waiters = self.queue.drain_where(|_| true);
                refuse(waiters, &Refusal::Draining, out);
            }
            Event::Tick => {}
        }
        self.expire(now, out);
        self.advance(now, out);
    }

    /// The next moment at which `Tick` is due, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.queue.iter().map(|waiter| self.deadline(waiter).0).min()
    }

    /// Whether the slot is empty and nobody waits: after `Drain`, everything is over.
    pub fn is_idle(&self) -> bool {
        self.slot.is_none() && self.queue.oldest().is_none()
    }

    /// How it stands at `now`.
    pub fn snapshot(&self, now: Moment) -> Snapshot {
        let mut queue: Vec<QueueSnapshot> = Vec::new();
        for waiter in self.queue.iter() {
            if let Some(entry) = queue.iter_mut().find(|entry| entry.model == waiter.model) {
                entry.waiting += 1;
            } else {
                let oldest_wait = now.saturating_since(waiter.since);
                queue.push(QueueSnapshot { model: waiter.model.clone(), waiting: 1, oldest_wait });
            }
        }
        let engines =
            self.slot.iter().map(|engine| engine.snapshot(self.turn_is_over(engine), now)).collect();
        Snapshot { engines, queue, totals: self.totals }
    }

    fn arrive(
        &mut self,
        ticket: Ticket,
        model: ModelName,
        parallel: u32,
        now: Moment,
        out: &mut Vec<Command>,
    ) {
        self.last_ticket = self.last_ticket.max(ticket);
        let limit = self.settings.queue;
        let refusal = if self.draining {
            Some(Refusal::Draining)
        } else if self.queue.waiting_for(&model) >= limit {
            Some(Refusal::QueueFull { limit })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            out.push(Command::Refuse { ticket, refusal });
            return;
        }
        // An engine keeps the parallelism it was started with; the first waiter decides for a new one.
        self.queue.push(Waiter { ticket, model, parallel: parallel.max(1), since: now });
    }

    fn loaded(&mut self, generation: Generation, now: Moment) {
        let gate = self.last_ticket;
        let Some(engine) = self.engine(generation).filter(|engine| engine.stage == Stage::Loading) else {
            return;
        };
        engine.stage = Stage::Resident;
        engine.gate = gate;
        self.totals.loads += 1;
        self.moved = now;
    }

    fn load_failed(&mut self, generation: Generation, reason: &str, now: Moment, out: &mut Vec<Command>) {
        let Some(engine) = self.slot.take_if(|engine| engine.generation == generation) else {
            return;
        };
        self.moved = now;
        // A load that was cancelled is not the model's fault, and who came for it since then still waits.
        if engine.stage == Stage::Loading {
            self.totals.failed_loads += 1;
            let waiters = self.queue.drain_where(|waiter| waiter.model == engine.model);
            refuse(waiters, &Refusal::LoadFailed { reason: reason.to_owned() }, out);
        }
    }

    fn ended(&mut self, generation: Generation, now: Moment, out: &mut Vec<Command>) {
        match self.engine(generation).map(|engine| engine.stage) {
            None => {}
            Some(Stage::Loading) => self.load_failed(generation, "the engine ended while loading", now, out),
            Some(stage) => {
                self.slot = None;
                self.moved = now;
                self.totals.crashes += u64::from(stage == Stage::Resident);
            }
        }
    }

    /// Refuses every waiter whose time is over.
    fn expire(&mut self, now: Moment, out: &mut Vec<Command>) {
        let mut waiters = std::mem::take(&mut self.queue);
        for waiter in waiters.drain_where(|waiter| self.deadline(waiter).0 <= now) {
            let refusal = self.deadline(&waiter).1;
            out.push(Command::Refuse { ticket: waiter.ticket, refusal });
        }
        self.queue = waiters;
    }

    /// When a waiter's time is over, and what it is told then.
    fn deadline(&self, waiter: &Waiter) -> (Moment, Refusal) {
        let Settings { stall, max_wait, .. } = self.settings;
        let too_long = (waiter.since.saturating_add(max_wait), Refusal::WaitedTooLong { after: max_wait });
        if self.slot.as_ref().is_some_and(|engine| engine.stage == Stage::Loading) {
            return too_long;
        }
        let stalled = (waiter.since.max(self.moved).saturating_add(stall), Refusal::Stalled { after: stall });
        if stalled.0 < too_long.0 { stalled } else { too_long }
    }

    /// Does whatever has become possible.
    fn advance(&mut self, now: Moment, out: &mut Vec<Command>) {
        match self.slot.as_ref().map(|engine| engine.stage) {
            None => self.launch_next(now, out),
            Some(Stage::Loading) => self.reconsider_load(now, out),
            Some(Stage::Resident) => self.serve(now, out),
            Some(Stage::Stopping) => {}
        }
    }

    fn launch_next(&mut self, now: Moment, out: &mut Vec<Command>) {
        let Some(oldest) = self.queue.oldest() else {
            return;
        };
        self.launches += 1;
        let generation = Generation(self.launches);
        let model = oldest.model.clone();
        out.push(Command::Launch { generation, model: model.clone() });
        self.slot = Some(Engine {
            model,
            generation,
            parallel: oldest.parallel,
            launched: now,
            leases: BTreeSet::new(),
            stage: Stage::Loading,
            gate: self.last_ticket,
        });
    }

    /// A load that nobody waits for is given up when another model is waited for, or at shutdown.
    fn reconsider_load(&mut self, now: Moment, out: &mut Vec<Command>) {
        let Some(engine) = &self.slot else { return };
        let wanted = self.queue.waiting_for(&engine.model) > 0;
        if !wanted && (self.draining || self.queue.has_rival(&engine.model)) {
            self.stop(Urgency::Immediate, now, out);
        }
    }

    /// Stops the engine, once. The end of a load lets the stall clocks run again, from here.
    fn stop(&mut self, urgency: Urgency, now: Moment, out: &mut Vec<Command>) {
        let Some(engine) = self.slot.as_mut().filter(|engine| engine.stage != Stage::Stopping) else {
            return;
        };
        if engine.stage == Stage::Loading {
            self.moved = now;
        }
        engine.stage = Stage::Stopping;
        out.push(Command::Stop { generation: engine.generation, urgency });
    }

    /// Grants what the turn allows; stops the engine when its turn is over and its last lease is back.
    fn serve(&mut self, now: Moment, out: &mut Vec<Command>) {
        let Some(engine) = &mut self.slot else { return };
        if !self.queue.has_rival(&engine.model) {
            engine.gate = self.last_ticket;
        }
        while engine.has_room() {
            let Some(waiter) = self.queue.take(&engine.model, engine.gate) else {
                break;
            };
            engine.leases.insert(waiter.ticket);
            self.moved = now;
            out.push(Command::Grant {
                lease: LeaseId { generation: engine.generation, ticket: waiter.ticket },
            });
        }
        let idle_and_over =
            self.slot.as_ref().is_some_and(|engine| engine.leases.is_empty() && self.turn_is_over(engine));
        if idle_and_over {
            self.stop(Urgency::Graceful, now, out);
            self.totals.swaps += u64::from(!self.draining);
        }
    }

    /// Whether nobody may use `engine` any more: at shutdown, or when another model waits and the turn's own
    /// waiters have all been served.
    fn turn_is_over(&self, engine: &Engine) -> bool {
        let in_turn = |waiter: &Waiter| waiter.model == engine.model && waiter.ticket <= engine.gate;
        self.draining || (self.queue.has_rival(&engine.model) && !self.queue.iter().any(in_turn))
    }

    fn engine(&mut self, generation: Generation) -> Option<&mut Engine> {
        self.slot.as_mut().filter(|engine| engine.generation == generation)
    }
}

fn refuse(waiters: Vec<Waiter>, refusal: &Refusal, out: &mut Vec<Command>) {
    out.extend(
        waiters.into_iter().map(|Waiter { ticket, .. }| Command::Refuse { ticket, refusal: refusal.clone() }),
    );
}
