//! Models from repositories of the Hugging Face hub, or of a mirror that speaks as it does.
//!
//! A repository is asked once what it holds. The answer (commit, and size and hash of every file that could belong to a
//! model) is kept beside the files, and from then on everything comes from that commit; `kapitsa rm` forgets it.

mod client;
mod download;
mod listing;
mod range;

use std::path::PathBuf;

pub use client::Timing;

pub(crate) use listing::{choose, group};

use crate::catalog::Source;
use crate::hash::Hash;
use crate::job::{Job, Phase};
use crate::place::{self, FileRecord, Place, Record, check_space};
use crate::{FileName, Hub, HubError, Repository};
use client::{Answer, Client};
use download::{Stop, download};
use listing::Choice;

/// The file that says of which family a folder is.
const CONFIG: &str = "config.json";

/// A config that is larger is none.
const MAX_CONFIG_BYTES: u64 = 1 << 22;

/// Where a model is, if all of it is here and unchanged. Asks nobody.
pub(crate) fn here(hub: &Hub, repository: &Repository, file: Option<&FileName>) -> Option<PathBuf> {
    let place = Place::of(&hub.home, &Source::HuggingFace(repository.to_string()));
    let record = place.record()?;
    let choice = choose(repository, &record, file).ok()?;
    let is_here = choice.files.iter().all(|index| place.is_unchanged(&record.files[*index]));
    is_here.then(|| path(&place, &choice))
}

fn path(place: &Place, choice: &Choice) -> PathBuf {
    choice.open.as_ref().map_or_else(|| place.folder.clone(), |file| place.path(file))
}

/// Brings the files of a model here.
pub(crate) fn pull(
    job: &mut Job,
    hub: &Hub,
    repository: &Repository,
    file: Option<&FileName>,
) -> Result<PathBuf, HubError> {
    let source = Source::HuggingFace(repository.to_string());
    let place = Place::of(&hub.home, &source);
    let _lock = place.lock(job)?;
    let client = Client::new(hub.endpoint.clone(), hub.token.clone(), hub.timing);
    let known = place.record().filter(|record| record.source == source && record.commit.is_some());
    let mut record = match known {
        Some(record) => record,
        None => {
            let listing = listing::ask(job, &client, repository, "main")?;
            let choice = chosen(&client, repository, &listing.record, file)?;
            if let Some(family) = listing.family.filter(|_| choice.open.is_none()) {
                hub.check_family(&repository.to_string(), &family)?;
            }
            place.create(job)?;
            place.write_record(job, &listing.record)?;
            listing.record
        }
    };
    let choice = chosen(&client, repository, &record, file)?;
    let mut pull = Pull { hub, client, repository, place, missing_bytes: 0, done_bytes: 0 };
    pull.files(job, &mut record, &choice)?;
    Ok(path(&pull.place, &choice))
}

fn chosen(
    client: &Client,
    repository: &Repository,
    record: &Record,
    file: Option<&FileName>,
) -> Result<Choice, HubError> {
    choose(repository, record, file).map_err(|error| {
        error.unwrap_or_else(|| not_found(client, &format!("{repository}:{}", file.map_or("", FileName::as_str))))
    })
}

/// A pull of some files of a repository, whose lock is held.
struct Pull<'a> {
    hub: &'a Hub,
    client: Client,
    repository: &'a Repository,
    place: Place,
    /// Bytes of all files that are not in place.
    missing_bytes: u64,
    /// What of these has come.
    done_bytes: u64,
}

