//! What is in the models folder, and taking it out again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::catalog::{Catalog, Source};
use crate::hf::{choose, group};
use crate::hub::{ModelName, repository, unknown, variant_of};
use crate::job::io_error;
use crate::place::{FileRecord, Lock, Place, Record, models_folder, remove_if_there};
use crate::{FileName, Hub, HubError, Repository};

/// A model that is here, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Local {
    /// What to call it: `NAME:VARIANT` of the catalog, or `hf:owner/name[:file]`.
    pub name: String,
    /// The file or folder to open.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub size_bytes: u64,
    /// Bytes that are here.
    pub here_bytes: u64,
    /// Whether all files are here and were verified. Otherwise a pull goes on.
    pub complete: bool,
    /// The commit of its repository, or the version of its package.
    pub revision: Option<String>,
}

/// What was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The model, as [`Local::name`] has it.
    pub name: String,
    /// Bytes that its files took.
    pub freed_bytes: u64,
    /// Files in its folder that no pull brought; they are left alone.
    pub left: Vec<PathBuf>,
}

impl Hub {
    /// Everything that pulls brought here, by name. Reads no file but the notes beside them.
    pub fn list(&self) -> Vec<Local> {
        let models = models_folder(&self.home);
        let mut found = Vec::new();
        for owner in folders(&models.join("hf")) {
            for name in folders(&models.join("hf").join(&owner)) {
                if let Some(repository) = Repository::parse(&format!("{owner}/{name}")) {
                    let place = Place::of(&self.home, &Source::HuggingFace(repository.to_string()));
                    found.extend(place.record().iter().flat_map(|record| of_repository(&repository, &place, record)));
                }
            }
        }
        for (name, source) in catalog_sources() {
            if let Source::Pip(pip) = source {
                let place = Place::of(&self.home, source);
                let record = place.record().filter(|record| record.source == *source);
                found.extend(record.and_then(|record| {
                    let indices: Vec<usize> = (0..record.files.len()).collect();
                    let open = record.files.first().map(|file| file.name.clone());
                    local(name, &place, &record, &indices, open.as_ref(), Some(pip.version.clone()))
                }));
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// Removes a model from the models folder: of `NAME` every variant, of `NAME:VARIANT` and `hf:owner/name[:file]` that one.
    ///
    /// # Errors
    /// If it is not here, was not brought by a pull, or is being pulled now. Then nothing was removed.
    pub fn remove(&self, name: &str) -> Result<Vec<Removed>, HubError> {
        let targets = self.targets(name)?;
        if targets.is_empty() {
            return Err(HubError::NotHere { name: name.to_owned(), folder: models_folder(&self.home) });
        }
        // All locks first, so that nothing is removed if one model is busy.
        let mut locked: Vec<(Target, Lock)> = Vec::new();
        for target in targets {
            let lock = target.place.try_lock()?.ok_or_else(|| HubError::Busy { name: target.name.clone() })?;
            locked.push((target, lock));
        }
        locked.iter().map(|(target, _)| target.remove()).collect()
    }

    fn targets(&self, text: &str) -> Result<Vec<Target>, HubError> {
        let name = ModelName::parse(text)?;
        let mut targets = Vec::new();
        match name {
            ModelName::Repository(repository, file) => {
                let place = Place::of(&self.home, &Source::HuggingFace(repository.to_string()));
                targets.push(Target { name: text.to_owned(), place, repository: Some(repository), file });
            }
            ModelName::Catalog(name, variant) => {
                let Some(model) = Catalog::builtin().find(&name) else {
                    let is_path = text.contains(['/', '\\']) || Path::new(text).exists();
                    return Err(if is_path { HubError::NotOurs { name: text.to_owned() } } else { unknown(text) });
                };
                let chosen = variant.as_deref().map(|variant| variant_of(model, variant)).transpose()?;
                for variant in model.variants.iter().filter(|variant| chosen.is_none_or(|chosen| chosen == *variant)) {
                    for source in &variant.sources {
                        let repository = match source {
                            Source::HuggingFace(name) => Some(repository(name)),
                            Source::Pip(_) => None,
                        };
                        let name = format!("{}:{}", model.name, variant.name);
                        targets.push(Target { name, place: Place::of(&self.home, source), repository, file: None });
                    }
                }
            }
        }
        Ok(targets.into_iter().filter(Target::is_here).collect())
    }
}

/// Something to remove.
struct Target {
    name: String,
    place: Place,
    /// None for a package.
    repository: Option<Repository>,
    /// This GGUF file and the other parts of it only.
    file: Option<FileName>,
}

impl Target {
    fn is_here(&self) -> bool {
        if self.file.is_none() {
            return self.place.exists();
        }
        let record = self.place.record();
        record.is_some_and(|record| self.files(&record).iter().any(|file| here_bytes(&self.place, file).is_some()))
    }

    fn files<'a>(&self, record: &'a Record) -> Vec<&'a FileRecord> {
        let of_file = self.repository.as_ref().zip(self.file.as_ref()).map(|(repository, file)| {
            let choice = choose(repository, record, Some(file));
            choice
                .map(|choice| choice.files)
                .unwrap_or_default()
                .into_iter()
                .map(|index| &record.files[index])
                .collect()
        });
        of_file.unwrap_or_else(|| record.files.iter().collect())
    }

    /// Removes files that pulls brought. The lock must be held.
    fn remove(&self) -> Result<Removed, HubError> {
        let record = self.place.record();
        let mut freed_bytes = 0;
        for file in record.iter().flat_map(|record| self.files(record)) {
            for path in [self.place.path(&file.name), self.place.partial(file)] {
                // Below the folder there may be a link where a folder was.
                if is_below(&self.place.folder, &path) {
                    freed_bytes += remove_file(&path)?;
                }
            }
        }
        let is_last =
            record.iter().flat_map(|record| &record.files).all(|file| here_bytes(&self.place, file).is_none());
        let mut left = Vec::new();
        if self.file.is_none() || is_last {
            freed_bytes += clear(&self.place.folder, &mut left)?;
            self.place.remove_empty_folders();
        }
        Ok(Removed { name: self.name.clone(), freed_bytes, left })
    }
}

/// Removes what pulls leave in a folder beside the models' files, and folders that are empty then. What else there is goes
/// to `left`. Links are not followed.
fn clear(folder: &Path, left: &mut Vec<PathBuf>) -> Result<u64, HubError> {
    let mut freed_bytes = 0;
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let path = entry.map_err(io_error("read", folder))?.path();
        let data = fs::symlink_metadata(&path).map_err(io_error("read", &path))?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if data.is_dir() && crate::pip::is_download(name) {
            freed_bytes += size_below(&path);
            fs::remove_dir_all(&path).map_err(io_error("remove", &path))?;
        } else if data.is_dir() {
            freed_bytes += clear(&path, left)?;
            // It is not empty if something was left.
            let _ = fs::remove_dir(&path);
        } else if name.starts_with(".kapitsa.json")
            || name.starts_with('.') && [".partial", ".whl"].iter().any(|end| name.ends_with(end))
        {
            freed_bytes += remove_file(&path)?;
        } else {
            left.push(path);
        }
    }
    Ok(freed_bytes)
}

