//! The simulations as pictures: upstream calls over time, and for admission who waits.

use std::time::Duration;

use super::admission::{Outcome, Rule, Wait, Workload};
use super::contention::{self, Cost, Strategy};
use super::layers::{self, Restraint};
use super::overload::Second;
use super::startup;
use crate::plot::{Panel, Plot, Scale};

/// At most so many steps go across a picture, where that can be chosen.
const STEPS: u32 = 150;

/// Contention, one panel for each strategy; the costs are those of the same settings.
pub fn contention(settings: contention::Settings, costs: &[(Strategy, Cost)]) -> Plot {
    let shown = shown(costs.iter().map(|(_, cost)| cost.time_ms.mean));
    let bin = bin(shown);
    let bins = usize::try_from(shown.as_nanos() / bin.as_nanos()).unwrap_or_default() + 1;
    let panels = costs.iter().map(|(strategy, cost)| {
        let calls = contention::calls_over_time(&strategy.policy(), settings, bin, bins);
        let end = Duration::from_secs_f64(cost.time_ms.mean / 1_000.0);
        let rest = if end > shown { ", most of the time beyond this picture" } else { "" };
        let name = description(*strategy);
        Panel {
            name: format!(
                "{name}: {:.0} calls, done after {:.1} s{rest}",
                cost.calls.mean,
                end.as_secs_f64()
            ),
            values: calls.into_iter().map(|calls| calls / bin.as_secs_f64()).collect(),
        }
    });
    let contention::Settings { clients, trials, seed } = settings;
    Plot {
        title: format!("{clients} clients write one row: calls over time"),
        caption: vec![
            format!("Means of {trials} trials, seed {seed}, steps of {} ms.", bin.as_millis()),
            "The model of AWS's article \"Exponential Backoff And Jitter\": base 5 ms, cap 2 s, 10 ms a message."
                .to_owned(),
        ],
        horizontal: "time since all began, s".to_owned(),
        vertical: "calls per second".to_owned(),
        step: bin.as_secs_f64(),
        panels: panels.collect(),
        scale: Scale::Common,
    }
}

/// Layers, one panel for each restraint.
pub fn layers(settings: layers::Settings) -> Plot {
    let layers::Settings { layers, attempts, requests, failing_percent, seed } = settings;
    let chunk = requests.div_ceil(STEPS).max(1);
    let panels = Restraint::ALL.map(|restraint| {
        let calls: Vec<f64> =
            layers::each(settings, restraint).iter().map(|request| count(request.calls)).collect();
        let mean = |calls: &[f64]| calls.iter().sum::<f64>() / count(calls.len() as u64).max(1.0);
        Panel {
            name: format!("restraint: {}, {:.3} calls for each request", restraint.as_str(), mean(&calls)),
            values: calls.chunks(chunk as usize).map(mean).collect(),
        }
    });
    Plot {
        title: format!("{layers} layers with {attempts} attempts each: calls over time"),
        caption: vec![format!(
            "{requests} requests, one every millisecond; {failing_percent} % of the calls at the bottom fail; \
             seed {seed}; means of {chunk}."
        )],
        horizontal: "time, ms".to_owned(),
        vertical: "calls for each request".to_owned(),
        step: f64::from(chunk),
        panels: panels.into(),
        scale: Scale::Common,
    }
}

/// Overload, with `offered` new requests a second: what arrives, and what of it is refused.
pub fn overload(capacity: u32, offered: u32, attempts: Option<u32>, seconds: &[Second]) -> Plot {
    let panel = |name: &str, value: &dyn Fn(&Second) -> f64| {
        let values: Vec<f64> = seconds.iter().map(value).collect();
        let last = values.last().copied().unwrap_or_default();
        Panel { name: format!("{name}: {last:.0} in the last second"), values }
    };
    let attempts = attempts.map_or("for ever".to_owned(), |attempts| format!("up to {attempts} times"));
    Plot {
        title: "A server that is offered too much: calls over time".to_owned(),
        caption: vec![format!(
            "{offered} new requests a second, {capacity} can be done; sent {attempts}, a second apart. Nothing is \
             random."
        )],
        horizontal: "time, s".to_owned(),
        vertical: "requests per second".to_owned(),
        step: 1.0,
        panels: vec![panel("arriving", &|second| second.load), panel("refused", &|second| second.refused)],
        scale: Scale::Own,
    }
}

/// A start-up under the policy of this name: the calls, and the answers.
pub fn startup(policy: &str, settings: startup::Settings, outcome: &startup::Outcome) -> Plot {
    let last = [outcome.calls.last(), outcome.answered.last()].into_iter().flatten().max();
    let last = last.copied().unwrap_or_default();
    let bin = bin(last);
    let panel = |name: String, times: &[Duration]| {
        let mut values = vec![0.0; index(last, bin) + 1];
        for time in times {
            values[index(*time, bin)] += 1.0 / bin.as_secs_f64();
        }
        Panel { name, values }
    };
    let startup::Settings { clients, load, service, parallel, bounds, hint, seed } = settings;
    Plot {
        title: format!("{clients} clients collide on one start-up: calls over time"),
        caption: vec![
            format!(
                "The model loads in {} s; then {parallel} answers at once, {} s each; queue of {}.",
                load.as_secs_f64(),
                service.as_secs_f64(),
                bounds.queue
            ),
            format!(
                "Policy {policy}, hint: {}, seed {seed}, steps of {} ms.",
                hint.as_str(),
                bin.as_millis()
            ),
        ],
        horizontal: "time since all began, s".to_owned(),
        vertical: "per second".to_owned(),
        step: bin.as_secs_f64(),
        panels: vec![
            panel(format!("calls: {}", outcome.calls.len()), &outcome.calls),
            panel(
                format!("answers: {}; {} clients gave up", outcome.answered.len(), outcome.gave_up.len()),
                &outcome.answered,
            ),
        ],
        scale: Scale::Own,
    }
}

