//! What engines take: expected before a launch, measured after it, waited for after their end.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gglib_core::memory::{Footprint, Memory, MemoryProbe, expected_after_stop};
use gglib_core::model::{Estimate, ModelSpec};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::known_facts::KnownFacts;
use super::model_file::estimate_by;
use super::{FootprintFile, ModelFileError, launched, wait_for_memory};

/// Longest look at an engine or at the machine. The kernel answers in milliseconds, unless it is in trouble.
const LOOK: Duration = Duration::from_secs(1);
/// After an engine's end, longest wait for its memory. A GPU's driver may take a second or two.
const RETURN: Duration = Duration::from_secs(5);

/// What an engine will take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// By the headers of its files.
    pub(crate) estimate: Memory,
    /// By a measurement of the same engine, if there is one.
    pub(crate) measured: Option<Memory>,
}

/// The books of one machine's memory; cheap to clone. Whatever may block is done on threads that may, within bounds.
#[derive(Clone)]
pub struct Accounts {
    probe: Arc<dyn MemoryProbe>,
    record: Arc<Mutex<FootprintFile>>,
    facts: Arc<KnownFacts>,
}

impl Accounts {
    /// Measures by `probe` and remembers in `record`.
    pub fn new(probe: Arc<dyn MemoryProbe>, record: FootprintFile) -> Self {
        Self { probe, record: Arc::new(Mutex::new(record)), facts: Arc::default() }
    }

    /// What an engine of `spec`, run from `engine`, will take: by the headers of its files, and corrected by what was
    /// measured of the same engine before. Blocks.
    ///
    /// # Errors
    /// When the files say nothing about it.
    pub(crate) fn expected(&self, spec: &ModelSpec, engine: &Path) -> Result<Expected, ModelFileError> {
        let estimate = self.estimate(spec)?;
        let launched = launched(spec, engine)?;
        let seen = self.record.lock().unwrap_or_else(PoisonError::into_inner).recall(&launched);
        let measured = seen.map(|seen| estimate.corrected(seen));
        Ok(Expected { estimate: estimate.memory(), measured })
    }

    /// Measures the engine of `spec`, run from `engine` with the process id `leader`, which has just become ready,
    /// and remembers it. The measurement does not wait for the disk of its record, and counts by itself when the model's
    /// file does not answer.
    pub(crate) async fn measured(&self, spec: &ModelSpec, engine: &Path, leader: u32) -> Option<Memory> {
        let probe = Arc::clone(&self.probe);
        let footprint = look(move || probe.footprint(leader)).await??;
        let (accounts, spec, engine) = (self.clone(), spec.clone(), engine.to_owned());
        let estimate = look(move || {
            accounts.remember(&spec, &engine, footprint);
            accounts.estimate(&spec).ok()
        });
        Some(
            estimate
                .await
                .flatten()
                .map_or_else(|| plain(footprint), |estimate| estimate.corrected(footprint)),
        )
    }

    /// What the engine with the process id `leader` has taken by now and only its end gives back, in bytes; also what lies
    /// in swap.
    pub(crate) async fn taken(&self, leader: u32) -> Option<u64> {
        let probe = Arc::clone(&self.probe);
        look(move || {
            let Footprint { anonymous, swapped, vram, .. } = probe.footprint(leader)?;
            Some(anonymous.saturating_add(swapped).saturating_add(vram))
        })
        .await?
    }

    /// What should be available once the engine with the process id `leader`, which still runs, has ended; no more
    /// than all engines together may take.
    pub(crate) async fn available_after(&self, leader: u32) -> Option<Memory> {
        let probe = Arc::clone(&self.probe);
        look(move || {
            let Footprint { anonymous, vram, .. } = probe.footprint(leader)?;
            let machine = probe.machine();
            let expected = expected_after_stop(machine.available, Memory { ram: anonymous, vram });
            let most = machine.auto_budget();
            Some(Memory { ram: expected.ram.min(most.ram), vram: expected.vram.min(most.vram) })
        })
        .await?
    }

    /// Waits until so much is available, within a bound. A launch after it may fail, or succeed all the same.
    pub(crate) async fn wait_for(&self, available: Memory) {
        if let Err(missing) = wait_for_memory(&self.probe, available, RETURN).await {
            tracing::warn!(%missing, "the memory of an engine that has ended is not back yet");
        }
    }

    /// Keeps what was measured. It is written by a thread that nobody waits for.
    fn remember(&self, spec: &ModelSpec, engine: &Path, footprint: Footprint) {
        let Ok(launched) = launched(spec, engine) else { return };
        self.record.lock().unwrap_or_else(PoisonError::into_inner).remember(launched, footprint);
        let record = Arc::clone(&self.record);
        spawn_blocking(move || {
            if let Err(error) = FootprintFile::write_down(&record) {
                tracing::warn!(%error, "what an engine takes is known to this run only");
            }
        });
    }

    fn estimate(&self, spec: &ModelSpec) -> Result<Estimate, ModelFileError> {
        estimate_by(spec, self.vram(), |path| self.facts.of(path))
    }

    fn vram(&self) -> u64 {
        self.probe.machine().auto_budget().vram
    }
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").field("record", &self.record).finish_non_exhaustive()
    }
}

/// The answer of a thread that may block, unless it takes too long.
async fn look<T: Send + 'static>(question: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    timeout(LOOK, spawn_blocking(question)).await.ok()?.ok()
}

/// A footprint of which nothing else is known.
fn plain(footprint: Footprint) -> Memory {
    Memory { ram: footprint.anonymous.saturating_add(footprint.mapped), vram: footprint.vram }
}

#[cfg(test)]
mod tests {
    use gglib_core::memory::Machine;

    use super::*;

    struct Scale;

    const TAKEN: Footprint = Footprint { anonymous: 5 << 20, mapped: 7 << 20, vram: 0, swapped: 0 };

    impl MemoryProbe for Scale {
        fn machine(&self) -> Machine {
            Machine::default()
        }

        fn footprint(&self, _: u32) -> Option<Footprint> {
            Some(TAKEN)
        }
    }

    #[tokio::test]
    async fn a_measurement_does_not_wait_for_a_record_whose_disk_hangs() {
        let dir = tempfile::tempdir().unwrap();
        let record = FootprintFile::open(&dir.path().join("footprints.jsonl"));
        let accounts = Accounts::new(Arc::new(Scale), record);
        let spec = ModelSpec::new(dir.path().join("m.gguf"));
        std::fs::write(&spec.path, "GGUF").unwrap();
        let engine = dir.path().join("llama-server");
        std::fs::write(&engine, "engine").unwrap();
        // A thread is writing it for ever, after an earlier measurement.
        {
            let mut record = accounts.record.lock().unwrap();
            record.remember(launched(&ModelSpec::new(&engine), &engine).unwrap(), TAKEN);
            assert!(record.begin().is_some());
        }
        let measured = accounts.measured(&spec, &engine, 1).await;
        assert_eq!(measured, Some(Memory { ram: 12 << 20, vram: 0 }));
        let launched = launched(&spec, &engine).unwrap();
        assert_eq!(accounts.record.lock().unwrap().recall(&launched), Some(TAKEN));
    }
}
