//! GPUs and their memory.
//!
//! NVIDIA's library is loaded when it is there. Without it, or with GPUs of others, there is no memory but main
//! memory for us: then everything counts as main memory, and an engine that uses a GPU all the same
//! takes less of it than expected. No machine with a GPU was at hand, so only what goes through this port is
//! tested, with a fake.

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

/// Whoever knows the GPUs.
pub(super) trait Gpus: Send + Sync {
    /// Of all GPUs together.
    fn machine(&self) -> Vram;

    /// Bytes that these processes take on all GPUs together.
    fn used_by(&self, processes: &[u32]) -> u64;
}

/// Memory of GPUs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Vram {
    pub(super) total: u64,
    pub(super) free: u64,
}

/// The GPUs of this machine.
pub(super) fn find() -> Box<dyn Gpus> {
    match Nvml::init() {
        Ok(nvml) => Box::new(nvml),
        Err(error) => {
            tracing::debug!(%error, "no NVIDIA GPU");
            Box::new(NoGpus)
        }
    }
}

struct NoGpus;

impl Gpus for NoGpus {
    fn machine(&self) -> Vram {
        Vram::default()
    }

    fn used_by(&self, _: &[u32]) -> u64 {
        0
    }
}

impl Gpus for Nvml {
    fn machine(&self) -> Vram {
        let mut vram = Vram::default();
        for index in 0..self.device_count().unwrap_or(0) {
            match self.device_by_index(index).and_then(|device| device.memory_info()) {
                Ok(memory) => {
                    vram.total = vram.total.saturating_add(memory.total);
                    vram.free = vram.free.saturating_add(memory.free);
                }
                Err(error) => tracing::debug!(%error, index, "a GPU does not tell its memory"),
            }
        }
        vram
    }

    fn used_by(&self, processes: &[u32]) -> u64 {
        (0..self.device_count().unwrap_or(0)).fold(0, |sum: u64, index| {
            let used = used_on(self, index, processes).unwrap_or(0);
            sum.saturating_add(used)
        })
    }
}

/// CUDA's processes and Vulkan's are listed apart, and one may be in both lists with the same number.
fn used_on(nvml: &Nvml, index: u32, processes: &[u32]) -> Result<u64, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let listed = [device.running_compute_processes()?, device.running_graphics_processes()?].concat();
    Ok(processes.iter().fold(0, |sum: u64, process| {
        let entries = listed.iter().filter(|listed| listed.pid == *process);
        let used = entries.map(|entry| match entry.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => bytes,
            UsedGpuMemory::Unavailable => 0,
        });
        sum.saturating_add(used.max().unwrap_or(0))
    }))
}
