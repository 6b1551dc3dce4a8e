//! Clients that collide on the start-up of one model.
//!
//! All want an answer of a model that is not loaded. The server is gglib's own [`Admission`] machine, which launches
//! one engine, lets so many wait, and refuses the others with the hint of [`hint::advertise`]. Each client is a process
//! of its own: a [`RetrySequence`] with its own budget and breaker. Only the engine and the network are modelled here.

use std::time::Duration;

use gglib_core::admission::{Admission, Command, Event, Generation, LeaseId, Profile, Ticket};
use gglib_core::api::error::ErrorCode;
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;
use gglib_core::retry::{
    BreakerSettings, BudgetSettings, Cause, CircuitBreaker, Failure, GiveUpReason, Next, RetriesAbove,
    RetryBudget, RetryRules, RetrySequence, Step, Target, hint,
};

pub use gglib_core::admission::Settings as Bounds;

use super::agenda::Agenda;
use super::driven::Driven;
use super::random::Random;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Clients, which all begin at the same moment.
    pub clients: u32,
    /// From the launch of the engine until it is ready.
    pub load: Duration,
    /// For one answer.
    pub service: Duration,
    /// Answers at once.
    pub parallel: u32,
    /// How the server bounds its waiting.
    pub bounds: Bounds,
    /// What the server says when it refuses.
    pub hint: Hint,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// What a refusal says about the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hint {
    /// When there will be room for this client: [`hint::Places`].
    Place,
    /// When all who wait will have been served, as the machine estimates it; the same for all.
    Estimate,
    /// What a server says that cannot tell.
    Default,
    /// Nothing.
    None,
}

impl Hint {
    /// Every hint.
    pub const ALL: [Self; 4] = [Self::Place, Self::Estimate, Self::Default, Self::None];

    /// The hint as a name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Estimate => "estimate",
            Self::Default => "default",
            Self::None => "none",
        }
    }
}

/// What happened; times are since the common beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When each call arrived at the server, in order.
    pub calls: Vec<Duration>,
    /// When each client that got an answer had it, in order.
    pub answered: Vec<Duration>,
    /// When and why each of the others gave up, in order.
    pub gave_up: Vec<(Duration, GiveUpReason)>,
}

/// Simulates clients that retry by `rules`, until each has its answer or has given up.
pub fn run(rules: &RetryRules, settings: Settings) -> Outcome {
    let model = ModelName::new("model");
    let (admission, began) = experienced(&model, settings);
    let mut simulation = Simulation {
        rules,
        settings,
        random: Random::new(settings.seed),
        agenda: Agenda::new(),
        admission: Driven::new(Box::new(admission)),
        places: hint::Places::default(),
        model,
        clients: Vec::new(),
        tickets: Vec::new(),
        began,
        ready: began.saturating_add(settings.load),
        outcome: Outcome::default(),
    };
    simulation.begin();
    while let Some((now, happening)) = simulation.agenda.next() {
        simulation.happen(now, happening);
    }
    simulation.outcome
}

/// A server that has loaded the model and answered once, so that it can tell how long both take; and when that was over.
fn experienced(model: &ModelName, settings: Settings) -> (Admission, Moment) {
    let profile = Profile { parallel: settings.parallel, ..Profile::default() };
    let mut admission = Admission::new(settings.bounds, [(model.clone(), profile)].into());
    let (ticket, generation) = (Ticket(0), Generation(1));
    let loaded = Moment::ORIGIN.saturating_add(settings.load);
    let answered = loaded.saturating_add(settings.service);
    for (event, now) in [
        (Event::Arrive { ticket, model: model.clone() }, Moment::ORIGIN),
        (Event::Loaded { generation, footprint: None }, loaded),
        (Event::Release { lease: LeaseId { generation, ticket } }, answered),
        (Event::Answered { generation }, answered),
        (Event::Condemn { generation }, answered),
        (Event::Ended { generation }, answered),
    ] {
        // What it commands is what the next event answers to.
        admission.handle(event, now, &mut Vec::new());
    }
    (admission, answered)
}

/// What happens next; a client is named by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A call, at the server.
    Call(usize),
    /// A refusal, at the client.
    Refused(usize, ErrorCode, Option<Duration>),
    /// An answer, at the client.
    Answered(usize),
    /// The end of a client's sleep.
    Wake(usize),
    Loaded(Generation),
    Ended(Generation),
    /// The end of an answer, at the engine.
    Served(LeaseId),
    Tick,
}

struct Client<'r> {
    /// `None` at the end.
    sequence: Option<RetrySequence<'r>>,
    target: Target,
}

