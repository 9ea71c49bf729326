//! What this machine is and what it can do, read or measured at the moment it is asked for.

mod advice;
mod disk;
mod machine;
mod models;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use kapitsa_hub::{Hub, Local};

use crate::Memory;

pub use disk::{Disk, Origin, ReadSpeed};
pub use kapitsa_cpu::Isa;
pub use machine::{Processor, System};
pub use models::{Candidate, Fit};

/// A machine, as it was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its operating system.
    pub system: System,
    /// Its processor.
    pub processor: Processor,
    /// Its memory.
    pub memory: Memory,
    /// Bytes that all cores together read from memory in a second, or why that was not measured.
    pub read_bandwidth: Result<f64, String>,
    /// The disk of the models folder.
    pub disk: Disk,
    /// Models that are here, whole or in part.
    pub models: Vec<Local>,
    /// The catalog.
    pub catalog: Vec<Candidate>,
}

/// Something that takes a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// How fast memory is read.
    Memory,
    /// How fast the disk is read.
    Disk,
}

impl Step {
    /// In words.
    pub fn label(self) -> &'static str {
        match self {
            Step::Memory => "measuring memory",
            Step::Disk => "measuring the disk",
        }
    }
}

/// The user asked to stop. Nothing is left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// Examines the machine, and the disk that the models of a hub lie on. `show` hears what is measured; `cancel` stops it within a
/// fraction of a second.
///
/// # Errors
/// Only if it is cancelled: what cannot be found out is part of the report.
pub fn examine(hub: &Hub, cancel: &AtomicBool, show: &mut dyn FnMut(Step)) -> Result<Report, Cancelled> {
    let processor = Processor::now();
    // What other programs leave is what counts, so memory is asked for before it is used.
    let memory = Memory::now();
    show(Step::Memory);
    let read_bandwidth = kapitsa_cpu::read_bandwidth(processor.cores).map_err(|error| error.to_string());
    check(cancel)?;
    show(Step::Disk);
    let disk = Disk::measure(&hub.home().join("models"), cancel)?;
    let catalog = models::candidates(hub, &memory, read_bandwidth.as_ref().ok().copied());
    Ok(Report { system: System::now(), processor, memory, read_bandwidth, disk, models: hub.list(), catalog })
}

fn check(cancel: &AtomicBool) -> Result<(), Cancelled> {
    if cancel.load(Ordering::SeqCst) { Err(Cancelled) } else { Ok(()) }
}

/// The nearest folder that exists: `path`, or where it would be made.
fn existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    absolute.ancestors().find(|folder| folder.is_dir()).unwrap_or(path).into()
}
