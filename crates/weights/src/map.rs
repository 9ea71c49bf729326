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
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

use crate::LoadError;

/// A file mapped into memory, read-only. Clones share the map.
#[derive(Clone, Debug)]
pub(crate) struct Map(Arc<Mmap>);

/// What keeps a map alive while parts of it are in use.
struct Owner(Map);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

impl Map {
    /// Maps all of `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let file = File::open(path).map_err(|source| LoadError::read(path, source))?;
        let metadata = file.metadata().map_err(|source| LoadError::read(path, source))?;
        if !metadata.is_file() {
            return Err(LoadError::malformed(path, "is not a regular file, expected a model file"));
        }
        if metadata.len() == 0 {
            return Err(LoadError::malformed(path, "file is empty, expected a model; fetch it again"));
        }
        Ok(Map(Arc::new(map(path, &file)?)))
    }

    /// All bytes. Slices of them share the map and keep it alive.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::from_owner(Owner(self.clone()))
    }

    /// Size of the file.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Gives the memory of `part` back to the system, if it is a part of this map. Reading it again reads the file again.
    pub(crate) fn release(&self, part: &[u8]) {
        let start = (part.as_ptr() as usize).checked_sub(self.0.as_ptr() as usize);
        if let Some(start) = start.filter(|start| start.saturating_add(part.len()) <= self.0.len()) {
            forget(&self.0, start, part.len());
        }
    }
}

#[expect(unsafe_code, reason = "mapping a file is unsafe; see the SAFETY comment")]
fn map(path: &Path, file: &File) -> Result<Mmap, LoadError> {
    // SAFETY: the map is private to this process and read-only. The remaining hazard, another process changing the file,
    // cannot be excluded by any program; the module documentation says what happens then. All users treat the bytes as
    // plain numbers for which every bit pattern is valid.
    unsafe { Mmap::map(file) }.map_err(|source| LoadError::read(path, source))
}

/// Pages that are partly outside go as well: they come back as easily as the others.
#[cfg(unix)]
#[expect(unsafe_code, reason = "advice that drops pages is unsafe; see the SAFETY comment")]
fn forget(map: &Mmap, start: usize, len: usize) {
    // SAFETY: the map is a read-only view of a file, never written through, so dropped pages are read again as they were.
    // If the system refuses, it keeps the pages: nothing is lost but memory.
    let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len) };
}

#[cfg(not(unix))]
fn forget(_: &Mmap, _: usize, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_bytes_read_as_before() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..50_000).map(|i| (i % 251) as u8).collect();
        std::fs::write(file.path(), &content).unwrap();
        let map = Map::open(file.path()).unwrap();
        let bytes = map.bytes();
        assert_eq!(bytes, content);
        map.release(&bytes[5_000..41_111]);
        map.release(&content); // no part of the map
        assert_eq!(bytes, content);
    }
}
