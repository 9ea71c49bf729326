//! Processor and operating system.

use kapitsa_cpu::Isa;
use sysinfo::{CpuRefreshKind, RefreshKind};

/// A processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// What its maker calls it, where it says so.
    pub model: Option<String>,
    /// Its architecture.
    pub architecture: String,
    /// Cores of the machine, with hyper-threads counted as cores.
    pub machine_cores: usize,
    /// Those of them that this process may use.
    pub cores: usize,
    /// The features that instruction sets are made of, and whether it has them.
    pub features: Vec<(&'static str, bool)>,
    /// The instruction sets that kernels are there for and that it has; the last one is used.
    pub sets: Vec<Isa>,
}

/// An operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Name and version.
    pub name: Option<String>,
    /// Version of the kernel.
    pub kernel: Option<String>,
    /// Name and version of the C library, where programs share one.
    pub libc: Option<String>,
}

impl Processor {
    pub(super) fn now() -> Processor {
        let kind = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
        let system = sysinfo::System::new_with_specifics(kind);
        let model = system.cpus().first().map(|cpu| cpu.brand().trim().to_string());
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        Processor {
            model: model.filter(|model| !model.is_empty()),
            architecture: sysinfo::System::cpu_arch(),
            machine_cores: system.cpus().len().max(cores),
            cores,
            features: kapitsa_cpu::features(),
            sets: Isa::present(),
        }
    }

    /// The instruction set that is used.
    pub fn chosen(&self) -> Isa {
        self.sets.last().copied().unwrap_or(Isa::Portable)
    }
}

impl System {
    pub(super) fn now() -> System {
        System { name: sysinfo::System::long_os_version(), kernel: sysinfo::System::kernel_version(), libc: libc() }
    }
}

/// What the C library in use says of itself.
fn libc() -> Option<String> {
    if cfg!(target_env = "musl") {
        return Some("musl, part of the program".into());
    }
    if !cfg!(target_os = "linux") {
        return None;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let is_libc = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libc.so"));
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(is_libc)?;
    glibc(&std::fs::read(path).ok()?)
}

/// The version in the text that glibc carries: `GNU C Library (...) stable release version 2.36.`
fn glibc(library: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"GNU C Library ";
    let start = library.windows(NAME.len()).position(|window| window == NAME)?;
    let line = library[start..].split(|&byte| byte == b'\n').next()?;
    let (_, version) = std::str::from_utf8(line).ok()?.split_once(" version ")?;
    Some(format!("glibc {}", version.trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_has_cores_and_the_portable_set() {
        let processor = Processor::now();
        assert!((1..=processor.machine_cores).contains(&processor.cores), "{processor:?}");
        assert_eq!(processor.sets[0], Isa::Portable);
        assert_eq!(processor.chosen(), Isa::best());
    }

    #[test]
    fn the_version_of_glibc_is_read_from_its_banner() {
        let library = b"\x7fELF\0GNU C Library (Distribution 2.36-9) stable release version 2.36.\nCopyright\0";
        assert_eq!(glibc(library).as_deref(), Some("glibc 2.36"));
        assert_eq!(glibc(b"GNU C Library of no"), None);
        assert_eq!(glibc(b""), None);
        if cfg!(all(target_os = "linux", target_env = "gnu")) {
            assert!(System::now().libc.is_some_and(|libc| libc.starts_with("glibc 2.")));
        }
    }
}