fn size_below(folder: &Path) -> u64 {
    let size = |path: PathBuf| match fs::symlink_metadata(&path) {
        Ok(data) if data.is_dir() => size_below(&path),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| size(entry.path())).sum()
}

/// Removes a file, or a link and not what it points to, and returns its size.
fn remove_file(path: &Path) -> Result<u64, HubError> {
    let Ok(data) = fs::symlink_metadata(path) else { return Ok(0) };
    if data.is_dir() {
        return Ok(0);
    }
    remove_if_there(path).map_err(io_error("remove", path))?;
    Ok(if data.is_file() { data.len() } else { 0 })
}

/// Whether every folder from `folder` down to the one of `path` is a folder, not a link.
fn is_below(folder: &Path, path: &Path) -> bool {
    let parents = path.ancestors().skip(1).take_while(|parent| *parent != folder);
    parents.into_iter().all(|parent| fs::symlink_metadata(parent).is_ok_and(|data| data.is_dir()))
}

/// The models of a repository of which something is here.
fn of_repository(repository: &Repository, place: &Place, record: &Record) -> Vec<Local> {
    let commit = record.commit.clone();
    let mut found = Vec::new();
    let whole = choose(repository, record, None).ok();
    if let Some(choice) = &whole {
        let in_catalog = catalog_sources().find(|(_, source)| **source == record.source);
        let name = in_catalog.map_or_else(|| format!("hf:{repository}"), |(name, _)| name);
        found.extend(local(name, place, record, &choice.files, choice.open.as_ref(), commit.clone()));
    }
    let is_whole = |index: &usize| whole.as_ref().is_some_and(|choice| choice.files.contains(index));
    let gguf = (0..record.files.len()).filter(|index| record.files[*index].name.as_str().ends_with(".gguf"));
    let groups: BTreeSet<String> =
        gguf.filter(|index| !is_whole(index)).map(|index| group(&record.files[index].name)).collect();
    for of_group in groups {
        let indices: Vec<usize> =
            (0..record.files.len()).filter(|index| group(&record.files[*index].name) == of_group).collect();
        let Some(first) = indices.iter().map(|index| &record.files[*index].name).min() else { continue };
        found.extend(local(format!("hf:{repository}:{first}"), place, record, &indices, Some(first), commit.clone()));
    }
    found
}

/// A model of these files; None if nothing of it is here.
fn local(
    name: String,
    place: &Place,
    record: &Record,
    indices: &[usize],
    open: Option<&FileName>,
    revision: Option<String>,
) -> Option<Local> {
    let files = || indices.iter().map(|index| &record.files[*index]);
    let here: Vec<u64> = files().filter_map(|file| here_bytes(place, file)).collect();
    if here.is_empty() {
        return None;
    }
    Some(Local {
        name,
        path: open.map_or_else(|| place.folder.clone(), |file| place.path(file)),
        size_bytes: files().map(|file| file.size_bytes).sum(),
        here_bytes: here.iter().sum(),
        complete: files().all(|file| place.is_unchanged(file)),
        revision,
    })
}

/// Bytes of a file that are here, in place or on the way; None if nothing is.
fn here_bytes(place: &Place, file: &FileRecord) -> Option<u64> {
    let size = |path: PathBuf| fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|data| data.len());
    size(place.path(&file.name)).or_else(|| size(place.partial(file)))
}

/// Every source of the catalog, with the name of its variant.
fn catalog_sources() -> impl Iterator<Item = (String, &'static Source)> {
    Catalog::builtin().models().iter().flat_map(|model| {
        let variants = model.variants.iter();
        variants.flat_map(move |variant| {
            variant.sources.iter().map(move |source| (format!("{}:{}", model.name, variant.name), source))
        })
    })
}

/// Names of the folders in a folder. Links are none.
fn folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_folder).filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
