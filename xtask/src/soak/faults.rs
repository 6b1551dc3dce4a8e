//! What is done to the engines meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use gglib_testkit::engines::is_running;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::rig::{MODELS, Rig, Variants};

/// Between two faults, in milliseconds.
const PAUSE: Range<u64> = 2_000..8_000;
/// Minutes in which some fault has to happen, and in which each has to.
const SOME: u16 = 2;
const EACH: u16 = 10;
/// For an engine to begin to load.
const LOAD: Duration = Duration::from_secs(5);

/// A source of faults, and its count.
pub(super) struct Faults {
    rig: Arc<Rig>,
    random: fastrand::Rng,
    variants: Variants,
    counts: BTreeMap<&'static str, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    KillWhileLoading,
    Stop,
    RemoveSlots,
    Reload,
    ReloadUnchanged,
}

/// Each as often as it stands here.
const FAULTS: [Fault; 13] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::KillWhileLoading,
    Fault::KillWhileLoading,
    Fault::Stop,
    Fault::RemoveSlots,
    Fault::RemoveSlots,
    Fault::Reload,
    Fault::Reload,
    Fault::Reload,
    Fault::ReloadUnchanged,
];

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9 of an engine",
            Self::KillWhileLoading => "kill -9 during a load",
            Self::Stop => "SIGSTOP of an engine",
            Self::RemoveSlots => "saved slots removed",
            Self::Reload => "reload, one model changed",
            Self::ReloadUnchanged => "reload, nothing changed",
        }
    }
}

impl Faults {
    pub(super) fn new(rig: Arc<Rig>, seed: u64) -> Self {
        Self {
            rig,
            random: fastrand::Rng::with_seed(!seed),
            variants: Variants::default(),
            counts: BTreeMap::new(),
        }
    }

    /// How often each fault happened.
    pub(super) fn counts(&self) -> &BTreeMap<&'static str, usize> {
        &self.counts
    }

    /// What a run of so many minutes cannot do without, and has not had: without faults it says nothing.
    pub(super) fn missing(&self, minutes: u16) -> Vec<String> {
        missing(&self.counts, minutes)
    }

    /// One fault after the other until told to stop.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Self {
        loop {
            let pause = Duration::from_millis(self.random.u64(PAUSE));
            if timeout(pause, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
                return self;
            }
            let fault = FAULTS[self.random.usize(..FAULTS.len())];
            if self.happen(fault).await {
                *self.counts.entry(fault.name()).or_default() += 1;
            }
        }
    }

    /// Does it; whether there was something to do it to.
    async fn happen(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Kill => strike(self.rig.engine("resident").await, Signal::KILL),
            Fault::Stop => strike(self.rig.engine("resident").await, Signal::STOP),
            Fault::KillWhileLoading => strike(self.loading().await, Signal::KILL),
            Fault::RemoveSlots => self.remove_slots(),
            Fault::Reload => {
                let model = self.changing().await;
                self.variants[model] += 1;
                self.rig.reload(self.variants).is_ok()
            }
            Fault::ReloadUnchanged => self.rig.reload(self.variants).is_ok(),
        }
    }

    /// One whose engines are left alone, if there is one: with a change it begins anew.
    async fn changing(&mut self) -> usize {
        for (number, model) in MODELS.iter().enumerate() {
            if self.rig.is_broken(model).await {
                return number;
            }
        }
        self.random.usize(..MODELS.len())
    }

    async fn loading(&self) -> Option<u32> {
        let until = Instant::now() + LOAD;
        while Instant::now() < until {
            if let Some(pid) = self.rig.engine("loading").await {
                return Some(pid);
            }
            sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// Half of the files, the manifest left alone.
    fn remove_slots(&mut self) -> bool {
        let mut removed = false;
        for entry in fs::read_dir(self.rig.slots()).into_iter().flatten().filter_map(Result::ok) {
            let name = entry.file_name();
            let is_ours = name != "lock" && !name.to_string_lossy().starts_with("manifest");
            removed |= is_ours && self.random.bool() && fs::remove_file(entry.path()).is_ok();
        }
        removed
    }
}

/// Sends `signal` to an engine of ours; whether there was one, and it was still there.
fn strike(pid: Option<u32>, signal: Signal) -> bool {
    let Some(pid) = pid else { return false };
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    is_running(pid) && process.is_some_and(|process| kill_process(process, signal).is_ok())
}

fn missing(counts: &BTreeMap<&'static str, usize>, minutes: u16) -> Vec<String> {
    if minutes >= SOME && counts.is_empty() {
        return vec![format!("no fault has happened in {minutes} min")];
    }
    let mut missing = Vec::new();
    for name in FAULTS.map(Fault::name) {
        let problem = format!("in {minutes} min this has not happened: {name}");
        if minutes >= EACH && !counts.contains_key(name) && !missing.contains(&problem) {
            missing.push(problem);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_faults_is_no_soak_and_a_long_one_has_each() {
        let none = BTreeMap::new();
        assert_eq!(missing(&none, 1), Vec::<String>::new());
        assert_eq!(missing(&none, 2), ["no fault has happened in 2 min"]);
        let mut all: BTreeMap<_, _> = FAULTS.map(|fault| (fault.name(), 1)).into();
        assert_eq!((all.len(), missing(&all, 10)), (6, Vec::new()));
        all.remove(Fault::RemoveSlots.name());
        assert_eq!(missing(&all, 9), Vec::<String>::new());
        assert_eq!(missing(&all, 10), ["in 10 min this has not happened: saved slots removed"]);
    }
}
