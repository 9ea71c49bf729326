//! From what a person types as a model to a path.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::Error;
use crate::catalog::{Catalog, Progress, fetch_until};

/// The path of a model: an existing file or folder as it is, a catalog name (the default one for `None`) fetched into
/// `home` if it is not there yet.
///
/// # Errors
/// If there is no such file and no such name, or fetching fails or is cancelled.
pub fn resolve_model(
    model: Option<&str>,
    home: &Path,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf, Error> {
    let catalog = Catalog::builtin();
    let entry = match model {
        None => catalog.default(),
        Some(name) if Path::new(name).exists() => return Ok(name.into()),
        Some(name) => catalog.find(name).ok_or_else(|| Error::UnknownModel {
            name: name.into(),
            known: catalog.entries().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", "),
        })?,
    };
    Ok(fetch_until(entry, home, cancel, progress)?)
}