impl Pull<'_> {
    fn files(&mut self, job: &mut Job, record: &mut Record, choice: &Choice) -> Result<(), HubError> {
        let mut missing = Vec::new();
        for &index in &choice.files {
            if !self.place.is_in_place(job, &mut record.files[index])? {
                missing.push(index);
            }
        }
        if !missing.iter().any(|index| record.files[*index].name.as_str() == CONFIG) {
            self.check_config(job, choice)?;
        }
        // The config says whether the rest is worth its time; then small files first.
        missing.sort_by_key(|index| (record.files[*index].name.as_str() != CONFIG, record.files[*index].size_bytes));
        self.missing_bytes = missing.iter().map(|index| record.files[*index].size_bytes).sum();
        let partial =
            |index: &usize| self.place.partial_bytes(&record.files[*index]).min(record.files[*index].size_bytes);
        let here: u64 = missing.iter().map(partial).sum();
        check_space(job, &self.place.folder, self.missing_bytes - here)?;
        let mut waiting = Vec::new();
        for index in missing {
            self.fetch(job, record, index)?;
            self.done_bytes += record.files[index].size_bytes;
            if record.files[index].name.as_str() == CONFIG {
                self.place.finish(job, &mut record.files[index])?;
                self.check_config(job, choice)?;
            } else {
                waiting.push(index);
            }
        }
        for index in waiting {
            self.place.finish(job, &mut record.files[index])?;
            self.place.write_record(job, record)?;
        }
        self.place.write_record(job, record)
    }

    /// Downloads one file to its partial one. If the hub has another file now, its word is asked for once more.
    fn fetch(&self, job: &mut Job, record: &mut Record, index: usize) -> Result<(), HubError> {
        let commit = record.commit.clone().unwrap_or_default();
        let mut is_renewed = false;
        loop {
            let file = &record.files[index];
            let found = match download(job, self, &commit, file) {
                Ok(()) => return Ok(()),
                Err(Stop::Hub(error)) => return Err(error),
                Err(Stop::Changed(found)) => found,
            };
            let listing =
                if is_renewed { None } else { Some(listing::ask(job, &self.client, self.repository, &commit)?) };
            let files = listing.into_iter().flat_map(|listing| listing.record.files);
            let Some(fresh) = files.into_iter().find(|fresh| fresh.name == file.name && fresh.hash != file.hash) else {
                return Err(HubError::Changed {
                    name: job.name.clone(),
                    what: format!("{}:{}", self.repository, file.name),
                    found,
                    expected: format!("{} of {} bytes", file.hash.digits(), file.size_bytes),
                });
            };
            tracing::warn!("{} of {} has changed: what was here of it is dropped", file.name, self.repository);
            let partial = self.place.partial(file);
            place::remove_if_there(&partial).map_err(job.failed("remove", &partial, 0))?;
            record.files[index] = fresh;
            self.place.write_record(job, record)?;
            is_renewed = true;
        }
    }

    /// The family of a folder, for hubs whose listing does not say it.
    fn check_config(&self, job: &Job, choice: &Choice) -> Result<(), HubError> {
        #[derive(serde::Deserialize)]
        struct Config {
            model_type: Option<String>,
        }
        if choice.open.is_some() {
            return Ok(());
        }
        let path = self.place.folder.join(CONFIG);
        if std::fs::metadata(&path).map_err(job.failed("read", &path, 0))?.len() > MAX_CONFIG_BYTES {
            return Ok(());
        }
        let text = std::fs::read(&path).map_err(job.failed("read", &path, 0))?;
        // A config that cannot be read is for whoever opens the model to complain about.
        match serde_json::from_slice::<Config>(&text).ok().and_then(|config| config.model_type) {
            Some(family) => self.hub.check_family(&self.repository.to_string(), &family),
            None => Ok(()),
        }
    }

    fn tell(&self, job: &mut Job, of_file: u64) {
        job.tell(Phase::Downloading, self.done_bytes + of_file, self.missing_bytes);
    }

    fn url(&self, commit: &str, file: &FileRecord) -> url::Url {
        let (owner, name) = self.repository.parts();
        self.client.url([owner, name, "resolve", commit].into_iter().chain(file.name.parts()))
    }
}

/// Whether a status may be another one the next time.
fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..=599)
}

/// What the hub refuses, and why. Repositories that do not exist are refused like private ones.
fn refused(client: &Client, repository: &Repository, file: Option<&FileName>, answer: &Answer) -> Option<HubError> {
    if !answer.is_of_hub || !matches!(answer.status, 401 | 403 | 404) {
        return None;
    }
    let what = file.map_or_else(|| repository.to_string(), |file| format!("{repository}:{file}"));
    let endpoint = address(client);
    let code = answer.error_code.as_deref().unwrap_or_default();
    Some(match (answer.status, code, client.has_token()) {
        (404, ..) | (401, "RepoNotFound", false) => not_found(client, &what),
        (_, _, false) => HubError::NoToken { what, endpoint },
        (403, "GatedRepo", true) => HubError::LicenceNotAccepted { what, repository: repository.to_string(), endpoint },
        (status, ..) => HubError::Denied { what, status, endpoint },
    })
}

fn not_found(client: &Client, what: &str) -> HubError {
    HubError::NotFound { what: what.to_owned(), endpoint: address(client), has_token: client.has_token() }
}

fn connection(client: &Client, what: &str, reason: String) -> HubError {
    let host = client.endpoint.host_str().unwrap_or_default().to_owned();
    HubError::Connection { what: what.to_owned(), host, reason }
}

fn address(client: &Client) -> String {
    client.endpoint.as_str().trim_end_matches('/').to_owned()
}

/// Whether what the hub says of a file is what is known of it. Hashes of another kind cannot be compared.
fn is_same(known: &Hash, found: &str) -> bool {
    known.digits().len() != found.len() || known.digits() == found
}