struct Simulation<'r> {
    rules: &'r RetryRules,
    settings: Settings,
    random: Random,
    agenda: Agenda<Happening>,
    admission: Driven,
    places: hint::Places,
    model: ModelName,
    clients: Vec<Client<'r>>,
    /// Whose each ticket is.
    tickets: Vec<usize>,
    /// When the clients began.
    began: Moment,
    /// When the engine is ready, as far as is known.
    ready: Moment,
    outcome: Outcome,
}

impl Simulation<'_> {
    fn begin(&mut self) {
        for client in 0..self.settings.clients as usize {
            let policy = &self.rules.policy;
            let mut target = Target {
                budget: Some(RetryBudget::new(BudgetSettings::for_policy(policy))),
                breaker: Some(CircuitBreaker::new(BreakerSettings::TARGET)),
            };
            let (sequence, step) =
                RetrySequence::begin(self.rules, RetriesAbove::NONE, self.began, &mut target);
            self.clients.push(Client { sequence: Some(sequence), target });
            self.follow(client, step, self.began);
        }
    }

    fn happen(&mut self, now: Moment, happening: Happening) {
        match happening {
            Happening::Call(client) => {
                self.outcome.calls.push(now.saturating_since(self.began));
                self.tickets.push(client);
                let ticket = Ticket(self.tickets.len() as u64);
                self.admit(now, Event::Arrive { ticket, model: self.model.clone() });
            }
            Happening::Refused(client, code, hint) => {
                let failure =
                    Failure { code: Some(code.as_str()), hint, ..Failure::new(Cause::Status(code.status())) };
                let unit = self.random.unit();
                let Client { sequence: Some(sequence), target } = &mut self.clients[client] else { return };
                let step = sequence.on_failure(&failure, now, unit, target);
                self.follow(client, step, now);
            }
            Happening::Wake(client) => {
                let Client { sequence: Some(sequence), target } = &mut self.clients[client] else { return };
                let step = sequence.on_wake(now, target);
                self.follow(client, step, now);
            }
            Happening::Answered(client) => {
                let Client { sequence, target } = &mut self.clients[client];
                if let Some(sequence) = sequence.take() {
                    let _ = sequence.on_success(now, target);
                    self.outcome.answered.push(now.saturating_since(self.began));
                }
            }
            Happening::Loaded(generation) => self.admit(now, Event::Loaded { generation, footprint: None }),
            Happening::Ended(generation) => self.admit(now, Event::Ended { generation }),
            Happening::Served(lease) => {
                self.send(now, Happening::Answered(self.client(lease.ticket)));
                self.admit(now, Event::Release { lease });
            }
            Happening::Tick => self.admit(now, Event::Tick),
        }
    }

    /// The client does what its sequence says.
    fn follow(&mut self, client: usize, step: Step, now: Moment) {
        match step.next {
            Next::Attempt => self.send(now, Happening::Call(client)),
            Next::Wait { delay } => self.agenda.add(now.saturating_add(delay), Happening::Wake(client)),
            Next::GiveUp { reason, .. } => {
                self.clients[client].sequence = None;
                self.outcome.gave_up.push((now.saturating_since(self.began), reason));
            }
        }
    }

    /// The server does what its machine says.
    fn admit(&mut self, now: Moment, event: Event) {
        let (commands, due) = self.admission.handle(event, now);
        for command in commands {
            match command {
                Command::Launch { generation, .. } => {
                    self.ready = now.saturating_add(self.settings.load);
                    self.agenda.add(self.ready, Happening::Loaded(generation));
                }
                Command::Stop { generation, .. } => self.agenda.add(now, Happening::Ended(generation)),
                Command::Grant { lease } => {
                    self.agenda.add(now.saturating_add(self.settings.service), Happening::Served(lease));
                }
                Command::Refuse { ticket, refusal, retry_after } => {
                    let hint = self.hint(now, retry_after);
                    let refused = Happening::Refused(self.client(ticket), refusal.code(), hint);
                    self.send(now, refused);
                }
            }
        }
        if let Some(due) = due {
            self.agenda.add(due, Happening::Tick);
        }
    }

    fn hint(&mut self, now: Moment, retry_after: Option<Duration>) -> Option<Duration> {
        let policy = &self.rules.policy;
        let load = self.ready.saturating_since(now);
        let Settings { parallel, service, .. } = self.settings;
        match self.settings.hint {
            Hint::Place => {
                let interval = service / parallel.max(1);
                let estimate = self.places.take(policy, now, load.saturating_add(interval), interval);
                Some(hint::advertise(policy, Some(estimate)))
            }
            Hint::Estimate => Some(hint::advertise(policy, retry_after)),
            Hint::Default => Some(hint::advertise(policy, None)),
            Hint::None => None,
        }
    }

    fn client(&self, ticket: Ticket) -> usize {
        let index = usize::try_from(ticket.0 - 1).expect("tickets are counted from 1");
        self.tickets[index]
    }

    /// Sends at `at`; it arrives one way of the network later.
    fn send(&mut self, at: Moment, message: Happening) {
        let arrival = at.saturating_add(self.random.way());
        self.agenda.add(arrival, message);
    }
}

