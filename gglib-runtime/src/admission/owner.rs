//! The task that owns the machine.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gglib_core::admission::{
    Admission, Command, Event, Generation, LeaseId, LoadFailure, Outlook, Profile, Refusal, Settings,
    Snapshot, Ticket, Urgency,
};
use gglib_core::model::{Catalog, ModelName, ModelSpec};
use gglib_core::moment::Moment;
use gglib_core::ports::Refused;
use gglib_core::retry::RetryObserver;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::breakers::Breakers;
use super::gate::Gate;
use super::lease::EngineLease;
use super::report::Report;
use crate::engine::{Address, Engine, EngineEvent, LaunchError, Launcher, Survey};

mod surveys;

/// What the owner is told.
pub(super) enum Message {
    Arrive {
        ticket: Ticket,
        model: ModelName,
        reply: Reply,
    },
    Leave(Ticket),
    Outlook {
        ticket: Ticket,
        reply: oneshot::Sender<Option<Outlook>>,
    },
    Release(LeaseId),
    Answered(Generation),
    Condemn(Generation),
    /// The model's file, as `spec` names it, was looked at, because requests stand at the gate or because we have just
    /// begun.
    Surveyed {
        model: ModelName,
        spec: ModelSpec,
        survey: Survey,
        occasion: Occasion,
    },
    Preload,
    Observe(Arc<dyn RetryObserver>),
    Engine(EngineEvent),
    Snapshot(oneshot::Sender<Snapshot>),
    /// The configuration has changed; `done` is dropped when the change is taken over.
    Configure {
        catalog: Catalog,
        settings: Settings,
        done: oneshot::Sender<()>,
    },
    /// The files of the models that are new or other than before have been looked at: now the change counts.
    TakeOver {
        catalog: Catalog,
        settings: Settings,
        surveys: Vec<(ModelName, Survey)>,
        done: oneshot::Sender<()>,
    },
    Drain,
    Abandon,
}

/// Why a model's file was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    Start,
    Launch,
}

/// Where a waiting request hears of its end.
pub(super) type Reply = oneshot::Sender<Result<EngineLease, Refused>>;

pub(super) struct Owner {
    machine: Admission,
    launcher: Arc<Launcher>,
    catalog: Catalog,
    /// For engines and leases to talk back.
    inbox: mpsc::UnboundedSender<Message>,
    waiting: HashMap<Ticket, Reply>,
    gate: Gate,
    breakers: Breakers,
    engines: HashMap<Generation, Held>,
    origin: Instant,
    draining: bool,
}

/// What is known of a launch.
struct Held {
    stop: watch::Sender<Option<Urgency>>,
    /// Its pid and address, once it is a process.
    process: Option<(u32, Address)>,
    /// Once it is ready.
    engine: Option<Arc<Engine>>,
}

impl Owner {
    pub(super) fn new(
        launcher: Arc<Launcher>,
        catalog: Catalog,
        settings: Settings,
        inbox: mpsc::UnboundedSender<Message>,
    ) -> Self {
        Self {
            machine: Admission::new(settings, profiles(&catalog)),
            launcher,
            catalog,
            inbox,
            waiting: HashMap::new(),
            gate: Gate::default(),
            breakers: Breakers::default(),
            engines: HashMap::new(),
            origin: Instant::now(),
            draining: false,
        }
    }

