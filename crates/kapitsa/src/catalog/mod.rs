//! The models that a name stands for, and how their files get onto this machine.
//!
//! The list is `catalog.toml`, part of the program. [`fetch_until`] brings a model's file; everything it needs from outside is
//! the user's own `pip`, so that mirrors, proxies and offline wheel folders work as they are set up there.

mod fetch;
mod pip;
mod place;
#[cfg(test)]
mod tests;
mod wheel;

pub use fetch::{FetchError, Phase, Progress, fetch_until};

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use serde::Deserialize;

/// All known models. At least one, and one of them is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    entries: Vec<Entry>,
}

/// A model of the catalog: one file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What people type.
    pub name: String,
    /// What it is, in a line.
    pub description: String,
    /// Whether it is taken when no model is named.
    #[serde(default)]
    pub default: bool,
    /// SPDX identifier of its licence.
    pub license: String,
    /// Name of its file in the models folder.
    pub file: String,
    /// Size of the file.
    pub size_bytes: u64,
    /// SHA-256 of the file, in lower-case hexadecimal digits.
    pub sha256: String,
    /// Where the file comes from.
    pub source: Source,
}

/// Where a file comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// A Python package that carries it.
    Pip(PipSource),
}

/// A file inside the wheel of a Python package.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipSource {
    /// Name of the package.
    pub package: String,
    /// Its exact version.
    pub version: String,
    /// Path of the file in the wheel.
    pub member: String,
    /// Size of the wheel; a mirror's may differ.
    pub download_bytes: u64,
}

/// Why a text is no catalog.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// It is not TOML, or a field is missing, unknown or of another type.
    #[error("the catalog cannot be read: {0}")]
    Syntax(String),
    /// A field of an entry cannot be what it is.
    #[error("catalog entry `{name}`: {field} is `{found}`, expected {expected}")]
    Field {
        /// Name of the entry.
        name: String,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// Not exactly one default.
    #[error("the catalog has {0} default models, expected 1")]
    Defaults(usize),
}

impl Catalog {
    /// The catalog of this program.
    pub fn builtin() -> &'static Catalog {
        static BUILTIN: LazyLock<Catalog> = LazyLock::new(|| {
            // Part of the program, and read by a test: a bad one cannot be shipped.
            Catalog::parse(include_str!("../../catalog.toml")).expect("the built-in catalog is valid")
        });
        &BUILTIN
    }

    /// Reads a catalog.
    ///
    /// # Errors
    /// If the text is not a catalog, or if an entry has a name twice, a file outside the models folder, or anything else
    /// that could not be fetched.
    pub fn parse(text: &str) -> Result<Catalog, CatalogError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            model: Vec<Entry>,
        }
        let one_line = |error: toml::de::Error| error.to_string().lines().collect::<Vec<_>>().join(" ");
        let File { model: entries } = toml::from_str(text).map_err(|error| CatalogError::Syntax(one_line(error)))?;
        let (mut names, mut files) = (HashSet::new(), HashSet::new());
        for entry in &entries {
            entry.check()?;
            if !names.insert(entry.name.as_str()) {
                return Err(entry.wrong("name", &entry.name, "a name that no other entry has"));
            }
            if !files.insert(entry.file.to_ascii_lowercase()) {
                return Err(entry.wrong("file", &entry.file, "a file that no other entry has"));
            }
        }
        match entries.iter().filter(|entry| entry.default).count() {
            1 => Ok(Catalog { entries }),
            found => Err(CatalogError::Defaults(found)),
        }
    }

    /// All entries, in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of this name.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The entry that is taken when no model is named.
    pub fn default(&self) -> &Entry {
        // `parse` makes sure that there is one.
        self.entries.iter().find(|entry| entry.default).unwrap_or(&self.entries[0])
    }
}

impl Entry {
    /// Where its file is kept under `home`, whether it is there or not.
    pub fn path(&self, home: &Path) -> PathBuf {
        home.join("models").join(&self.file)
    }

    fn check(&self) -> Result<(), CatalogError> {
        let made_of = |text: &str, more: &str| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        let check = |ok: bool, field, found: &dyn ToString, expected| {
            if ok { Ok(()) } else { Err(self.wrong(field, &found.to_string(), expected)) }
        };
        check(made_of(&self.name, "-._:"), "name", &self.name, "letters, digits and -._:")?;
        check(made_of(&self.file, "-._"), "file", &self.file, "a file name of letters, digits and -._")?;
        check(self.size_bytes > 0, "size_bytes", &self.size_bytes, "at least 1")?;
        let digits = self.sha256.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        check(digits && self.sha256.len() == 64, "sha256", &self.sha256, "64 lower-case hexadecimal digits")?;
        let Source::Pip(pip) = &self.source;
        // These become arguments of a command.
        check(made_of(&pip.package, "-._"), "package", &pip.package, "letters, digits and -._")?;
        check(made_of(&pip.version, "-._!+"), "version", &pip.version, "letters, digits and -._!+")?;
        check(!pip.member.is_empty(), "member", &pip.member, "a path in the wheel")?;
        check(pip.download_bytes > 0, "download_bytes", &pip.download_bytes, "at least 1")
    }

    fn wrong(&self, field: &'static str, found: &str, expected: &'static str) -> CatalogError {
        CatalogError::Field { name: self.name.clone(), field, found: found.to_owned(), expected }
    }
}
