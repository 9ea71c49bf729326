//! One file: from the byte that is missing to its end, in as many tries as make sense.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use super::client::{Answer, Broken};
use super::{Pull, connection, is_same, may_pass, refused};
use crate::HubError;
use crate::job::Job;
use crate::name::shorten;
use crate::place::FileRecord;

/// Tries in a row that bring less than [`PROGRESS_BYTES`].
const MAX_TRIES: usize = 5;
/// What a try must bring to count as progress.
const PROGRESS_BYTES: u64 = 1 << 20;

/// Why a file is not here.
pub(super) enum Stop {
    Hub(HubError),
    /// The hub has another file of this name; with what it said.
    Changed(String),
}

impl From<HubError> for Stop {
    fn from(error: HubError) -> Self {
        Stop::Hub(error)
    }
}

/// What ends a try.
enum Try {
    Again { reason: String, wait: Option<Duration> },
    Stop(Stop),
}

impl From<Broken> for Try {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::NoAnswer(reason) | Broken::Cut(reason) => Try::Again { reason, wait: None },
            Broken::Stopped(error) => Try::Stop(Stop::Hub(error)),
        }
    }
}

impl From<HubError> for Try {
    fn from(error: HubError) -> Self {
        Try::Stop(Stop::Hub(error))
    }
}

/// Fills the partial file until it has its size. What is there is never asked for again.
pub(super) fn download(job: &mut Job, pull: &Pull, commit: &str, file: &FileRecord) -> Result<(), Stop> {
    let partial = pull.place.prepare(job, file)?;
    let mut wait = pull.client.timing.retry;
    let mut tries = 0;
    loop {
        let have = pull.place.partial_bytes(file);
        pull.tell(job, have);
        if have == file.size_bytes && partial.exists() {
            return Ok(());
        }
        let (reason, asked) = match attempt(job, pull, commit, file, &partial, have) {
            Ok(()) => ("the answer ended early".to_owned(), None),
            Err(Try::Again { reason, wait }) => (reason, wait),
            Err(Try::Stop(stop)) => return Err(stop),
        };
        let now = pull.place.partial_bytes(file);
        if now == file.size_bytes {
            continue;
        }
        if now - have >= PROGRESS_BYTES {
            (tries, wait) = (0, pull.client.timing.retry);
        }
        tries += 1;
        if tries == MAX_TRIES {
            return Err(connection(&pull.client, &format!("{}:{}", pull.repository, file.name), reason).into());
        }
        tracing::info!("{} stopped after {now} bytes, trying again: {reason}", file.name);
        job.sleep(asked.unwrap_or(wait))?;
        wait *= 2;
    }
}

/// Asks for what is missing and appends what comes.
fn attempt(job: &mut Job, pull: &Pull, commit: &str, file: &FileRecord, partial: &Path, have: u64) -> Result<(), Try> {
    let mut out = File::options().create(true).append(true).open(partial).map_err(job.failed("create", partial, 0))?;
    if file.size_bytes == 0 {
        return Ok(());
    }
    let mut answer = pull.client.get(job, pull.url(commit, file), have)?;
    let mut skip = begins_at(pull, file, have, &answer)?;
    let mut at = have;
    while let Some(chunk) = answer.next(job)? {
        let skipped = skip.min(chunk.len() as u64);
        skip -= skipped;
        let bytes = &chunk[skipped as usize..];
        // Whatever a server sends beyond the end is not looked at: the hash decides.
        let wanted = bytes.len().min(usize::try_from(file.size_bytes - at).unwrap_or(usize::MAX));
        out.write_all(&bytes[..wanted]).map_err(job.failed("write", partial, file.size_bytes - at))?;
        at += wanted as u64;
        pull.tell(job, at);
        if at == file.size_bytes {
            break;
        }
    }
    Ok(())
}

/// How many bytes of the answer are here already: all of them for a server that does not begin in the middle.
fn begins_at(pull: &Pull, file: &FileRecord, have: u64, answer: &Answer) -> Result<u64, Try> {
    if let Some(error) = refused(&pull.client, pull.repository, Some(&file.name), answer) {
        return Err(error.into());
    }
    let changed = |found: String| Err(Try::Stop(Stop::Changed(shorten(&found))));
    if let Some(found) = answer.hash.as_ref().filter(|found| !is_same(&file.hash, found)) {
        return changed(found.clone());
    }
    match (answer.status, &answer.range) {
        (200, _) => match answer.length {
            Some(length) if length != file.size_bytes => changed(format!("a file of {length} bytes")),
            _ => Ok(have),
        },
        (206, Some(Ok(range))) => match range.total {
            Some(total) if total != file.size_bytes => changed(format!("a file of {total} bytes")),
            _ if range.first == have => Ok(0),
            _ => again(format!("it sent the bytes from {}, expected those from {have}", range.first)),
        },
        (206, Some(Err(text))) => again(format!("it sent the range `{text}`, which makes no sense")),
        (206, None) => again("it sent a part without saying which".to_owned()),
        // The end of the file is before what is here.
        (416, _) => changed("a shorter file".to_owned()),
        // The addresses that storage servers are reached at expire: the hub gives a new one.
        (status, _) if may_pass(status) || !answer.is_of_hub => {
            Err(Try::Again { reason: format!("HTTP status {status}"), wait: answer.retry_after })
        }
        (status, _) => {
            let what = format!("{}:{}", pull.repository, file.name);
            Err(HubError::Answer { what, reason: format!("HTTP status {status}") }.into())
        }
    }
}

fn again<T>(reason: String) -> Result<T, Try> {
    Err(Try::Again { reason, wait: None })
}