    /// Serves messages until a drain is complete.
    pub(super) async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        self.survey_all();
        while !(self.draining && self.machine.is_idle() && self.engines.is_empty()) {
            let message = tokio::select! {
                message = messages.recv() => message,
                () = sleep_until(self.next_tick()) => None,
            };
            match message {
                Some(message) => self.take(message),
                None => self.tell(Event::Tick),
            }
        }
    }

    /// The machine's next deadline; far away when there is none, since a new one comes with a message.
    fn next_tick(&self) -> Instant {
        const FAR: Duration = Duration::from_secs(24 * 3600);
        self.machine.next_deadline().map_or_else(
            || Instant::now() + FAR,
            |deadline| self.origin + Duration::from_nanos(deadline.as_nanos()),
        )
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Arrive { ticket, model, reply } => {
                let Ok((model, _)) = self.catalog.resolve(model.as_str()) else {
                    let _ = reply.send(Err(Refusal::NotConfigured.into()));
                    return;
                };
                let model = model.clone();
                self.waiting.insert(ticket, reply);
                self.arrive(ticket, model);
            }
            Message::Leave(ticket) => {
                self.waiting.remove(&ticket);
                self.gate.leave(ticket);
                self.tell(Event::Leave { ticket });
            }
            Message::Outlook { ticket, reply } => {
                let now = self.now();
                let at_the_gate = || self.gate.outlook(ticket, &self.machine, now);
                let _ = reply.send(self.machine.outlook(ticket, now).or_else(at_the_gate));
            }
            Message::Release(lease) => self.tell(Event::Release { lease }),
            Message::Answered(generation) => self.tell(Event::Answered { generation }),
            Message::Condemn(generation) => self.tell(Event::Condemn { generation }),
            Message::Engine(event) => self.take_engine_event(event),
            Message::Surveyed { model, spec, survey, occasion } => {
                self.take_survey(&model, &spec, survey, occasion);
            }
            Message::Preload => self.tell(Event::Preload),
            Message::Observe(observer) => self.breakers.observer = Some(observer),
            Message::Snapshot(reply) => {
                let _ = reply.send(self.snapshot());
            }
            Message::Configure { catalog, settings, done } => self.survey_changed(catalog, settings, done),
            Message::TakeOver { catalog, settings, surveys, done } => {
                self.take_over(catalog, settings, surveys);
                drop(done);
            }
            Message::Drain => {
                self.draining = true;
                self.launcher.launch_no_more();
                self.tell(Event::Drain);
            }
            Message::Abandon => {
                for generation in self.engines.keys().copied().collect::<Vec<_>>() {
                    self.tell(Event::Condemn { generation });
                    // Also one that is being stopped already, and given time.
                    self.stop(generation, Urgency::Immediate);
                }
            }
        }
    }

    /// Lets a request into the queue, or to the gate.
    fn arrive(&mut self, ticket: Ticket, model: ModelName) {
        let now = self.now();
        let ahead = self.gate.count(&model);
        if ahead > 0
            && let Some((refusal, retry_after)) = self.machine.turn_away(&model, ahead, now)
        {
            self.carry_out(Command::Refuse { ticket, refusal, retry_after });
        } else if ahead > 0 || self.machine.is_launch_due(&model, now) {
            // Whoever comes later must not enter the queue before those who stand at the gate.
            self.gate.join(ticket, model, now);
            self.survey_next();
        } else {
            self.tell(Event::Arrive { ticket, model });
        }
    }

    fn take_engine_event(&mut self, event: EngineEvent) {
        match event {
            EngineEvent::Started { generation, pid, address } => {
                if let Some(held) = self.engines.get_mut(&generation) {
                    held.process = Some((pid, address));
                }
            }
            EngineEvent::Loaded { engine, footprint } => {
                let generation = engine.generation();
                if let Some(held) = self.engines.get_mut(&generation) {
                    held.engine = Some(engine);
                }
                self.tell(Event::Loaded { generation, footprint });
            }
            EngineEvent::LoadFailed(generation, error) => {
                self.engines.remove(&generation);
                let out_of_memory = matches!(error, LaunchError::Ended { is_of_memory: true, .. });
                let failure = LoadFailure { reason: error.to_string().into(), out_of_memory };
                self.tell(Event::LoadFailed { generation, failure });
            }
            EngineEvent::Outgrown(generation) => self.tell(Event::Outgrown { generation }),
            EngineEvent::Ended(generation) => {
                self.engines.remove(&generation);
                self.tell(Event::Ended { generation });
            }
        }
    }

    fn tell(&mut self, event: Event) {
        let now = self.now();
        let mut commands = Vec::new();
        let may_change_a_breaker = matches!(
            event,
            Event::Loaded { .. }
                | Event::LoadFailed { .. }
                | Event::Condemn { .. }
                | Event::Answered { .. }
                | Event::Ended { .. }
                | Event::Unloadable { .. }
                | Event::Configure { .. }
        );
        self.machine.handle(event, now, &mut commands);
        if may_change_a_breaker || commands.iter().any(|command| matches!(command, Command::Launch { .. })) {
            self.breakers.look(&self.machine.snapshot(now).breakers, now);
        }
        for command in commands {
            self.carry_out(command);
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Launch { generation, model } => self.launch(generation, model),
            Command::Stop { generation, urgency } => self.stop(generation, urgency),
            Command::Grant { lease } => self.grant(lease),
            Command::Refuse { ticket, refusal, retry_after } => {
                if let Some(reply) = self.waiting.remove(&ticket) {
                    let _ = reply.send(Err(Refused { refusal, retry_after }));
                }
            }
        }
    }

    fn launch(&mut self, generation: Generation, model: ModelName) {
        let (stop, stopped) = watch::channel(None);
        self.engines.insert(generation, Held { stop, process: None, engine: None });
        let report = Report::new(generation, self.inbox.clone());
        let spec = self.spec(&model);
        let launcher = Arc::clone(&self.launcher);
        tokio::spawn(async move {
            launcher.launch(generation, model, spec, stopped, |event| report.tell(event)).await;
        });
    }

    fn spec(&self, model: &ModelName) -> ModelSpec {
        self.configured(model).cloned().expect("only models of the catalog are admitted")
    }

    /// What the model is started with now, if it is configured by this very name.
    fn configured(&self, model: &ModelName) -> Option<&ModelSpec> {
        self.catalog.resolve(model.as_str()).ok().filter(|(name, _)| *name == model).map(|(_, spec)| spec)
    }

    fn stop(&self, generation: Generation, urgency: Urgency) {
        if let Some(held) = self.engines.get(&generation) {
            held.stop.send_replace(Some(urgency));
        }
    }

    fn grant(&mut self, id: LeaseId) {
        let engine = self.engines.get(&id.generation).and_then(|held| held.engine.clone());
        let lease = engine.map(|engine| EngineLease { id, engine, owner: self.inbox.clone() });
        match (self.waiting.remove(&id.ticket), lease) {
            // A reply that nobody takes drops the lease, which gives it back.
            (Some(reply), Some(lease)) => drop(reply.send(Ok(lease))),
            (None, Some(lease)) => drop(lease),
            (_, None) => {
                let _ = self.inbox.send(Message::Release(id));
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let now = self.now();
        let mut snapshot = self.machine.snapshot(now);
        // Nobody is in the queue of a model for which somebody stands at the gate.
        snapshot.queue.extend(self.gate.queues(&self.machine, now));
        snapshot.queue.sort_by_key(|queue| Reverse(queue.oldest_wait));
        for engine in &mut snapshot.engines {
            if let Some((pid, address)) =
                self.engines.get(&engine.generation).and_then(|held| held.process.as_ref())
            {
                engine.pid = Some(*pid);
                engine.address = Some(address.to_string());
            }
        }
        snapshot
    }

    fn now(&self) -> Moment {
        let nanos = self.origin.elapsed().as_nanos();
        Moment::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

fn profiles(catalog: &Catalog) -> BTreeMap<ModelName, Profile> {
    catalog.iter().map(|(name, spec)| (name.clone(), Profile::of(spec))).collect()
}
