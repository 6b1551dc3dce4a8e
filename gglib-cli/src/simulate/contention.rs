//! Clients that contend for one row: the model of AWS's article on jitter.
//!
//! Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. A server holds one versioned row, and
//! every client wants to write it once. A client reads the version and writes with it; the server accepts the write
//! if the version is still the same, which makes the writes of all others that have read it fail. A client whose
//! write has failed sleeps and begins again. Every message takes a random time. Nothing is ever overloaded: the cost
//! is wasted calls and the time until the last client is done.

use std::time::Duration;

use gglib_core::moment::Moment;
use gglib_core::retry::{Backoff, HintRule, Jitter, RetryDecision, RetryPolicy, decide_with};

use super::agenda::Agenda;
use super::random::Random;
use super::statistics::Estimate;

/// What clients do after a failed write; the article's five.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// At once.
    None,
    /// `v = min(2 s, 5 ms × 2^n)` after `n` failures.
    Exponential,
    /// From `v/2` up to `v`.
    Equal,
    /// From 0 up to `v`.
    Full,
    /// From 5 ms up to three times the previous delay, cut to 2 s.
    Decorrelated,
}

impl Strategy {
    /// Every strategy, in the article's order.
    pub const ALL: [Self; 5] = [Self::None, Self::Exponential, Self::Equal, Self::Full, Self::Decorrelated];

    /// The strategy as a name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exponential => "exponential",
            Self::Equal => "equal",
            Self::Full => "full",
            Self::Decorrelated => "decorrelated",
        }
    }

    /// The strategy as a policy without limits.
    ///
    /// The article's exponent is 1 after the first failure where [`Backoff::Exponential`]'s is 0; hence 10 ms.
    pub const fn policy(self) -> RetryPolicy {
        let (initial_backoff, backoff, jitter) = match self {
            Self::None => (Duration::ZERO, Backoff::Fixed, Jitter::None),
            Self::Exponential => (Duration::from_millis(10), Backoff::Exponential, Jitter::None),
            Self::Equal => (Duration::from_millis(10), Backoff::Exponential, Jitter::Equal),
            Self::Full => (Duration::from_millis(10), Backoff::Exponential, Jitter::Full),
            Self::Decorrelated => {
                (Duration::from_millis(5), Backoff::Exponential, Jitter::DecorrelatedUnclamped)
            }
        };
        RetryPolicy {
            max_attempts: u32::MAX,
            initial_backoff,
            max_backoff: Duration::from_secs(2),
            total_deadline: Duration::MAX,
            backoff,
            jitter,
            hint_rule: HintRule::Floor,
        }
    }
}

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Clients, which all begin at the same moment.
    pub clients: u32,
    /// Repetitions, over which the means are taken.
    pub trials: u32,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// What it costs until every client has written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The time at which the last client learned of its success, in milliseconds.
    pub time_ms: Estimate,
    /// Writes, the failed ones included.
    pub calls: Estimate,
}

/// Simulates clients that retry by `policy`; one that gives up is done as well.
///
/// ```
/// use gglib_cli::simulate::contention::{self, Settings, Strategy};
///
/// let settings = Settings { clients: 20, trials: 50, seed: 1 };
/// let none = contention::run(&Strategy::None.policy(), settings);
/// let full = contention::run(&Strategy::Full.policy(), settings);
/// assert!(full.calls.mean < none.calls.mean);
/// ```
pub fn run(policy: &RetryPolicy, settings: Settings) -> Cost {
    let mut random = Random::new(settings.seed);
    let (times, calls): (Vec<f64>, Vec<f64>) = (0..settings.trials)
        .map(|_| {
            let mut ignored = |_| {};
            let trial = Trial::run(policy, settings.clients, &mut random, &mut ignored);
            (trial.end.saturating_since(Moment::ORIGIN).as_secs_f64() * 1_000.0, f64::from(trial.calls))
        })
        .unzip();
    Cost { time_ms: Estimate::of(&times), calls: Estimate::of(&calls) }
}

/// The mean number of calls that arrive in each of the first `bins` spans of length `bin`, over the trials of [`run`].
pub fn calls_over_time(policy: &RetryPolicy, settings: Settings, bin: Duration, bins: usize) -> Vec<f64> {
    let mut random = Random::new(settings.seed);
    let mut counts = vec![0.0; bins];
    for _ in 0..settings.trials {
        Trial::run(policy, settings.clients, &mut random, &mut |at| {
            let index = at.saturating_since(Moment::ORIGIN).as_nanos() / bin.as_nanos().max(1);
            if let Some(count) = usize::try_from(index).ok().and_then(|index| counts.get_mut(index)) {
                *count += 1.0 / f64::from(settings.trials);
            }
        });
    }
    counts
}

/// What arrives where; a client is named by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    /// At the server.
    Read(usize),
    /// At the server, with the version that was read.
    Write(usize, u32),
    /// At the client.
    Accepted,
    /// At the client.
    Rejected(usize),
}

#[derive(Clone, Debug)]
struct Client {
    failures: u32,
    previous_delay: Duration,
}

