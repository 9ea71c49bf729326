//! What every step of a pull needs: whom to tell, when to stop, and how to speak of it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::HubError;

/// How often a wait looks whether it should end.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// How far a pull is: one bar and its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What happens.
    pub phase: Phase,
    /// Bytes done in this phase, at most `total_bytes`.
    pub done_bytes: u64,
    /// Bytes of this phase; not 0.
    pub total_bytes: u64,
}

/// The phases of a pull, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Another pull of the same model runs.
    Waiting,
    /// The source is asked what there is.
    Asking,
    /// Files come over the line.
    Downloading,
    /// A file is taken out of its package.
    Extracting,
    /// Files are compared with their hashes.
    Verifying,
}

impl Phase {
    /// A word for people.
    pub fn label(self) -> &'static str {
        match self {
            Phase::Waiting => "waiting for another pull of",
            Phase::Asking => "looking up",
            Phase::Downloading => "downloading",
            Phase::Extracting => "extracting",
            Phase::Verifying => "verifying",
        }
    }
}

/// One pull.
pub(crate) struct Job<'a> {
    /// What the user calls the model.
    pub(crate) name: String,
    pub(crate) cancel: &'a AtomicBool,
    pub(crate) progress: &'a mut dyn FnMut(Progress),
    pub(crate) last: Progress,
}

impl<'a> Job<'a> {
    pub(crate) fn new(name: &str, cancel: &'a AtomicBool, progress: &'a mut dyn FnMut(Progress)) -> Self {
        let last = Progress { phase: Phase::Asking, done_bytes: 0, total_bytes: 1 };
        Job { name: name.to_owned(), cancel, progress, last }
    }

    /// Tells how far `phase` is.
    pub(crate) fn tell(&mut self, phase: Phase, done_bytes: u64, total_bytes: u64) {
        let total_bytes = total_bytes.max(1);
        self.last = Progress { phase, done_bytes: done_bytes.min(total_bytes), total_bytes };
        (self.progress)(self.last);
    }

    /// An error if the caller wants to stop; otherwise shows that the pull is alive.
    pub(crate) fn check(&mut self) -> Result<(), HubError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(HubError::Cancelled { name: self.name.clone() });
        }
        (self.progress)(self.last);
        Ok(())
    }

    /// Waits, unless the caller wants to stop.
    pub(crate) fn sleep(&mut self, time: Duration) -> Result<(), HubError> {
        let started = Instant::now();
        while let Some(left) = time.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
            self.check()?;
            std::thread::sleep(left.min(POLL));
        }
        self.check()
    }

    /// Turns the system's error into ours. `needed_bytes` is what was still to be written.
    pub(crate) fn failed(
        &self,
        action: &'static str,
        path: &Path,
        needed_bytes: u64,
    ) -> impl FnOnce(io::Error) -> HubError + use<> {
        let (path, name) = (path.to_owned(), self.name.clone());
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let folder = path.parent().unwrap_or(&path).to_owned();
                HubError::NoSpace { name, folder, needed_bytes, available_bytes: None }
            }
            _ => HubError::Io { action, path, source },
        }
    }
}

/// An error of the file system outside a pull.
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HubError + use<> {
    let path = path.to_owned();
    move |source| HubError::Io { action, path, source }
}
