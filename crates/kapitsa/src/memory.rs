//! How much memory there is, and how much is left.

use sysinfo::{MemoryRefreshKind, System};

/// Memory of the machine, or of the container that the process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that the machine has.
    pub total_bytes: u64,
    /// Bytes that the container may use, if that is less.
    pub limit_bytes: Option<u64>,
    /// Bytes that can still be used without swapping, within the limit.
    pub available_bytes: u64,
}

impl Memory {
    /// Bytes that programs here can have at most, if nothing else runs.
    pub fn within_limit_bytes(&self) -> u64 {
        self.limit_bytes.unwrap_or(self.total_bytes)
    }

    /// Memory at this moment.
    pub fn now() -> Memory {
        let mut system = System::new();
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let (total_bytes, of_machine) = (system.total_memory(), system.available_memory());
        let limits = system.cgroup_limits();
        // A container's own count of free memory takes cached files, such as the model's, for used.
        let of_container = |limits: &sysinfo::CGroupLimits| limits.total_memory.saturating_sub(limits.rss);
        Memory {
            total_bytes,
            limit_bytes: limits.as_ref().map(|limits| limits.total_memory).filter(|limit| *limit < total_bytes),
            available_bytes: limits.as_ref().map_or(of_machine, |limits| of_container(limits).min(of_machine)),
        }
    }
}
