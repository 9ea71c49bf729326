//! Memory-mapped files as reference-counted bytes: the only unsafe code of this crate.
//!
//! **A mapped file must not change.** The map shows the file as it is on disk at the moment of each access. If another
//! process overwrites the file in place, weights change under a running model; if it truncates the file, reading past
//! the new end raises SIGBUS and the process dies. No check here can prevent either. Replace model files by writing
//! aside and renaming, which leaves the mapped file intact; the downloader does so. Everything that decides what is
//! read where (headers, shapes, offsets) is parsed once, at load, and copied, so a later change can alter values but
//! not make a read leave the map.

use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use crate::LoadError;

/// Maps all of `path`, read-only. Slices of the result share the map and keep it alive.
pub(crate) fn map_file(path: &Path) -> Result<Bytes, LoadError> {
    let file = File::open(path).map_err(|source| LoadError::read(path, source))?;
    let metadata = file.metadata().map_err(|source| LoadError::read(path, source))?;
    if !metadata.is_file() {
        return Err(LoadError::malformed(path, "is not a regular file, expected a model file"));
    }
    if metadata.len() == 0 {
        return Err(LoadError::malformed(path, "file is empty, expected a model; fetch it again"));
    }
    Ok(Bytes::from_owner(map(path, &file)?))
}

#[expect(unsafe_code, reason = "mapping a file is unsafe; see the SAFETY comment")]
fn map(path: &Path, file: &File) -> Result<Mmap, LoadError> {
    // SAFETY: the map is private to this process and read-only. The remaining hazard, another process changing the file,
    // cannot be excluded by any program; the module documentation says what happens then. All users treat the bytes as
    // plain numbers for which every bit pattern is valid.
    unsafe { Mmap::map(file) }.map_err(|source| LoadError::read(path, source))
}
