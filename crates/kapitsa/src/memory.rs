//! How much memory is left.

use sysinfo::{MemoryRefreshKind, System};

/// Bytes that can still be used without swapping, within the limit of a container.
pub(crate) fn available() -> u64 {
    let mut system = System::new();
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    let of_machine = system.available_memory();
    // A container's own count of free memory takes cached files, such as the model's, for used.
    let of_container = |limits: sysinfo::CGroupLimits| limits.total_memory.saturating_sub(limits.rss);
    system.cgroup_limits().map_or(of_machine, |limits| of_container(limits).min(of_machine))
}
