//! The machine with a clock, spoken to in short words; answers are rendered so that tests read as tables.

use std::time::Duration;

use gglib_core::admission::{
    Admission, Command, EngineState, Event, Generation, LeaseId, LoadFailure, Outlook, Profile, Refusal,
    Settings, Snapshot, Ticket, Totals, Urgency,
};
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

/// One engine at a time; the shipped bounds, but a queue of 8.
pub(crate) fn settings() -> Settings {
    Settings { queue: 8, ..Settings::default() }
}

pub(crate) fn gib(ram: u64) -> Memory {
    Memory { ram: ram << 30, vram: 0 }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A model that takes so many GiB.
pub(crate) fn sized(ram: u64) -> Profile {
    Profile { footprint: Some(gib(ram)), ..Profile::default() }
}

pub(crate) struct Desk {
    pub(crate) machine: Admission,
    pub(crate) now: Moment,
    tickets: u64,
}

impl Desk {
    /// Three models `a`, `b` and `c`, of which nothing is known.
    pub(crate) fn new() -> Self {
        Self::with(settings(), &[])
    }

    /// The three models, and those of `profiles` instead or besides.
    pub(crate) fn with(settings: Settings, profiles: &[(&str, Profile)]) -> Self {
        let mut all: std::collections::BTreeMap<_, _> =
            ["a", "b", "c"].map(|name| (ModelName::new(name), Profile::default())).into();
        all.extend(profiles.iter().map(|(name, profile)| (ModelName::new(*name), profile.clone())));
        Self { machine: Admission::new(settings, all), now: Moment::ORIGIN, tickets: 0 }
    }

    pub(crate) fn tell(&mut self, event: Event) -> String {
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        out.iter().map(render).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn arrive(&mut self, model: &str) -> String {
        self.tickets += 1;
        self.tell(Event::Arrive { ticket: Ticket(self.tickets), model: ModelName::new(model) })
    }

    pub(crate) fn leave(&mut self, ticket: u64) -> String {
        self.tell(Event::Leave { ticket: Ticket(ticket) })
    }

    pub(crate) fn loaded(&mut self, generation: u64) -> String {
        self.tell(Event::Loaded { generation: Generation(generation), footprint: None })
    }

    pub(crate) fn measured(&mut self, generation: u64, footprint: Memory) -> String {
        self.tell(Event::Loaded { generation: Generation(generation), footprint: Some(footprint) })
    }

    pub(crate) fn load_failed(&mut self, generation: u64) -> String {
        self.fail(generation, false)
    }

    pub(crate) fn out_of_memory(&mut self, generation: u64) -> String {
        self.fail(generation, true)
    }

    fn fail(&mut self, generation: u64, out_of_memory: bool) -> String {
        let failure = LoadFailure { reason: "broken".into(), out_of_memory };
        self.tell(Event::LoadFailed { generation: Generation(generation), failure })
    }

    pub(crate) fn answered(&mut self, generation: u64) -> String {
        self.tell(Event::Answered { generation: Generation(generation) })
    }

    pub(crate) fn condemn(&mut self, generation: u64) -> String {
        self.tell(Event::Condemn { generation: Generation(generation) })
    }

    pub(crate) fn ended(&mut self, generation: u64) -> String {
        self.tell(Event::Ended { generation: Generation(generation) })
    }

    pub(crate) fn release(&mut self, generation: u64, ticket: u64) -> String {
        let lease = LeaseId { generation: Generation(generation), ticket: Ticket(ticket) };
        self.tell(Event::Release { lease })
    }

    /// The clock goes on, and the machine hears of it.
    pub(crate) fn after(&mut self, seconds: u64) -> String {
        self.later(seconds);
        self.tell(Event::Tick)
    }

    /// The clock goes on.
    pub(crate) fn later(&mut self, seconds: u64) {
        self.now = self.now.saturating_add(Duration::from_secs(seconds));
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.machine.snapshot(self.now)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.snapshot().totals
    }

    /// The state of the model's engine.
    pub(crate) fn state(&self, model: &str) -> Option<EngineState> {
        let engines = self.snapshot().engines;
        engines.iter().find(|engine| engine.model.as_str() == model).map(|engine| engine.state)
    }

    pub(crate) fn outlook(&self, ticket: u64) -> Option<Outlook> {
        self.machine.outlook(Ticket(ticket), self.now)
    }

    pub(crate) fn outlook_for(&self, model: &str) -> Option<Outlook> {
        self.machine.outlook_for(&ModelName::new(model), 0, self.now)
    }
}

fn render(command: &Command) -> String {
    match command {
        Command::Launch { generation, model } => format!("launch {model} as g{}", generation.0),
        Command::Stop { generation, urgency: Urgency::Graceful } => format!("stop g{}", generation.0),
        Command::Stop { generation, urgency: Urgency::Immediate } => format!("kill g{}", generation.0),
        Command::Grant { lease } => format!("grant t{} on g{}", lease.ticket.0, lease.generation.0),
        Command::Refuse { ticket, refusal, retry_after } => {
            let why = match refusal {
                Refusal::QueueFull { .. } => "queue full",
                Refusal::QueueTooLong { .. } => "queue too long",
                Refusal::LoadFailed { .. } => "load failed",
                Refusal::BreakerOpen { .. } => "breaker open",
                Refusal::InsufficientMemory { .. } => "insufficient memory",
                Refusal::PinnedOut => "pinned out",
                Refusal::NotConfigured => "not configured",
                Refusal::Renamed => "renamed",
                Refusal::Stalled { .. } => "stalled",
                Refusal::WaitedTooLong { .. } => "waited too long",
                Refusal::Draining => "draining",
            };
            let again = retry_after.map_or_else(String::new, |after| format!(" (again in {after:?})"));
            format!("refuse t{}: {why}{again}", ticket.0)
        }
    }
}
