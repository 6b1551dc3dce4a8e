//! Memory as it is: what the machine has, what engines take of it, what model files will need.
//!
//! Reading files of the system and of models blocks, so all of it is done on threads that may.

use std::sync::{Mutex, PoisonError};

use gglib_core::memory::{Footprint, Machine, Memory, MemoryProbe};
use sysinfo::System;
use thiserror::Error;

use gpus::Gpus;

pub use accounts::Accounts;
pub(crate) use accounts::Expected;
pub use footprint_file::FootprintFile;
pub use model_file::{ModelFileError, estimate, facts, launched};
pub use wait::{MemoryMissing, wait_for_memory};

mod accounts;
mod cgroup;
mod footprint_file;
mod gpus;
mod known_facts;
mod model_file;
mod process_group;
mod wait;

/// The memory of this machine: main memory from the system, within the limits of our control groups; that of
/// GPUs from NVIDIA's management library, where there is one.
pub struct SystemProbe {
    system: Mutex<System>,
    gpus: Box<dyn Gpus>,
}

/// Nobody knows how much memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this system does not tell how much memory it has")]
pub struct MemoryUnknown;

impl SystemProbe {
    /// A probe; looks for GPUs once.
    ///
    /// # Errors
    /// On a system that cannot be asked.
    pub fn new() -> Result<Self, MemoryUnknown> {
        let mut system = System::new().map_err(|_| MemoryUnknown)?;
        system.refresh_memory();
        if system.total_memory() == 0 {
            return Err(MemoryUnknown);
        }
        Ok(Self { system: Mutex::new(system), gpus: gpus::find() })
    }
}

impl MemoryProbe for SystemProbe {
    fn machine(&self) -> Machine {
        let (total, available) = {
            let mut system = self.system.lock().unwrap_or_else(PoisonError::into_inner);
            system.refresh_memory();
            (system.total_memory(), system.available_memory())
        };
        let ours = cgroup::bounds();
        let vram = self.gpus.machine();
        Machine {
            total: Memory { ram: total.min(ours.limit), vram: vram.total },
            available: Memory { ram: available.min(ours.available), vram: vram.free },
        }
    }

    /// Main memory is measured on Linux only; elsewhere there is no footprint.
    fn footprint(&self, leader: u32) -> Option<Footprint> {
        let group = process_group::measure(leader)?;
        Some(Footprint {
            anonymous: group.anonymous,
            mapped: group.mapped,
            swapped: group.swapped,
            vram: self.gpus.used_by(&group.processes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OneGpu;

    impl Gpus for OneGpu {
        fn machine(&self) -> gpus::Vram {
            gpus::Vram { total: 8 << 30, free: 5 << 30 }
        }

        fn used_by(&self, processes: &[u32]) -> u64 {
            if processes.contains(&std::process::id()) { 3 << 30 } else { 0 }
        }
    }

    #[test]
    fn the_machine_has_what_its_parts_say() {
        let probe = SystemProbe { gpus: Box::new(OneGpu), ..SystemProbe::new().unwrap() };
        let Machine { total, available } = probe.machine();
        assert_eq!((total.vram, available.vram), (8 << 30, 5 << 30));
        assert!(total.ram > 256 << 20, "{total:?}");
        assert!(0 < available.ram && available.ram <= total.ram, "{available:?} of {total:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_groups_footprint_is_that_of_its_processes() {
        let probe = SystemProbe { gpus: Box::new(OneGpu), ..SystemProbe::new().unwrap() };
        let group = rustix::process::getpgid(None).unwrap().as_raw_nonzero().get();
        let footprint = probe.footprint(u32::try_from(group).unwrap()).unwrap();
        assert!(footprint.anonymous > 100 << 10, "{footprint:?}");
        assert_eq!(footprint.vram, 3 << 30);
        // No process can have this number.
        assert_eq!(probe.footprint(u32::MAX), None);
    }
}
