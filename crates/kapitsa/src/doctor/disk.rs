//! The disk that models lie on: its space, and how fast a file is read from it.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::{Cancelled, check, existing};

/// The disk of a folder.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The folder, whether it is there or not.
    pub folder: PathBuf,
    /// Bytes that this user may still write to its disk, or why that is not known.
    pub free_bytes: Result<u64, String>,
    /// How fast it is read, or why that was not measured.
    pub read: Result<ReadSpeed, String>,
}

/// How fast a file was read from its first byte to its last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadSpeed {
    /// Speed.
    pub bytes_per_second: f64,
    /// Bytes that were read for it.
    pub bytes: u64,
    /// Where they came from.
    pub origin: Origin,
}

/// Where the bytes of a file came from. What a disk keeps in memory of its own is not seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The disk: the system kept nothing of the file in memory.
    Disk,
    /// Memory: the system would not let go of the file, as is the case of file systems in memory.
    Memory,
    /// Either: the system does not tell, or kept a part.
    Unknown,
}

/// Largest file that is written for the measurement.
const BYTES: u64 = 512 << 20;
/// What is written and made durable at a time. It looks random, so that no file system makes it smaller.
const CHUNK_BYTES: usize = 16 << 20;
/// What is read at a time.
const READ_BYTES: usize = 1 << 20;
/// Writing and reading end after this time, each; what was done until then counts.
const TIME: Duration = Duration::from_secs(1);
/// Less free space than this is left alone.
const SPARE_BYTES: u64 = 2 << 30;

impl Disk {
    pub(super) fn measure(folder: &Path, cancel: &AtomicBool) -> Result<Disk, Cancelled> {
        let place = existing(folder);
        let free_bytes = fs4::available_space(&place).map_err(|error| error.to_string());
        let read = match &free_bytes {
            Ok(free) if *free < SPARE_BYTES => Err("less than 2 GiB are free, which are left alone".into()),
            Ok(_) => read_speed(&place, BYTES, cancel)?,
            Err(_) => Err("the free space is not known".into()),
        };
        Ok(Disk { folder: folder.into(), free_bytes, read })
    }
}

/// Writes a file of at most `bytes` bytes to the folder and reads it back. The file has no name, or one that the system
/// removes with the last handle, so that nothing is left behind even if the process is killed.
fn read_speed(folder: &Path, bytes: u64, cancel: &AtomicBool) -> Result<Result<ReadSpeed, String>, Cancelled> {
    let at = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut file = match tempfile::tempfile_in(folder) {
        Ok(file) => file,
        Err(error) => return Ok(Err(at(error))),
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    fastrand::Rng::with_seed(0).fill(&mut chunk);
    let (start, mut written) = (Instant::now(), 0);
    while written < bytes && (written == 0 || start.elapsed() < TIME) {
        check(cancel)?;
        let part = &chunk[..chunk.len().min((bytes - written) as usize)];
        if let Err(error) = file.write_all(part).and_then(|()| file.sync_data()) {
            return Ok(Err(at(error)));
        }
        written += part.len() as u64;
    }
    let origin = drop_from_memory(&file, written);
    let (start, mut read) = (Instant::now(), 0);
    if let Err(error) = file.rewind() {
        return Ok(Err(at(error)));
    }
    let buffer = &mut chunk[..READ_BYTES];
    while read < written && (read == 0 || start.elapsed() < TIME) {
        check(cancel)?;
        match file.read(buffer) {
            Ok(0) => break,
            Ok(more) => read += more as u64,
            Err(error) => return Ok(Err(at(error))),
        }
    }
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    Ok(Ok(ReadSpeed { bytes_per_second: read as f64 / seconds, bytes: read, origin }))
}

/// Asks the system to forget the first `bytes` bytes of a file, and finds out whether it has.
#[cfg(target_os = "linux")]
fn drop_from_memory(file: &File, bytes: u64) -> Origin {
    use rustix::fs::{Advice, fadvise, fstatfs};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    /// Places that are looked at; each look may bring a little of the file back.
    const PLACES: u64 = 8;
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of linux/magic.h.
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    if fstatfs(file).is_ok_and(|system| IN_MEMORY.contains(&(system.f_type as u64 & 0xffff_ffff))) {
        return Origin::Memory;
    }
    let forget = || fadvise(file, 0, None, Advice::DontNeed);
    if forget().is_err() {
        return Origin::Unknown;
    }
    let mut byte = [0];
    let mut look = |offset| {
        let mut buffer = [std::io::IoSliceMut::new(&mut byte)];
        // Reads only what is in memory.
        match preadv2(file, &mut buffer, offset, ReadWriteFlags::NOWAIT) {
            Ok(_) => Origin::Memory,
            Err(Errno::AGAIN) => Origin::Disk,
            Err(_) => Origin::Unknown,
        }
    };
    let found: Vec<Origin> = (0..PLACES).map(|place| look(bytes / PLACES * place)).collect();
    let _ = forget();
    if found.iter().all(|origin| *origin == found[0]) { found[0] } else { Origin::Unknown }
}

/// Asks the system to read past its memory, which it does not confirm.
#[cfg(target_vendor = "apple")]
fn drop_from_memory(file: &File, _: u64) -> Origin {
    let _ = rustix::fs::fcntl_nocache(file, true);
    Origin::Unknown
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn drop_from_memory(_: &File, _: u64) -> Origin {
    Origin::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(folder: &Path, cancel: bool) -> Result<Result<ReadSpeed, String>, Cancelled> {
        read_speed(folder, 3_000_000, &AtomicBool::new(cancel))
    }

    fn is_empty(folder: &Path) -> bool {
        std::fs::read_dir(folder).unwrap().next().is_none()
    }

    #[test]
    fn a_measurement_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let found = speed(folder.path(), false).unwrap().unwrap();
        assert!(found.bytes_per_second.is_normal() && found.bytes == 3_000_000, "{found:?}");
        assert!(is_empty(folder.path()));
        assert_eq!(speed(folder.path(), true), Err(Cancelled));
        assert!(is_empty(folder.path()));
    }

    #[test]
    fn a_folder_that_is_not_there_is_measured_where_it_would_be() {
        let folder = tempfile::tempdir().unwrap();
        let models = folder.path().join("home/models");
        let disk = Disk::measure(&models, &AtomicBool::new(true));
        // Enough to have come as far as the measurement.
        assert_eq!(disk.unwrap_err(), Cancelled);
        assert_eq!(existing(&models), folder.path());
        assert!(is_empty(folder.path()));
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let reason = speed(&file, false).unwrap().unwrap_err();
        assert!(reason.starts_with(file.to_str().unwrap()), "{reason}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
    fn a_file_system_in_memory_is_not_taken_for_a_disk() {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            eprintln!("SKIP: no file system in memory");
            return;
        }
        let origin = speed(memory, false).unwrap().map(|speed| speed.origin);
        assert_eq!(origin, Ok(Origin::Memory));
    }
}
