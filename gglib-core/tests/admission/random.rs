//! Invariants, checked command by command over random sequences of events.

use gglib_core::admission::{Profile, Settings};
use proptest::prelude::*;

use self::world::World;
use crate::desk::{gib, seconds, settings, sized};
use crate::seeded::for_all;

mod world;

/// One step of the random world. Numbers choose among whatever there is, round and round.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Arrive(usize),
    Leave(usize),
    Release(usize),
    /// A launch becomes ready, and takes so many GiB if that can be measured.
    Load(usize, Option<u64>),
    FailLoad(usize, Memory),
    /// A process that was told to stop is gone.
    End(usize),
    Crash(usize),
    Condemn(usize),
    /// An engine gives its first whole answer.
    Answer(usize),
    /// The engine has come to take too much.
    Outgrow(usize),
    Stale(usize),
    /// Something is told of an engine that is being stopped.
    Late(usize),
    /// A lease is given back that is not out.
    Foreign(usize),
    Wait(u64),
    /// The model's file says that its engine will take so many GiB.
    Estimate(usize, u64),
    /// The same, and what was measured in another run is a little more than the budget, or too much.
    Recall(usize, u64),
    /// The model's file cannot be loaded.
    Spoil(usize),
    Preload,
    Configure(usize, Change),
    Drain,
}

/// Whether a load died of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Short,
    Enough,
}

/// What is different in a new configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The model is started in another way.
    Revision,
    /// The same, and its file cannot be loaded.
    Spoilt,
    /// The model is of the group, or is so no longer.
    Group,
    /// The model is no longer configured, or is so again.
    Presence,
    /// The model stays once it is there, or does so no longer.
    Pin,
    /// So many GiB less, or a slot less.
    Bounds(u64),
    /// The bounds of waiting are so many parts of what they were.
    Waits(u64),
    /// The model's engine takes so many more at once, and lives for another time when nobody uses it.
    Use(u64),
}

/// A step from a random number; as numbers, steps are cheap to make and to shrink.
fn step(number: u32) -> Step {
    let (kind, which) = (number % 81, (number / 81) as usize);
    match kind {
        0..18 => Step::Arrive(which),
        18..21 => Step::Leave(which),
        21..34 => Step::Release(which),
        34..40 => Step::Load(which, None),
        40..42 => Step::Load(which, Some(which as u64 % 7)),
        42 => Step::FailLoad(which, Memory::Enough),
        43 => Step::FailLoad(which, Memory::Short),
        44..50 => Step::End(which),
        50 => Step::Crash(which),
        51 => Step::Condemn(which),
        52..54 => Step::Stale(which),
        54..61 => Step::Wait(which as u64 % 64),
        61 => Step::Wait(which as u64 % 700),
        62..64 => Step::Estimate(which, which as u64 / 8 % 7),
        64..66 => Step::Spoil(which),
        66 => Step::Preload,
        67 if which.is_multiple_of(2) => Step::Configure(which / 2, Change::Spoilt),
        67 => Step::Configure(which / 2, Change::Group),
        68 => Step::Configure(which, Change::Revision),
        69 => Step::Configure(which, Change::Presence),
        70 => Step::Configure(which, Change::Pin),
        71 => Step::Outgrow(which),
        72..75 => Step::Answer(which),
        75 => Step::Configure(which / 4, Change::Waits(which as u64 % 4)),
        76 => Step::Configure(which / 4, Change::Use(which as u64 % 4)),
        77 => Step::Late(which),
        78 => Step::Foreign(which),
        79 => Step::Recall(which, which as u64 / 8 % 7),
        _ if which.is_multiple_of(4) => Step::Drain,
        _ => Step::Configure(which, Change::Bounds(which as u64 / 4 % 4)),
    }
}

/// The machines: from one slot to several, with and without known sizes, pins, groups and times to live.
pub(crate) fn machine(number: usize) -> (Settings, Vec<(&'static str, Profile)>) {
    let base = Settings { queue: 6, ..settings() };
    let plain = ["a", "b", "c"].map(|name| (name, Profile::default())).to_vec();
    let parallel = |parallel, profile| Profile { parallel, ..profile };
    match number % 4 {
        0 => (base, plain),
        1 => {
            let profiles = vec![("a", parallel(2, sized(4))), ("b", sized(3)), ("c", parallel(3, sized(2)))];
            (Settings { max_resident: 3, budget: gib(6), ..base }, profiles)
        }
        2 => {
            let grouped = |ram| Profile { group: Some("g".to_owned()), ..sized(ram) };
            let fleeting = Profile { ttl: Some(seconds(30)), ..sized(1) };
            let too_large = sized(9);
            let profiles = vec![("a", grouped(2)), ("b", grouped(5)), ("c", fleeting), ("d", too_large)];
            (Settings { max_resident: 2, budget: gib(8), quantum: seconds(5), ..base }, profiles)
        }
        _ => {
            let pinned = Profile { pinned: true, preload: true, ..sized(1) };
            let profiles =
                vec![("a", pinned), ("b", parallel(2, sized(3))), ("c", sized(4)), ("d", sized(3))];
            (Settings { max_resident: 3, budget: gib(6), ..base }, profiles)
        }
    }
}

#[test]
fn the_rules_hold_over_random_events() {
    let sequences = (0..4usize, prop::collection::vec(any::<u32>().prop_map(step), 0..64));
    for_all(100_000, sequences, |(number, steps)| {
        let mut world = World::new(number);
        for step in steps {
            world.step(step);
        }
        world.settle();
        Ok(())
    });
}
