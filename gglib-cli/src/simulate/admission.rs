//! Several models that share a machine: how long who waits, and for how many loads, by gglib's rule and by those of others.
//!
//! gglib's rule is the [`Admission`](gglib_core::admission::Admission) machine itself, as the endpoint drives it; the
//! others are small [rivals](Rule) that take the same events and give the same commands. All of them meet the same
//! clients: whatever is random is drawn before anybody is scheduled. What is modelled is only the world around them.
//! Engines load, answer and stop in times of their own, and answers do not slow each other down. Clients are patient: one
//! that has been refused goes on with its next request.

use std::time::Duration;

use gglib_core::admission::{Command, Event, Generation, LeaseId, Settings, Ticket};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;

use super::agenda::Agenda;
use super::driven::Driven;
use super::statistics::percentile;
use workload::{Call, Scene};

pub use rule::Rule;
pub use workload::Workload;

mod rival;
mod rule;
mod workload;

/// What came of one workload under one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The wait of each request, in the order in which they ended.
    pub waits: Vec<Wait>,
    /// Engines that were launched.
    pub loads: u32,
    /// Until the last request was over, from the beginning.
    pub makespan: Duration,
}

/// How one request waited; times are since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What it wanted, as the number of a model of the workload.
    pub model: usize,
    /// When it arrived.
    pub since: Duration,
    /// When the wait was over.
    pub until: Duration,
    /// What ended it.
    pub end: End,
}

/// What ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An engine served the request.
    Served,
    /// The bound of waiting (`admission.max_wait`, `admission.stall`) did.
    Expired,
}

impl Outcome {
    /// Requests that expired.
    pub fn expired(&self) -> usize {
        self.waits.iter().filter(|wait| wait.end == End::Expired).count()
    }

    /// The wait that at least `percent` of 100 requests do not exceed; of those that expired, until then.
    pub fn wait(&self, percent: usize) -> Duration {
        let mut waits: Vec<_> = self.waits.iter().map(|wait| wait.until.saturating_sub(wait.since)).collect();
        waits.sort_unstable();
        percentile(&waits, percent).unwrap_or_default()
    }
}

/// Simulates the workload, its random numbers beginning at `seed`, until every request is over.
///
/// ```
/// use gglib_cli::simulate::admission::{self, Rule, Workload};
///
/// let [ours, fifo] = [Rule::Gglib, Rule::Fifo].map(|rule| admission::run(Workload::Alternating, rule, 1));
/// assert!(ours.loads < fifo.loads);
/// ```
pub fn run(workload: Workload, rule: Rule, seed: u64) -> Outcome {
    let scene = workload.scene(seed);
    let mut world = World {
        scheduler: Driven::new(rule.scheduler(&scene)),
        agenda: Agenda::new(),
        next: vec![0; scene.clients.len()],
        requests: Vec::new(),
        engines: Vec::new(),
        outcome: Outcome::default(),
        scene,
    };
    for client in 0..world.scene.clients.len() {
        world.go_on(client, Moment::ORIGIN);
    }
    while let Some((now, happening)) = world.agenda.next() {
        world.happen(now, happening);
    }
    world.outcome
}

/// The defaults of the configuration. The age that a wait may reach bounds those of every rule; the others are gglib's.
fn bounds(scene: &Scene) -> Settings {
    Settings { max_resident: scene.slots, ..Settings::default() }
}

/// What happens next; a client is named by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrive(usize),
    Loaded(Generation),
    Ended(Generation),
    Served(LeaseId),
    Tick,
}

/// What a ticket stands for.
#[derive(Clone, Copy, Debug)]
struct Request {
    client: usize,
    call: Call,
    since: Moment,
}

struct World {
    scene: Scene,
    scheduler: Driven,
    agenda: Agenda<Happening>,
    /// The next call of each client.
    next: Vec<usize>,
    /// By ticket.
    requests: Vec<Request>,
    /// The model of each launch.
    engines: Vec<ModelName>,
    outcome: Outcome,
}

impl World {
    fn happen(&mut self, now: Moment, happening: Happening) {
        match happening {
            Happening::Arrive(client) => {
                let call = self.scene.clients[client][self.next[client]];
                self.next[client] += 1;
                let ticket = Ticket(self.requests.len() as u64);
                self.requests.push(Request { client, call, since: now });
                self.tell(now, Event::Arrive { ticket, model: self.scene.models[call.model].name() });
            }
            Happening::Loaded(generation) => self.tell(now, Event::Loaded { generation, footprint: None }),
            Happening::Ended(generation) => self.tell(now, Event::Ended { generation }),
            Happening::Served(lease) => {
                let client = self.request(lease.ticket).client;
                self.is_over(client, now);
                self.tell(now, Event::Release { lease });
            }
            Happening::Tick => self.tell(now, Event::Tick),
        }
    }

