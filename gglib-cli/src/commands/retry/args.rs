//! The command line of `gglib retry`.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use gglib_core::retry::{RetryRules, preset};

use crate::commands::simulation::{Output, Picture, Random};
use crate::simulate::contention::Strategy;
use crate::simulate::replay::{self, Answer};
use crate::simulate::startup::Hint;

#[derive(Debug, Subcommand)]
pub(crate) enum Retry {
    /// Print what a policy decides, as a table
    Table(Table),
    /// Say step by step how a policy decides after one failed attempt
    Explain(Explain),
    /// Simulate many clients on a virtual clock
    #[command(subcommand)]
    Simulate(Simulate),
    /// Say what a policy would have made of recorded answers
    Replay(Replay),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Table {
    #[command(flatten)]
    pub(crate) preset: Preset,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// Attempts that have failed so far
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: u32,
    /// What the server asked for: seconds, or a time such as 1m30s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) retry_after: Option<Duration>,
    /// Time since the first attempt began
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    pub(crate) elapsed: Duration,
    /// The random number of the jitter, from 0 up to 1
    #[arg(long, value_name = "U", value_parser = unit, default_value = "0.5")]
    pub(crate) unit: f64,
    #[command(flatten)]
    pub(crate) preset: Preset,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Simulate {
    /// Clients that contend for one row: what jitter saves
    Contention(Contention),
    /// Layers that each retry: how attempts multiply, and what bounds them
    Layers(Layers),
    /// A server that is offered too much, and whose refusals come back every second
    Overload(Overload),
    /// Clients that collide on the start-up of one model
    Startup(Startup),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Contention {
    /// Clients, which all begin at once
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// What they do after a failure [default: each strategy in turn]
    #[arg(long, value_name = "NAME", value_parser = strategy_parser())]
    pub(crate) strategy: Option<Strategy>,
    /// Repetitions, over which the means are taken
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) trials: u32,
    #[command(flatten)]
    pub(crate) random: Random,
    #[command(flatten)]
    pub(crate) picture: Picture,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Layers {
    /// Layers that retry
    #[arg(
        long = "layers",
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=5)
    )]
    pub(crate) count: u32,
    /// Attempts of each layer
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=5))]
    pub(crate) attempts: u32,
    /// Of 100 calls at the bottom, how many fail
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) failing: u32,
    /// Original requests, one every millisecond
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) requests: u32,
    #[command(flatten)]
    pub(crate) random: Random,
    #[command(flatten)]
    pub(crate) picture: Picture,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Overload {
    /// Requests that the server does in a second
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) capacity: u32,
    /// New requests in a second
    #[arg(long, value_name = "N", default_value_t = 10_100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) offered: u32,
    /// Attempts of each request [default: for ever]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: Option<u32>,
    /// How long
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=600))]
    pub(crate) seconds: u16,
    #[command(flatten)]
    pub(crate) picture: Picture,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Startup {
    /// Clients, which all begin at once
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) clients: u32,
    /// From the launch of the engine until it is ready
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "8s")]
    pub(crate) load: Duration,
    /// For one answer
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "100ms")]
    pub(crate) service: Duration,
    /// Answers at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) parallel: u32,
    /// Requests that may wait
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) queue: u32,
    /// What a refusal tells the client: the time of its own place, when all who wait will have been served, the policy's
    /// default, or nothing
    #[arg(long, value_name = "KIND", default_value = Hint::Place.as_str(), value_parser = hint_parser())]
    pub(crate) hint: Hint,
    #[command(flatten)]
    pub(crate) preset: Preset,
    #[command(flatten)]
    pub(crate) random: Random,
    #[command(flatten)]
    pub(crate) picture: Picture,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    /// File with one recorded answer a line: `{"status": 503, "latency_ms": 20, "retry_after": 3}`
    #[arg(value_name = "TRACE", value_parser = trace)]
    pub(crate) trace: Arc<[Answer]>,
    #[command(flatten)]
    pub(crate) preset: Preset,
    #[command(flatten)]
    pub(crate) random: Random,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Which policy.
#[derive(Debug, clap::Args)]
pub(crate) struct Preset {
    /// The policy, by the name of its preset
    #[arg(long = "policy", value_name = "PRESET", default_value = "gglib", value_parser = preset_parser())]
    pub(crate) rules: RetryRules,
}

fn preset_parser() -> impl TypedValueParser<Value = RetryRules> {
    PossibleValuesParser::new(preset::all().map(|rules| rules.name))
        .map(|name| preset::by_name(&name).expect("only names of presets are possible"))
}

fn strategy_parser() -> impl TypedValueParser<Value = Strategy> {
    PossibleValuesParser::new(Strategy::ALL.map(Strategy::as_str)).map(|name| {
        let mut all = Strategy::ALL.into_iter();
        all.find(|strategy| strategy.as_str() == name).expect("only names of strategies are possible")
    })
}

fn hint_parser() -> impl TypedValueParser<Value = Hint> {
    PossibleValuesParser::new(Hint::ALL.map(Hint::as_str)).map(|name| {
        let mut all = Hint::ALL.into_iter();
        all.find(|hint| hint.as_str() == name).expect("only names of hints are possible")
    })
}

fn trace(path: &str) -> Result<Arc<[Answer]>, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    replay::parse(&text).map(Arc::from).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.or_else(|| humantime::parse_duration(text).ok()).ok_or_else(|| {
        "a time is a number of seconds, or a number with a unit: 12, 1.5, 250ms, 1m30s".to_owned()
    })
}

fn unit(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|unit| (0.0..1.0).contains(unit))
        .ok_or_else(|| "a jitter unit is a number from 0 up to, but not including, 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_carry_units() {
        for (text, expected) in [
            ("0", Some(Duration::ZERO)),
            ("12", Some(Duration::from_secs(12))),
            ("1.5", Some(Duration::from_millis(1_500))),
            ("12s", Some(Duration::from_secs(12))),
            ("1m30s", Some(Duration::from_secs(90))),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
            ("soon", None),
        ] {
            assert_eq!(time(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn units_lie_in_the_half_open_interval() {
        assert_eq!(unit("0"), Ok(0.0));
        assert_eq!(unit("0.875"), Ok(0.875));
        for wrong in ["1", "-0.1", "NaN", "half"] {
            assert!(unit(wrong).is_err(), "{wrong}");
        }
    }
}