/// Admission, one panel for each rule under each workload: how many requests wait.
pub fn admission(seed: u64, outcomes: &[(Workload, Rule, Outcome)]) -> Plot {
    let last = outcomes.iter().map(|(.., outcome)| outcome.makespan).max().unwrap_or_default();
    let bin = bin(last);
    let panels = outcomes.iter().map(|(workload, rule, outcome)| Panel {
        name: format!(
            "{}, {}: {} loads, {} expired, done after {:.1} s",
            workload.as_str(),
            rule.as_str(),
            outcome.loads,
            outcome.expired(),
            outcome.makespan.as_secs_f64()
        ),
        values: waiting(&outcome.waits, bin),
    });
    Plot {
        title: "Models that share a machine: waiting requests over time".to_owned(),
        caption: vec![format!("Means of steps of {} ms, seed {seed}.", bin.as_millis())],
        horizontal: "time since all began, s".to_owned(),
        vertical: "waiting requests".to_owned(),
        step: bin.as_secs_f64(),
        panels: panels.collect(),
        scale: Scale::Common,
    }
}

/// How many wait in each step, on the average.
fn waiting(waits: &[Wait], bin: Duration) -> Vec<f64> {
    let mut values = Vec::new();
    for Wait { since, until, .. } in waits {
        let mut from = *since;
        while from < *until {
            let index = index(from, bin);
            let to = (*until).min(bin * u32::try_from(index + 1).unwrap_or(u32::MAX));
            if values.len() <= index {
                values.resize(index + 1, 0.0);
            }
            values[index] += (to.saturating_sub(from)).as_secs_f64() / bin.as_secs_f64();
            from = to;
        }
    }
    values
}

/// The number of the step that a time lies in.
fn index(time: Duration, bin: Duration) -> usize {
    usize::try_from(time.as_nanos() / bin.as_nanos()).unwrap_or_default()
}

/// How much of the time is shown, given when each curve ends on the average, in milliseconds: a quarter more than that,
/// since single trials take longer; but a curve that takes three times as long as every other one is cut, lest the
/// others vanish.
fn shown(ends: impl IntoIterator<Item = f64>) -> Duration {
    let mut ends: Vec<f64> = ends.into_iter().collect();
    ends.sort_by(f64::total_cmp);
    let end = match ends.as_slice() {
        [.., second, last] if *last > 3.0 * second => *second,
        [.., last] => *last,
        [] => 0.0,
    };
    Duration::from_secs_f64(end * 1.25 / 1_000.0)
}

/// The smallest round step of which [`STEPS`] fill the time; a millisecond or more.
fn bin(shown: Duration) -> Duration {
    let decades = std::iter::successors(Some(1_u64), |decade| decade.checked_mul(10));
    let mut round = decades.flat_map(|decade| [1, 2, 5].map(|digit| decade.saturating_mul(digit)));
    let least = shown / STEPS;
    round.find_map(|ms| Some(Duration::from_millis(ms)).filter(|bin| *bin >= least)).unwrap_or(shown)
}

const fn description(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::None => "no backoff",
        Strategy::Exponential => "exponential, no jitter",
        Strategy::Equal => "equal jitter",
        Strategy::Full => "full jitter",
        Strategy::Decorrelated => "decorrelated jitter",
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::admission::End;

    #[test]
    fn who_waits_counts_in_each_step_for_its_share() {
        let ms = Duration::from_millis;
        let wait = |since, until| Wait { model: 0, since: ms(since), until: ms(until), end: End::Served };
        assert_eq!(waiting(&[wait(0, 25), wait(5, 10), wait(7, 7)], ms(10)), [1.5, 1.0, 0.5]);
    }

    #[test]
    fn one_endless_curve_does_not_squeeze_the_others() {
        let ms = Duration::from_millis;
        assert_eq!(shown([2_000.0, 4_000.0, 5_000.0]), ms(6_250));
        assert_eq!(shown([2_000.0, 64_000.0, 5_000.0]), ms(6_250));
        assert_eq!(shown([64_000.0]), ms(80_000));
    }

    #[test]
    fn steps_are_round_and_not_too_many() {
        let ms = Duration::from_millis;
        for (shown, step) in [(0, 1), (150, 1), (151, 2), (38_000, 500), (60_000, 500), (3_000_000, 20_000)] {
            assert_eq!(bin(ms(shown)), ms(step), "{shown}");
        }
    }
}
