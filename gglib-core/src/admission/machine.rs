//! The state machine itself: what each event changes, and in which order its consequences follow.

use std::collections::BTreeMap;
use std::time::Duration;

use super::command::{Command, Urgency};
use super::engine::{Engine, Held, Stage};
use super::event::Event;
use super::model::Model;
use super::queue::{Ticket, Waiter};
use super::snapshot::Totals;
use super::{Generation, LeaseId, Profile, Refusal, Settings};
use crate::model::ModelName;
use crate::moment::Moment;
use crate::retry::Outcome;

/// The queues and the engine slots.
#[derive(Debug)]
pub struct Admission {
    pub(super) settings: Settings,
    pub(super) models: BTreeMap<ModelName, Model>,
    /// Every engine whose memory is not back yet; few.
    pub(super) engines: Vec<Engine>,
    pub(super) draining: bool,
    /// When any queue last moved.
    pub(super) moved: Moment,
    pub(super) last_ticket: Ticket,
    pub(super) launches: u64,
    /// How often an engine has been made to stand aside.
    pub(super) pressures: u64,
    pub(super) totals: Totals,
}

impl Admission {
    /// A machine without engines and waiters, for the models of `profiles`.
    pub fn new(settings: Settings, profiles: BTreeMap<ModelName, Profile>) -> Self {
        let model = |(name, profile)| (name, Model::new(profile, settings.breaker));
        Self {
            settings,
            models: profiles.into_iter().map(model).collect(),
            engines: Vec::new(),
            draining: false,
            moved: Moment::ORIGIN,
            last_ticket: Ticket(0),
            launches: 0,
            pressures: 0,
            totals: Totals::default(),
        }
    }

    /// Takes one event and appends what has to be done to `out`.
    pub fn handle(&mut self, event: Event, now: Moment, out: &mut Vec<Command>) {
        match event {
            Event::Arrive { ticket, model } => self.arrive(ticket, &model, now, out),
            Event::Leave { ticket } => self.leave(ticket),
            Event::Release { lease } => self.release(lease, now),
            Event::Loaded { generation, footprint } => self.loaded(generation, footprint, now),
            Event::LoadFailed { generation, failure } => self.load_failed(generation, failure, now, out),
            Event::Condemn { generation } => self.condemn(generation, now, out),
            Event::Answered { generation } => self.answered(generation, now),
            Event::Outgrown { generation } => self.outgrown(generation, now),
            Event::Ended { generation } => self.ended(generation, now, out),
            Event::Estimated { model, footprint, measured } => self.estimated(&model, footprint, measured),
            Event::Unloadable { model, reason } => self.unloadable(&model, &reason, now, out),
            Event::Preload => self.preload(),
            Event::Configure { settings, profiles, renamed, unloadable } => {
                self.configure(settings, profiles, &renamed, out);
                self.refuse_unloadable(unloadable, now, out);
            }
            Event::Drain => self.drain(out),
            Event::Tick => {}
        }
        self.expire(now, out);
        self.advance(now, out);
    }

    /// Whether no engine is left and nobody waits: after `Drain`, everything is over.
    pub fn is_idle(&self) -> bool {
        self.engines.is_empty() && self.models.values().all(|model| model.queue.is_empty())
    }

    /// Whether whoever comes now for the model would be the one for whom it is to be launched: the moment to look at
    /// its file.
    pub fn is_launch_due(&self, name: &ModelName, now: Moment) -> bool {
        self.turn_away(name, 0, now).is_none()
            && self.models.get(name).is_some_and(|model| model.queue.is_empty())
            && !self.engine_of(name).is_some_and(Engine::stays)
    }

    /// Whether a newcomer behind `ahead` others, who are to come before it, is refused at once, and when it may come
    /// again.
    pub fn turn_away(
        &self,
        name: &ModelName,
        ahead: usize,
        now: Moment,
    ) -> Option<(Refusal, Option<Duration>)> {
        if self.draining {
            return Some((Refusal::Draining, None));
        }
        let Some(model) = self.models.get(name) else { return Some((Refusal::NotConfigured, None)) };
        let limit = self.settings.queue;
        let waiting = model.queue.len() + ahead;
        if waiting >= limit {
            // Not when the first place becomes free: a whole crowd is told the same, and that is one place for all.
            return Some((Refusal::QueueFull { limit }, self.estimate(name, waiting, Ticket::NEWCOMER, now)));
        }
        // Of the whole estimate only this part counts: turns may be shorter, and a long load has to be begun by somebody.
        let (before, bound) = (model.rounds(waiting).unwrap_or_default(), self.settings.max_wait);
        if before > bound {
            let refusal = Refusal::QueueTooLong { wait: before, limit: bound };
            return Some((refusal, self.estimate(name, waiting, Ticket::NEWCOMER, now)));
        }
        let retry_at = self.pause_ends(name, model, now)?;
        Some((model.breaker_open(), Some(retry_at.saturating_since(now))))
    }