#[cfg(test)]
mod tests {
    use gglib_core::retry::preset;

    use super::*;

    fn settings(clients: u32) -> Settings {
        let seconds = Duration::from_secs;
        Settings {
            clients,
            load: seconds(8),
            service: Duration::from_millis(100),
            parallel: 4,
            bounds: Bounds { stall: seconds(60), ..Bounds::default() },
            hint: Hint::Place,
            seed: 1,
        }
    }

    #[test]
    fn a_lone_client_waits_for_the_load_and_its_answer() {
        let outcome = run(&preset::gglib(), settings(1));
        let [answered] = outcome.answered[..] else { panic!("{outcome:?}") };
        // Two ways of the network besides.
        let network = answered.saturating_sub(Duration::from_millis(8_100));
        assert!((10..30).contains(&network.as_millis()), "{network:?}");
        assert_eq!((outcome.calls.len(), outcome.gave_up.len()), (1, 0));
    }

    #[test]
    fn who_fits_in_the_queue_is_never_refused() {
        let outcome = run(&preset::gglib(), settings(256));
        assert_eq!((outcome.calls.len(), outcome.answered.len()), (256, 256));
        // 64 rounds of 100 ms after the load.
        let last = outcome.answered[255];
        assert!((14_400..14_450).contains(&last.as_millis()), "{last:?}");
    }

    #[test]
    fn every_client_ends_in_exactly_one_way_and_within_its_attempts() {
        for hint in Hint::ALL {
            let outcome = run(&preset::gglib(), Settings { hint, ..settings(2_000) });
            assert_eq!(outcome.answered.len() + outcome.gave_up.len(), 2_000);
            assert!((2_000..=8_000).contains(&outcome.calls.len()), "{}", outcome.calls.len());
            assert!(outcome.gave_up.iter().all(|(_, reason)| *reason == GiveUpReason::AttemptsExhausted));
            assert!(outcome.calls.is_sorted());
        }
    }

    #[test]
    fn a_true_hint_keeps_clients_away_until_there_is_room() {
        let early = |hint| {
            let outcome = run(&preset::gglib(), Settings { hint, ..settings(500) });
            let early = outcome.calls.iter().filter(|at| (1..8).contains(&at.as_secs())).count();
            (early, outcome.answered.len())
        };
        assert_eq!(early(Hint::Place), (0, 500));
        assert_eq!(early(Hint::Estimate), (0, 500));
        let (calls, answered) = early(Hint::None);
        assert!(
            calls > 200 && answered < 500,
            "{calls} calls before the engine was ready, {answered} answered"
        );
    }

    /// Told the same time, a crowd returns in waves, and between two of them the engine has nothing to do.
    #[test]
    fn own_places_keep_the_engine_busy() {
        // In percent: the most that give up when each is told its own place, and the fewest when all are told the same.
        for (rules, own, same) in [(preset::gglib(), 8, 40), (preset::openai_sdk(), 0, 61)] {
            for seed in 1..=2 {
                let outcome = |hint| run(&rules, Settings { hint, seed, ..settings(2_000) });
                let (place, estimate) = (outcome(Hint::Place), outcome(Hint::Estimate));
                let percent = |outcome: &Outcome| outcome.gave_up.len() * 100 / 2_000;
                let gave_up = (percent(&place), percent(&estimate));
                assert!(gave_up.0 <= own && gave_up.1 >= same, "{}: {gave_up:?}", rules.name);
                let calls = (place.calls.len(), estimate.calls.len());
                assert!(calls.0 < calls.1, "{}: {calls:?}", rules.name);
            }
        }
    }

    #[test]
    fn a_wait_beyond_its_bound_is_refused_and_repeated() {
        let bounds = Bounds { max_wait: Duration::from_secs(2), ..settings(1).bounds };
        let outcome = run(&preset::gglib(), Settings { bounds, hint: Hint::Default, ..settings(1) });
        // Refused after 2 s, back after 15 to 16 s: by then the engine is ready.
        assert_eq!((outcome.calls.len(), outcome.answered.len()), (2, 1));
        assert!((17..19).contains(&outcome.answered[0].as_secs()), "{outcome:?}");
    }
}
