//! From what a person types as a model to a file or a catalog entry.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::catalog::{Catalog, Entry};

/// Where a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// A file or folder that exists.
    Path(PathBuf),
    /// In the catalog: [`crate::catalog::fetch_until`] makes sure that it is here.
    Catalog(&'static Entry),
}

/// Finds a model: an existing file or folder, or else a catalog name; the catalog's default for `None`.
///
/// # Errors
/// If there is neither.
pub fn locate_model(model: Option<&str>) -> Result<Located, Error> {
    let catalog = Catalog::builtin();
    let Some(name) = model else { return Ok(Located::Catalog(catalog.default())) };
    if Path::new(name).exists() {
        return Ok(Located::Path(name.into()));
    }
    catalog.find(name).map(Located::Catalog).ok_or_else(|| Error::UnknownModel {
        name: name.into(),
        known: catalog.entries().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}