    fn arrive(&mut self, ticket: Ticket, name: &ModelName, now: Moment, out: &mut Vec<Command>) {
        self.last_ticket = self.last_ticket.max(ticket);
        if let Some((refusal, retry_after)) = self.turn_away(name, 0, now) {
            out.push(Command::Refuse { ticket, refusal, retry_after });
        } else if let Some(model) = self.models.get_mut(name) {
            if model.queue.is_empty() {
                // Nobody is left of those who have waited for a first try.
                model.second_try = false;
            }
            model.queue.push(Waiter { ticket, since: now });
        }
    }

    fn leave(&mut self, ticket: Ticket) {
        for model in self.models.values_mut() {
            if model.queue.remove(ticket).is_some() {
                return;
            }
        }
    }

    fn release(&mut self, lease: LeaseId, now: Moment) {
        let Some(engine) = self.engines.iter_mut().find(|engine| engine.generation == lease.generation)
        else {
            return;
        };
        let Some(service) = engine.take_back(lease.ticket, now) else { return };
        // How long somebody held on to an engine that hangs, or was started in another way, says nothing about the next.
        if matches!(engine.stage, Stage::Resident { .. })
            && !engine.retiring
            && let Some(model) = self.models.get_mut(&engine.model)
        {
            model.measured.service.add(service);
        }
    }

    fn drain(&mut self, out: &mut Vec<Command>) {
        self.draining = true;
        for model in self.models.values_mut() {
            model.refuse_all(&Refusal::Draining, None, out);
        }
    }

    /// Does whatever has become possible.
    fn advance(&mut self, now: Moment, out: &mut Vec<Command>) {
        if self.draining {
            for engine in &mut self.engines {
                engine.retiring = true;
            }
        }
        self.serve(now, out);
        self.retire(now, out);
        if self.make_room(now, out) {
            self.serve(now, out);
        }
    }

    /// Grants what the turns allow.
    fn serve(&mut self, now: Moment, out: &mut Vec<Command>) {
        for engine in &mut self.engines {
            let Some(model) = self.models.get_mut(&engine.model) else { continue };
            while engine.has_room()
                && let Some(Waiter { ticket, .. }) = model.queue.oldest()
                && engine.serves(ticket, now)
            {
                model.queue.pop();
                model.moved = now;
                self.moved = now;
                engine.leases.push(Held { ticket, since: now });
                out.push(Command::Grant { lease: LeaseId { generation: engine.generation, ticket } });
            }
        }
    }

    /// Stops who has to go, has outgrown its room, or has not been used for its `ttl`.
    fn retire(&mut self, now: Moment, out: &mut Vec<Command>) {
        for index in 0..self.engines.len() {
            let engine = &self.engines[index];
            let outlived = engine.outlives().is_some_and(|end| end <= now);
            let urgency = match engine.stage {
                Stage::Loading if engine.retiring => Urgency::Immediate,
                Stage::Resident { .. }
                    if engine.is_idle() && (engine.retiring || outlived || engine.outgrown) =>
                {
                    Urgency::Graceful
                }
                _ => continue,
            };
            self.totals.recycles += u64::from(engine.outgrown);
            self.stop(engine.generation, urgency, now, out);
        }
    }

    /// Stops the engine, once. What is left of its model's queue lines up behind the others, unless it was only to be
    /// launched anew.
    pub(super) fn stop(
        &mut self,
        generation: Generation,
        urgency: Urgency,
        now: Moment,
        out: &mut Vec<Command>,
    ) {
        let running = |engine: &&mut Engine| engine.generation == generation && !engine.is_stopping();
        let Some(engine) = self.engines.iter_mut().find(running) else { return };
        let model = self.models.get_mut(&engine.model);
        // Somebody is about to get its room; and the end of a load lets the stall clocks run again, from here.
        self.moved = now;
        if engine.is_loading() {
            self.totals.cancelled_loads += 1;
        }
        engine.stage = Stage::Stopping { since: now };
        if let Some(model) = model {
            if !engine.retiring {
                model.behind = self.last_ticket;
            }
            if let Some(permit) = engine.permit.take() {
                model.breaker.settle(permit, Outcome::Neutral, now);
            }
        }
        out.push(Command::Stop { generation, urgency });
    }

    /// Until when the model is left alone, if it is. During the probe it is not: whoever comes then waits for its outcome.
    pub(super) fn pause_ends(&self, name: &ModelName, model: &Model, now: Moment) -> Option<Moment> {
        let is_there = self.engine_of(name).is_some_and(|engine| !engine.is_stopping());
        model.breaker.retry_at(now).filter(|_| !is_there)
    }

    /// The engine of the model, whatever its state; there is at most one.
    pub(super) fn engine_of(&self, name: &ModelName) -> Option<&Engine> {
        self.engines.iter().find(|engine| engine.model == *name)
    }
}
