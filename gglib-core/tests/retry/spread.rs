//! How delays are distributed: no value but an explicit bound is more likely than another.

use std::collections::HashSet;
use std::time::Duration;

use gglib_core::retry::{Backoff, Jitter, RetryPolicy, decide, decide_with};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{delay, delay_of, endless, secs};

const JITTERS: [Jitter; 6] = [
    Jitter::Full,
    Jitter::Equal,
    Jitter::Additive { percent: 25 },
    Jitter::Decorrelated,
    Jitter::AdditiveOverCap { percent: 25 },
    Jitter::Subtractive { percent: 25 },
];

fn units(count: usize) -> impl Iterator<Item = f64> {
    StdRng::seed_from_u64(20_231_130).random_iter().take(count)
}

#[test]
fn c12_clients_at_the_cap_do_not_wake_together() {
    for jitter in JITTERS {
        let policy = endless(Backoff::Exponential, jitter);
        let at_cap = |unit| decide_with(&policy, 30, None, Duration::ZERO, unit, policy.max_backoff);
        let delays: HashSet<_> = units(1_000).map(|unit| delay_of(at_cap(unit))).collect();
        // Even the narrowest window, 3 s, has room enough that two equal draws of 1000 are improbable.
        assert!(delays.len() >= 998, "{jitter:?}: {} different delays", delays.len());
    }
}

#[test]
fn c13_decorrelated_delays_do_not_pile_up_at_the_cap() {
    for (initial, max) in [(1.0, 10.0), (0.5, 8.0), (1.0, 60.0), (1.0, 100.0), (5.0, 2_000.0)] {
        let policy = RetryPolicy {
            initial_backoff: secs(initial),
            max_backoff: secs(max),
            ..endless(Backoff::Exponential, Jitter::Decorrelated)
        };
        let mut previous = policy.initial_backoff;
        for unit in units(10_000) {
            previous = delay_of(decide_with(&policy, 1, None, Duration::ZERO, unit, previous));
            assert!((policy.initial_backoff..policy.max_backoff).contains(&previous), "{previous:?}");
        }
    }
}

/// The shares that were measured for the rule as published.
#[test]
fn c13_unclamped_decorrelated_delays_do_pile_up_at_the_cap() {
    for (initial, max, share) in [
        (1.0, 10.0, 0.484),
        (0.5, 8.0, 0.433),
        (1.0, 60.0, 0.340),
        (1.0, 100.0, 0.316),
        (5.0, 2_000.0, 0.270),
    ] {
        let policy = RetryPolicy {
            initial_backoff: secs(initial),
            max_backoff: secs(max),
            ..endless(Backoff::Exponential, Jitter::DecorrelatedUnclamped)
        };
        let mut previous = policy.initial_backoff;
        let at_cap = units(100_000)
            .filter(|&unit| {
                previous = delay_of(decide_with(&policy, 1, None, Duration::ZERO, unit, previous));
                previous == policy.max_backoff
            })
            .count();
        let measured = f64::from(u32::try_from(at_cap).expect("a count of 100 000")) / 100_000.0;
        // Consecutive delays depend on each other, so that the error is larger than that of a binomial share.
        assert!((measured - share).abs() < 0.01, "{initial} s to {max} s: {measured}");
    }
}

#[test]
fn c23_c35_delays_are_uniform_over_their_window() {
    for jitter in JITTERS {
        let policy = endless(Backoff::Fixed, jitter);
        let shortest = delay(&policy, 1, 0.0);
        let width = delay(&policy, 1, 1.0).saturating_sub(shortest);
        let mut tenths = [0_u32; 10];
        for unit in units(10_000) {
            let place = delay(&policy, 1, unit).saturating_sub(shortest).div_duration_f64(width);
            let tenth = (1..10).filter(|&tenth| place >= f64::from(tenth) / 10.0).count();
            tenths[tenth] += 1;
        }
        let chi_square: f64 =
            tenths.iter().map(|&count| (f64::from(count) - 1_000.0).powi(2) / 1_000.0).sum();
        // 99.9 % quantile for nine degrees of freedom.
        assert!(chi_square < 27.88, "{jitter:?}: {tenths:?}");
    }
}

#[test]
fn c87_clients_with_the_same_hint_are_spread() {
    let policy = RetryPolicy::default();
    let hinted = |unit| delay_of(decide(&policy, 1, Some(secs(10.0)), Duration::ZERO, unit));
    let delays: HashSet<_> = units(1_000).map(hinted).collect();
    assert!(delays.len() >= 998, "{} different delays", delays.len());
    assert!(delays.iter().all(|delay| (secs(10.0)..secs(11.0)).contains(delay)));
}