struct Trial<'a> {
    policy: &'a RetryPolicy,
    random: &'a mut Random,
    /// Told of each write that arrives.
    on_call: &'a mut dyn FnMut(Moment),
    agenda: Agenda<Message>,
    clients: Vec<Client>,
    version: u32,
    calls: u32,
    end: Moment,
}

impl<'a> Trial<'a> {
    fn run(
        policy: &'a RetryPolicy,
        clients: u32,
        random: &'a mut Random,
        on_call: &'a mut dyn FnMut(Moment),
    ) -> Self {
        let client = Client { failures: 0, previous_delay: policy.initial_backoff };
        let mut trial = Self {
            policy,
            random,
            on_call,
            agenda: Agenda::new(),
            clients: vec![client; clients as usize],
            version: 0,
            calls: 0,
            end: Moment::ORIGIN,
        };
        for client in 0..trial.clients.len() {
            trial.send(Moment::ORIGIN, Message::Read(client));
        }
        while let Some((now, message)) = trial.agenda.next() {
            trial.end = now;
            trial.receive(now, message);
        }
        trial
    }

    fn receive(&mut self, now: Moment, message: Message) {
        match message {
            Message::Read(client) => {
                // The answer and the write that follows it at once: two ways.
                let answered = now.saturating_add(self.random.way());
                self.send(answered, Message::Write(client, self.version));
            }
            Message::Write(client, version) => {
                self.calls += 1;
                (self.on_call)(now);
                let accepted = version == self.version;
                self.version += u32::from(accepted);
                self.send(now, if accepted { Message::Accepted } else { Message::Rejected(client) });
            }
            Message::Accepted => {}
            Message::Rejected(client) => {
                if let Some(delay) = self.delay(client) {
                    self.send(now.saturating_add(delay), Message::Read(client));
                }
            }
        }
    }

    fn delay(&mut self, client: usize) -> Option<Duration> {
        let unit = self.random.unit();
        let client = &mut self.clients[client];
        client.failures += 1;
        match decide_with(self.policy, client.failures, None, Duration::ZERO, unit, client.previous_delay) {
            RetryDecision::Retry { after } => {
                client.previous_delay = after;
                Some(after)
            }
            RetryDecision::GiveUp(_) => None,
        }
    }

    /// Sends at `at`; the message arrives one way of the network later.
    fn send(&mut self, at: Moment, message: Message) {
        let way = self.random.way();
        self.agenda.add(at.saturating_add(way), message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_client_needs_four_ways_and_one_call() {
        let cost = run(&Strategy::None.policy(), Settings { clients: 1, trials: 1_000, seed: 1 });
        assert_eq!(cost.calls, Estimate { mean: 1.0, deviation: 0.0, standard_error: 0.0 });
        assert!((cost.time_ms.mean - 40.0).abs() < 4.0 * cost.time_ms.standard_error, "{cost:?}");
        // Four independent ways of 2 ms deviation each.
        assert!((cost.time_ms.deviation - 4.0).abs() < 0.4, "{cost:?}");
    }

    #[test]
    fn calls_over_time_are_the_calls_of_the_same_trials() {
        let settings = Settings { clients: 10, trials: 20, seed: 3 };
        let policy = Strategy::Full.policy();
        let spans = calls_over_time(&policy, settings, Duration::from_millis(100), 100);
        let calls = run(&policy, settings).calls.mean;
        assert!((spans.iter().sum::<f64>() - calls).abs() < 1e-6, "{spans:?} are not {calls}");
        // The first writes arrive after three ways of the network, all within the first span.
        assert!(spans[0] >= 10.0 && spans[99] == 0.0);
    }

    #[test]
    fn the_strategies_are_the_articles() {
        use RetryDecision::Retry;
        let ms = Duration::from_millis;
        let delay = |strategy: Strategy, failures, unit, previous| {
            decide_with(&strategy.policy(), failures, None, Duration::ZERO, unit, ms(previous))
        };
        assert_eq!(delay(Strategy::None, 5, 0.5, 0), Retry { after: Duration::ZERO });
        assert_eq!(delay(Strategy::Exponential, 1, 0.5, 0), Retry { after: ms(10) });
        assert_eq!(delay(Strategy::Exponential, 9, 0.5, 0), Retry { after: ms(2_000) });
        assert_eq!(delay(Strategy::Equal, 3, 0.5, 0), Retry { after: ms(30) });
        assert_eq!(delay(Strategy::Full, 3, 0.5, 0), Retry { after: ms(20) });
        assert_eq!(delay(Strategy::Decorrelated, 1, 0.5, 5), Retry { after: ms(10) });
        assert_eq!(delay(Strategy::Decorrelated, 9, 0.875, 1_000), Retry { after: ms(2_000) });
    }

    #[test]
    fn a_seed_repeats_itself() {
        let settings = Settings { clients: 10, trials: 5, seed: 7 };
        let policy = Strategy::Full.policy();
        assert_eq!(run(&policy, settings), run(&policy, settings));
        assert_ne!(run(&policy, settings), run(&policy, Settings { seed: 8, ..settings }));
    }
}
