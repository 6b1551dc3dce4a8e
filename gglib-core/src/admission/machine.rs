//! The state machine itself.

use std::collections::BTreeSet;

use super::queue::{Queue, Ticket, Waiter};
use super::snapshot::{EngineSnapshot, EngineState, QueueSnapshot, Snapshot, Totals};
use super::{Generation, LeaseId, Refusal, Settings};
use crate::model::ModelName;
use crate::moment::Moment;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request wants the model; its engine serves `parallel` requests at once (at least 1).
    Arrive {
        /// The request's place; tickets rise in the order of arrival.
        ticket: Ticket,
        /// What it wants.
        model: ModelName,
        /// What the model's engine is, or would be, started with.
        parallel: u32,
    },
    /// A waiting request's client has gone. Unknown tickets are ignored.
    Leave {
        /// The request's place.
        ticket: Ticket,
    },
    /// A lease was given back. Leases of other generations are ignored.
    Release {
        /// The lease.
        lease: LeaseId,
    },
    /// A launch became ready.
    Loaded {
        /// The launch.
        generation: Generation,
    },
    /// A launch failed; its process is gone.
    LoadFailed {
        /// The launch.
        generation: Generation,
        /// What happened, with the engine's last words.
        reason: String,
    },
    /// The engine was found dead or unresponsive: it must go, leases or not.
    Condemn {
        /// The launch.
        generation: Generation,
    },
    /// The engine's process is gone, asked to or by itself.
    Ended {
        /// The launch.
        generation: Generation,
    },
    /// gglib shuts down: nobody is admitted any more.
    Drain,
    /// A deadline may have passed.
    Tick,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Launch an engine; answer with `Loaded` or `LoadFailed`.
    Launch {
        /// The launch's number.
        generation: Generation,
        /// What to load.
        model: ModelName,
    },
    /// Stop the engine or cancel its load; answer with `Ended` (or `LoadFailed`, if that came first).
    Stop {
        /// The launch.
        generation: Generation,
        /// Whether the engine gets the time to end by itself.
        urgency: Urgency,
    },
    /// The request has its engine.
    Grant {
        /// To be given back with `Release`.
        lease: LeaseId,
    },
    /// The request's wait is over without one.
    Refuse {
        /// The request's place.
        ticket: Ticket,
        /// Why.
        refusal: Refusal,
    },
}

/// How an engine is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It is ready and idle: ask it to end, kill it only after the grace.
    Graceful,
    /// It is dead, hung or still loading: kill it.
    Immediate,
}

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

/// What occupies the slot.
#[derive(Clone, Debug)]
struct Engine {
    model: ModelName,
    generation: Generation,
    parallel: u32,
    launched: Moment,
    leases: BTreeSet<Ticket>,
    stage: Stage,
    /// The turn serves waiters up to this ticket while another model waits.
    gate: Ticket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Loading,
    Resident,
    Stopping,
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
                if let Some(engine) = self.engine(generation) {
                    engine.stop(Urgency::Immediate, out);
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
            Some(Stage::Loading) => self.reconsider_load(out),
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
    fn reconsider_load(&mut self, out: &mut Vec<Command>) {
        let Some(engine) = &mut self.slot else { return };
        let wanted = self.queue.waiting_for(&engine.model) > 0;
        if !wanted && (self.draining || self.queue.has_rival(&engine.model)) {
            engine.stop(Urgency::Immediate, out);
        }
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
        let over = self.slot.as_ref().is_some_and(|engine| self.turn_is_over(engine));
        if let Some(engine) = self.slot.as_mut().filter(|engine| engine.leases.is_empty() && over) {
            engine.stop(Urgency::Graceful, out);
            if !self.draining {
                self.totals.swaps += 1;
            }
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

impl Engine {
    fn has_room(&self) -> bool {
        self.leases.len() < self.parallel as usize
    }

    fn stop(&mut self, urgency: Urgency, out: &mut Vec<Command>) {
        if self.stage != Stage::Stopping {
            self.stage = Stage::Stopping;
            out.push(Command::Stop { generation: self.generation, urgency });
        }
    }

    fn snapshot(&self, turn_is_over: bool, now: Moment) -> EngineSnapshot {
        let state = match self.stage {
            Stage::Loading => EngineState::Loading,
            Stage::Resident if turn_is_over => EngineState::Draining,
            Stage::Resident => EngineState::Resident,
            Stage::Stopping => EngineState::Stopping,
        };
        EngineSnapshot {
            model: self.model.clone(),
            generation: self.generation,
            state,
            in_flight: self.leases.len(),
            parallel: self.parallel,
            uptime: now.saturating_since(self.launched),
            pid: None,
            address: None,
        }
    }
}

fn refuse(waiters: Vec<Waiter>, refusal: &Refusal, out: &mut Vec<Command>) {
    out.extend(
        waiters.into_iter().map(|Waiter { ticket, .. }| Command::Refuse { ticket, refusal: refusal.clone() }),
    );
}
