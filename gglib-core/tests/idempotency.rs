//! Keys and their runs: by example, and over random sequences against an account of what should be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gglib_core::idempotency::{Arrival, Limits, Replay, RunId, Runs, Scope};
use gglib_core::moment::Moment;
use http::HeaderValue;
use proptest::prelude::*;

const LIMITS: Limits = Limits { keep: Duration::from_secs(60), runs: 2, bytes: 100 };

fn scope(client: &'static str, key: &'static str) -> Scope {
    Scope { client: vec![Some(HeaderValue::from_static(client))], key: HeaderValue::from_static(key) }
}

fn at(seconds: u64) -> Moment {
    Moment::ORIGIN.saturating_add(Duration::from_secs(seconds))
}

/// What a request with this key comes to, in words.
fn ask(runs: &mut Runs<u32>, scope: Scope, fingerprint: u64, now: u64) -> (&'static str, Option<RunId>) {
    match runs.arrive(scope, fingerprint, at(now), || 7) {
        Arrival::Begin(id, 7) => ("begin", Some(id)),
        Arrival::Attach(id, 7) => ("attach", Some(id)),
        Arrival::Reused => ("reused", None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_repeats_a_request_joins_it_and_the_last_to_leave_cancels_it() {
    let mut runs = Runs::new(LIMITS);
    let (begun, first) = ask(&mut runs, scope("a", "k"), 1, 0);
    let (attached, second) = ask(&mut runs, scope("a", "k"), 1, 1);
    assert_eq!((begun, attached, first), ("begin", "attach", second));
    let id = first.unwrap();
    assert!(!runs.leave(id));
    assert!(runs.leave(id));
    assert!(!runs.leave(id), "once only");
    let (again, third) = ask(&mut runs, scope("a", "k"), 1, 2);
    assert_eq!(again, "begin");
    assert_ne!(third, first);
    // The end of the cancelled one does not touch its successor.
    runs.end(id, Some(10), at(3));
    assert_eq!(ask(&mut runs, scope("a", "k"), 1, 3), ("attach", third));
}

#[test]
fn another_client_another_key_and_another_request_are_told_apart() {
    let mut runs = Runs::new(LIMITS);
    let (_, first) = ask(&mut runs, scope("a", "k"), 1, 0);
    for other in [scope("b", "k"), scope("a", "l"), Scope { client: vec![None], ..scope("a", "k") }] {
        let (begun, id) = ask(&mut runs, other, 1, 0);
        assert_eq!(begun, "begin");
        assert_ne!(id, first);
    }
    assert_eq!(ask(&mut runs, scope("a", "k"), 2, 0), ("reused", None));
    runs.end(first.unwrap(), Some(1), at(1));
    assert_eq!(ask(&mut runs, scope("a", "k"), 2, 2), ("reused", None), "also while the answer is kept");
}

#[test]
fn a_whole_answer_is_kept_for_its_time_and_anything_else_not_at_all() {
    let mut runs = Runs::new(LIMITS);
    let (_, first) = ask(&mut runs, scope("a", "k"), 1, 0);
    runs.end(first.unwrap(), Some(100), at(10));
    assert!(!runs.leave(first.unwrap()), "there is nothing to cancel any more");
    assert_eq!(ask(&mut runs, scope("a", "k"), 1, 69), ("attach", first));
    let (begun, second) = ask(&mut runs, scope("a", "k"), 1, 70);
    assert_eq!(begun, "begin");
    runs.end(second.unwrap(), None, at(71));
    let (begun, third) = ask(&mut runs, scope("a", "k"), 1, 71);
    assert_eq!(begun, "begin");
    runs.end(third.unwrap(), Some(101), at(72));
    assert_eq!(ask(&mut runs, scope("a", "k"), 1, 72).0, "begin", "it is too large");
}

#[test]
fn the_oldest_answer_makes_room_in_number_and_in_bytes() {
    let mut runs = Runs::new(LIMITS);
    for (key, bytes, now) in [("1", 40, 1), ("2", 40, 2), ("3", 10, 3)] {
        let (_, id) = ask(&mut runs, scope("a", key), 1, now);
        runs.end(id.unwrap(), Some(bytes), at(now));
    }
    let is_kept = |runs: &mut Runs<u32>, key| {
        let (what, id) = ask(runs, scope("a", key), 1, 4);
        if what == "begin" {
            assert!(runs.leave(id.unwrap()));
        }
        what == "attach"
    };
    assert_eq!(["1", "2", "3"].map(|key| is_kept(&mut runs, key)), [false, true, true]);
    let (_, id) = ask(&mut runs, scope("a", "4"), 1, 4);
    runs.end(id.unwrap(), Some(90), at(4));
    assert_eq!(["2", "3", "4"].map(|key| is_kept(&mut runs, key)), [false, true, true]);
}

#[test]
fn a_run_that_outgrows_its_bound_waits_for_the_slowest_and_takes_nobody_in() {
    let mut replay = Replay::new(10);
    let [fast, slow] = [(); 2].map(|()| replay.join().unwrap());
    (0..3).for_each(|item| replay.push(item, 5));
    assert!(replay.is_full() && !replay.is_whole());
    assert_eq!([replay.next(fast), replay.next(fast)], [Some(0), Some(1)]);
    assert!(replay.is_full(), "the slow one has taken nothing");
    assert_eq!(replay.next(slow), Some(0));
    assert!(!replay.is_full());
    assert_eq!(replay.join(), None);
    assert_eq!(replay.bytes(), 10);
    replay.part(slow);
    assert_eq!(replay.bytes(), 5, "nothing is held for one who has gone");
    assert_eq!([replay.next(fast), replay.next(fast)], [Some(2), None]);
    assert_eq!(replay.bytes(), 0);
    assert!(!replay.is_whole());
}

/// What may happen to a key: `key` picks one of few.
#[derive(Clone, Debug)]
enum Step {
    Arrive { client: u8, key: u8, fingerprint: u64 },
    Leave(prop::sample::Index),
    End(prop::sample::Index, Option<usize>),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2u8, 0..3u8, 0..2u64)
            .prop_map(|(client, key, fingerprint)| Step::Arrive { client, key, fingerprint }),
        3 => any::<prop::sample::Index>().prop_map(Step::Leave),
        2 => (any::<prop::sample::Index>(), prop::option::of(0..120usize))
            .prop_map(|(index, bytes)| Step::End(index, bytes)),
        1 => (0..90u64).prop_map(Step::Pass),
    ]
}

/// A run as the account has it.
#[derive(Clone, Debug)]
struct Expected {
    of: (u8, u8, u64),
    attached: usize,
    /// When it ended, if it did and may be kept.
    ended: Option<u64>,
}

proptest! {
    #[test]
    fn a_key_never_has_two_runs_and_nobody_gets_anothers(steps in prop::collection::vec(step(), 0..120)) {
        let mut runs = Runs::new(LIMITS);
        let mut account: BTreeMap<RunId, Expected> = BTreeMap::new();
        // Cancelled, failed and forgotten; whoever was attached to one that ended may still leave it.
        let mut over: BTreeSet<RunId> = BTreeSet::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Arrive { client, key, fingerprint } => {
                    let scope = Scope {
                        client: vec![Some(HeaderValue::from(u16::from(client)))],
                        key: HeaderValue::from(u16::from(key)),
                    };
                    let running = account
                        .iter()
                        .find(|(_, run)| (run.of.0, run.of.1) == (client, key) && run.ended.is_none())
                        .map(|(id, run)| (*id, run.of.2));
                    match runs.arrive(scope, fingerprint, at(now), || ()) {
                        Arrival::Begin(id, ()) => {
                            prop_assert_eq!(running, None, "two runs for one key");
                            let new = Expected { of: (client, key, fingerprint), attached: 1, ended: None };
                            prop_assert!(account.insert(id, new).is_none() && !over.contains(&id));
                        }
                        Arrival::Attach(id, ()) => {
                            let run = account.get_mut(&id).expect("nobody joins what is over");
                            prop_assert_eq!(run.of, (client, key, fingerprint), "another's run");
                            match run.ended {
                                Some(ended) => prop_assert!(now < ended + 60, "kept for too long"),
                                None => run.attached += 1,
                            }
                        }
                        Arrival::Reused => {
                            let other = account.values().any(|run| {
                                (run.of.0, run.of.1) == (client, key) && run.of.2 != fingerprint
                            });
                            prop_assert!(other, "no other request has this key");
                        }
                    }
                }
                Step::Leave(index) => {
                    let running: Vec<_> =
                        account.iter().filter(|(_, run)| run.ended.is_none()).map(|(id, _)| *id).collect();
                    if let Some(id) = (!running.is_empty()).then(|| *index.get(&running)) {
                        let run = account.get_mut(&id).unwrap();
                        run.attached -= 1;
                        let is_last = run.attached == 0;
                        prop_assert_eq!(runs.leave(id), is_last);
                        if is_last {
                            account.remove(&id);
                            over.insert(id);
                        }
                    }
                }
                Step::End(index, bytes) => {
                    let all: Vec<_> = account.keys().chain(&over).copied().collect();
                    if let Some(id) = (!all.is_empty()).then(|| *index.get(&all)) {
                        runs.end(id, bytes, at(now));
                        if let Some(run) = account.get_mut(&id).filter(|run| run.ended.is_none()) {
                            if bytes.is_some_and(|bytes| bytes <= LIMITS.bytes) {
                                run.ended = Some(now);
                            } else {
                                account.remove(&id);
                                over.insert(id);
                            }
                        }
                    }
                }
                Step::Pass(seconds) => now += seconds,
            }
        }
    }

    /// Each reader gets every item once, in order, from the first; what is held stays bounded by the slowest reader.
    #[test]
    fn readers_miss_nothing_and_see_nothing_twice(steps in prop::collection::vec((0..6u8, any::<prop::sample::Index>()), 0..200)) {
        let mut replay = Replay::new(50);
        let mut readers = Vec::new();
        let mut pushed = 0;
        for (what, index) in steps {
            match what {
                0 | 1 if !replay.is_full() => {
                    replay.push(pushed, 10);
                    pushed += 1;
                }
                2 => match replay.join() {
                    Some(reader) => readers.push((reader, 0)),
                    None => prop_assert!(pushed > 5, "it is refused only beyond the bound"),
                },
                3 if !readers.is_empty() => {
                    let (reader, _) = readers.swap_remove(index.index(readers.len()));
                    replay.part(reader);
                    prop_assert_eq!(replay.next(reader), None);
                }
                _ if !readers.is_empty() => {
                    let at = index.index(readers.len());
                    let (reader, taken) = &mut readers[at];
                    let expected = (*taken < pushed).then_some(*taken);
                    prop_assert_eq!(replay.next(*reader), expected);
                    *taken += usize::from(expected.is_some());
                }
                _ => {}
            }
            prop_assert!(replay.bytes() <= 60);
            let behind = readers.iter().map(|(_, taken)| pushed - taken).max().unwrap_or(0);
            prop_assert!(replay.bytes() >= behind * 10, "something is gone that somebody has not read");
        }
    }
}
