//! The rules of others, reduced to what sets them apart; everything else they have in common, and none of them fails.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gglib_core::admission::{Command, Event, Generation, LeaseId, Refusal, Settings, Ticket, Urgency};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

use super::workload::Scene;
use crate::simulate::driven::Scheduler;

/// Who goes before whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precedence {
    /// Whoever came first.
    Arrival,
    /// Whoever finds a free place on arrival; else whoever came first.
    FreePlace,
    /// Whoever wants a resident model; else whoever came first.
    Resident,
}

/// One queue for all, bounded by age alone. Room for a model without an engine is made by stopping the engine that has
/// been idle for longest, whatever that costs.
#[derive(Debug)]
pub(super) struct Rival {
    precedence: Precedence,
    slots: usize,
    max_wait: Duration,
    /// How many requests each model's engine serves at once.
    parallel: BTreeMap<ModelName, usize>,
    engines: Vec<Engine>,
    queue: VecDeque<Waiter>,
    launches: u64,
}

#[derive(Debug)]
struct Engine {
    model: ModelName,
    generation: Generation,
    state: State,
    leases: usize,
    /// Since when nobody uses it, if nobody does.
    idle_since: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Loading,
    Resident,
    Stopping,
}

#[derive(Clone, Debug)]
struct Waiter {
    ticket: Ticket,
    model: ModelName,
    since: Moment,
}

impl Rival {
    pub(super) fn new(precedence: Precedence, settings: Settings, scene: &Scene) -> Self {
        let parallel = scene.models.iter().map(|model| (model.name(), model.parallel as usize));
        Self {
            precedence,
            slots: settings.max_resident,
            max_wait: settings.max_wait,
            parallel: parallel.collect(),
            engines: Vec::new(),
            queue: VecDeque::new(),
            launches: 0,
        }
    }

    /// Serves whoever may be served now.
    fn serve(&mut self, out: &mut Vec<Command>) {
        let queue = std::mem::take(&mut self.queue);
        let mut held_up = false;
        for waiter in queue {
            let granted = !held_up && self.grant(&waiter, out);
            if !granted {
                held_up |= self.precedence != Precedence::Resident;
                self.queue.push_back(waiter);
            }
        }
    }

    /// Gives the waiter a place, if its model's engine has one.
    fn grant(&mut self, waiter: &Waiter, out: &mut Vec<Command>) -> bool {
        let places = self.parallel[&waiter.model];
        let free = |engine: &&mut Engine| {
            engine.model == waiter.model && engine.state == State::Resident && engine.leases < places
        };
        let Some(engine) = self.engines.iter_mut().find(free) else { return false };
        engine.leases += 1;
        out.push(Command::Grant { lease: LeaseId { generation: engine.generation, ticket: waiter.ticket } });
        true
    }

    /// Launches the model of the first waiter that has no engine, or makes room for it.
    fn make_room(&mut self, out: &mut Vec<Command>) {
        let considered = if self.precedence == Precedence::Resident { self.queue.len() } else { 1 };
        for index in 0..considered.min(self.queue.len()) {
            let model = self.queue[index].model.clone();
            let comes = |engine: &Engine| engine.model == model && engine.state != State::Stopping;
            if self.engines.iter().any(comes) {
                continue;
            }
            if self.engines.len() < self.slots {
                self.launch(model, out);
                continue;
            }
            if self.engines.iter().all(|engine| engine.state != State::Stopping) {
                self.stop_idle(out);
            }
            return;
        }
    }

    fn launch(&mut self, model: ModelName, out: &mut Vec<Command>) {
        self.launches += 1;
        let generation = Generation(self.launches);
        out.push(Command::Launch { generation, model: model.clone() });
        self.engines.push(Engine {
            model,
            generation,
            state: State::Loading,
            leases: 0,
            idle_since: Moment::ORIGIN,
        });
    }

    /// Stops the engine that has been idle for longest, if one is.
    fn stop_idle(&mut self, out: &mut Vec<Command>) {
        let idle = |engine: &&mut Engine| engine.state == State::Resident && engine.leases == 0;
        let idle = self.engines.iter_mut().filter(idle).min_by_key(|engine| engine.idle_since);
        if let Some(engine) = idle {
            engine.state = State::Stopping;
            out.push(Command::Stop { generation: engine.generation, urgency: Urgency::Graceful });
        }
    }

    fn expire(&mut self, now: Moment, out: &mut Vec<Command>) {
        while let Some(Waiter { ticket, since, .. }) = self.queue.front()
            && since.saturating_add(self.max_wait) <= now
        {
            let refusal = Refusal::WaitedTooLong { after: self.max_wait };
            out.push(Command::Refuse { ticket: *ticket, refusal, retry_after: None });
            self.queue.pop_front();
        }
    }

    fn engine(&mut self, generation: Generation) -> Option<&mut Engine> {
        self.engines.iter_mut().find(|engine| engine.generation == generation)
    }
}

impl Scheduler for Rival {
    fn handle(&mut self, event: Event, now: Moment, out: &mut Vec<Command>) {
        match event {
            Event::Arrive { ticket, model } => {
                let waiter = Waiter { ticket, model, since: now };
                if self.precedence != Precedence::FreePlace || !self.grant(&waiter, out) {
                    self.queue.push_back(waiter);
                }
            }
            Event::Loaded { generation, .. } => {
                if let Some(engine) = self.engine(generation) {
                    engine.state = State::Resident;
                    engine.idle_since = now;
                }
            }
            Event::Release { lease } => {
                if let Some(engine) = self.engine(lease.generation) {
                    engine.leases -= 1;
                    engine.idle_since = now;
                }
            }
            Event::Ended { generation } => self.engines.retain(|engine| engine.generation != generation),
            Event::Tick => {}
            other => unreachable!("nothing like {other:?} is simulated"),
        }
        self.expire(now, out);
        self.serve(out);
        self.make_room(out);
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.queue.front().map(|waiter| waiter.since.saturating_add(self.max_wait))
    }
}
