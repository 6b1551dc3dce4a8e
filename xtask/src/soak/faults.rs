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
/// For an engine to begin to load.
const LOAD: Duration = Duration::from_secs(5);

/// A source of faults, and its count.
pub(super) struct Faults {
    rig: Arc<Rig>,
    random: fastrand::Rng,
    variants: Variants,
    counts: BTreeMap<&'static str, usize>,
}

#[derive(Clone, Copy)]
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

    /// One fault after the other until told to stop.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Self {
        loop {
            let pause = Duration::from_millis(self.random.u64(PAUSE));
            if timeout(pause, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
                return self;
            }
            let fault = FAULTS[self.random.usize(..FAULTS.len())];
            if let Some(name) = self.happen(fault).await {
                *self.counts.entry(name).or_default() += 1;
            }
        }
    }

    /// Does it; its name, if there was something to do it to.
    async fn happen(&mut self, fault: Fault) -> Option<&'static str> {
        match fault {
            Fault::Kill => {
                strike(self.rig.engine("resident").await?, Signal::KILL).then_some("kill -9 of an engine")
            }
            Fault::Stop => {
                strike(self.rig.engine("resident").await?, Signal::STOP).then_some("SIGSTOP of an engine")
            }
            Fault::KillWhileLoading => {
                strike(self.loading().await?, Signal::KILL).then_some("kill -9 during a load")
            }
            Fault::RemoveSlots => self.remove_slots().then_some("saved slots removed"),
            Fault::Reload => {
                let model = self.changing().await;
                self.variants[model] += 1;
                self.rig.reload(self.variants).ok().map(|()| "reload, one model changed")
            }
            Fault::ReloadUnchanged => self.rig.reload(self.variants).ok().map(|()| "reload, nothing changed"),
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

/// Sends `signal` to an engine of ours; whether it was still there.
fn strike(pid: u32, signal: Signal) -> bool {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    is_running(pid) && process.is_some_and(|process| kill_process(process, signal).is_ok())
}
