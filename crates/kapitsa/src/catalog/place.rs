//! The models folder: which files are in place, and how one gets there.
//!
//! Beside a model's file `F` lie `.F.verified` (which file was verified) and `.F.lock` (who may fetch it now); while it is
//! fetched also a folder `.F.*.partial`.

use std::{
    fs::{self, File, Metadata, TryLockError},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::{
    Entry,
    fetch::{FetchError, Job, Phase},
};

/// How often a lock that another fetch holds is tried.
const POLL: Duration = Duration::from_millis(100);

const BUFFER_BYTES: usize = 1 << 20;

const PARTIAL: &str = ".partial";

/// Whether the file is there, whole and unchanged since it was verified. Verifies it if nobody has yet.
pub(super) fn is_in_place(job: &mut Job, path: &Path) -> Result<bool, FetchError> {
    let data = match fs::metadata(path) {
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(job.failed("read", path)(error)),
    };
    let entry = job.entry;
    if !data.is_file() || data.len() != entry.size_bytes {
        tracing::warn!("{} has {} bytes, expected {}: fetching it again", path.display(), data.len(), entry.size_bytes);
        return Ok(false);
    }
    let mark = mark(entry, &data);
    if mark.is_some() && fs::read_to_string(marker(path, entry)).ok() == mark {
        return Ok(true);
    }
    match verify(job, path) {
        Ok(()) => {
            write_marker(path, entry, mark);
            Ok(true)
        }
        Err(FetchError::WrongHash { found, expected, .. }) => {
            tracing::warn!("{} has sha256 {found}, expected {expected}: fetching it again", path.display());
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Compares the file with the catalog's hash.
pub(super) fn verify(job: &mut Job, file: &Path) -> Result<(), FetchError> {
    let mut reader = File::open(file).map_err(job.failed("open", file))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut done = 0;
    let entry = job.entry;
    loop {
        job.check()?;
        job.tell(Phase::Verifying, done, entry.size_bytes);
        let read = reader.read(&mut buffer).map_err(job.failed("read", file))?;
        if read == 0 {
            break;
        }
        digest.update(&buffer[..read]);
        done += read as u64;
    }
    let found: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found == entry.sha256 {
        return Ok(());
    }
    Err(FetchError::WrongHash { model: entry.name.clone(), found, expected: entry.sha256.clone() })
}

/// Moves a verified file to its place, in one step.
pub(super) fn put(job: &mut Job, file: &Path, path: &Path) -> Result<(), FetchError> {
    let mark = fs::metadata(file).ok().and_then(|data| mark(job.entry, &data));
    if let Err(error) = fs::rename(file, path) {
        // Where a file in use cannot be replaced, another fetch may have put the same file there and opened it.
        if !is_in_place(job, path)? {
            return Err(job.failed("place", path)(error));
        }
    }
    write_marker(path, job.entry, mark);
    Ok(())
}

/// The right to fetch a file.
pub(super) struct Lock {
    /// Held until this is dropped; None where the file system has no locks.
    file: Option<File>,
    /// Whether another fetch had it first.
    pub(super) has_waited: bool,
}

impl Lock {
    /// Whether nobody else fetches the file now.
    pub(super) fn is_exclusive(&self) -> bool {
        self.file.is_some()
    }
}

/// Waits for the right to fetch the file of the job's entry.
pub(super) fn lock(job: &mut Job, folder: &Path) -> Result<Lock, FetchError> {
    let path = folder.join(format!(".{}.lock", job.entry.file));
    let file = File::options().create(true).append(true).open(&path).map_err(job.failed("create", &path))?;
    let mut has_waited = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock { file: Some(file), has_waited }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                // Two fetches may then run at a time: a waste, but each has its own folder, and the last rename wins.
                tracing::debug!("cannot lock {}: {error}", path.display());
                return Ok(Lock { file: None, has_waited });
            }
        }
        has_waited = true;
        job.check()?;
        job.tell(Phase::Waiting, 0, 1);
        std::thread::sleep(POLL);
    }
}

/// A folder for everything of one fetch; removed when dropped.
pub(super) fn temporary(job: &Job, folder: &Path) -> Result<TempDir, FetchError> {
    let prefix = format!(".{}.", job.entry.file);
    tempfile::Builder::new().prefix(&prefix).suffix(PARTIAL).tempdir_in(folder).map_err(job.failed("write to", folder))
}

/// Removes the temporary folders of fetches that were killed. The lock must be held.
pub(super) fn remove_leftovers(entry: &Entry, folder: &Path) {
    let prefix = format!(".{}.", entry.file);
    for leftover in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = leftover.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(&prefix) && name.ends_with(PARTIAL));
        if is_ours && leftover.file_type().is_ok_and(|kind| kind.is_dir()) {
            match fs::remove_dir_all(leftover.path()) {
                Ok(()) => tracing::debug!("removed what a killed fetch left: {}", leftover.path().display()),
                Err(error) => tracing::warn!("cannot remove {}: {error}", leftover.path().display()),
            }
        }
    }
}

/// An error if the fetch cannot fit. Where the free space is unknown, the writes will tell.
pub(super) fn check_space(job: &Job, folder: &Path) -> Result<(), FetchError> {
    match fs4::available_space(folder) {
        Ok(available) if available < job.needed_bytes() => Err(job.no_space()),
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::debug!("cannot tell the free space of {}: {error}", folder.display());
            Ok(())
        }
    }
}

fn marker(path: &Path, entry: &Entry) -> PathBuf {
    path.with_file_name(format!(".{}.verified", entry.file))
}

/// What the marker of a verified file says: a change of the file or of the catalog makes it say something else. None if
/// the file system does not tell when the file was changed.
fn mark(entry: &Entry, data: &Metadata) -> Option<String> {
    let modified = data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}\n", entry.sha256, data.len(), modified.as_nanos()))
}

/// Notes that the file was verified. Without the note it is verified again next time, so nothing is lost on failure.
fn write_marker(path: &Path, entry: &Entry, mark: Option<String>) {
    let Some(mark) = mark else { return };
    let marker = marker(path, entry);
    if let Err(error) = fs::write(&marker, mark) {
        tracing::debug!("cannot write {}: {error}", marker.display());
    }
}