    fn tell(&mut self, now: Moment, event: Event) {
        let (commands, due) = self.scheduler.handle(event, now);
        for command in commands {
            match command {
                Command::Launch { generation, model } => {
                    self.outcome.loads += 1;
                    let ready = now.saturating_add(self.scene.model(&model).load);
                    self.engines.push(model);
                    self.agenda.add(ready, Happening::Loaded(generation));
                }
                Command::Stop { generation, .. } => {
                    let index = usize::try_from(generation.0 - 1).expect("launches are counted from 1");
                    let gone = now.saturating_add(self.scene.model(&self.engines[index]).stop);
                    self.agenda.add(gone, Happening::Ended(generation));
                }
                Command::Grant { lease } => {
                    self.waited(lease.ticket, End::Served, now);
                    let answered = now.saturating_add(self.request(lease.ticket).call.answer);
                    self.agenda.add(answered, Happening::Served(lease));
                }
                Command::Refuse { ticket, .. } => {
                    self.waited(ticket, End::Expired, now);
                    self.is_over(self.request(ticket).client, now);
                }
            }
        }
        if let Some(due) = due {
            self.agenda.add(due, Happening::Tick);
        }
    }

    fn waited(&mut self, ticket: Ticket, end: End, now: Moment) {
        let Request { call, since, .. } = self.request(ticket);
        let [since, until] = [since, now].map(|at| at.saturating_since(Moment::ORIGIN));
        self.outcome.waits.push(Wait { model: call.model, since, until, end });
    }

    fn is_over(&mut self, client: usize, now: Moment) {
        self.outcome.makespan = now.saturating_since(Moment::ORIGIN);
        self.go_on(client, now);
    }

    /// The client pauses, and then calls again, if it has anything left to ask.
    fn go_on(&mut self, client: usize, now: Moment) {
        if let Some(call) = self.scene.clients[client].get(self.next[client]) {
            self.agenda.add(now.saturating_add(call.pause), Happening::Arrive(client));
        }
    }

    fn request(&self, ticket: Ticket) -> Request {
        self.requests[usize::try_from(ticket.0).expect("tickets are indices")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(workload: Workload, seed: u64) -> [Outcome; 4] {
        Rule::ALL.map(|rule| run(workload, rule, seed))
    }

    #[test]
    fn every_request_ends_exactly_once() {
        for workload in Workload::ALL {
            let clients = workload.scene(1).clients;
            let asked = |model| clients.iter().flatten().filter(|call| call.model == model).count();
            for outcome in outcomes(workload, 1) {
                for model in 0..workload.scene(1).models.len() {
                    let ended = outcome.waits.iter().filter(|wait| wait.model == model).count();
                    assert_eq!(ended, asked(model), "{workload:?}");
                }
            }
        }
    }

    #[test]
    fn a_seed_repeats_itself() {
        for workload in Workload::ALL {
            assert_eq!(outcomes(workload, 1), outcomes(workload, 1));
            assert_ne!(outcomes(workload, 1), outcomes(workload, 2));
        }
    }

    #[test]
    fn alternating_requests_cost_one_load_of_each_model() {
        for seed in 1..=20 {
            let loads = outcomes(Workload::Alternating, seed).map(|outcome| outcome.loads);
            assert_eq!(loads, [2, 40, 40, 2], "by gglib's, fifo, lru and no-bound");
        }
    }

    #[test]
    fn nobody_waits_beyond_the_bound() {
        for workload in Workload::ALL {
            for seed in 1..=20 {
                let outcome = run(workload, Rule::Gglib, seed);
                assert_eq!(outcome.expired(), 0, "{workload:?}");
                let (longest, bound) = (longest_standstill(&outcome), workload.bound(seed));
                assert!(longest <= bound, "{workload:?}, seed {seed}: {longest:?} > {bound:?}");
            }
        }
    }

    /// The longest time for which the oldest waiter of any model was that and was not served.
    fn longest_standstill(outcome: &Outcome) -> Duration {
        let mut moved = std::collections::BTreeMap::new();
        let oldest = outcome.waits.iter().map(|wait| {
            let moved = moved.insert(wait.model, wait.until).unwrap_or_default();
            wait.until.saturating_sub(wait.since.max(moved))
        });
        oldest.max().unwrap_or_default()
    }

    #[test]
    fn without_a_bound_one_crowd_starves_the_other() {
        for seed in 1..=20 {
            let [ours, .., no_bound] = outcomes(Workload::Overlapping, seed);
            assert!(no_bound.expired() > 0 && no_bound.wait(100) == Settings::default().max_wait);
            assert!(ours.wait(100) < Duration::from_secs(90), "{:?}", ours.wait(100));
        }
    }

    #[test]
    fn two_crowds_swap_once_per_quantum() {
        for seed in 1..=20 {
            let outcome = run(Workload::Overlapping, Rule::Gglib, seed);
            // A turn lasts for 4 times the switch of 9 s, and until the last of its answers is over, at most 6 s; the
            // switch comes on top. The first turn is shorter, since nothing is measured then, and at the end one
            // crowd is alone.
            let turns = |seconds: u64| outcome.makespan.as_secs() / seconds;
            let loads = u64::from(outcome.loads);
            assert!((turns(51) - 1..=turns(45) + 2).contains(&loads), "{loads} in {:?}", outcome.makespan);
        }
    }
}
