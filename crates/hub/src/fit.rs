//! How much memory a variant takes, before any of it is here.
//!
//! The estimate: its files and its drafter as published, an eighth of the files for the keys and values of 8192 tokens, and
//! half a GB for activations. Models of one size differ a lot in what they keep of a token, from a thirtieth of the weights
//! (few attention layers) to a quarter (small and dense); what a model really takes is known once its config is here, and
//! opening it checks the memory then. Seven eighths of the machine's memory are for a model, the rest is for the system.

use serde::Serialize;

use crate::catalog::{Model, Variant};

/// Tokens of context that must fit.
pub const CONTEXT_TOKENS: usize = 8192;

const ACTIVATIONS_BYTES: u64 = 1 << 29;

/// What a variant takes in memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// All files.
    pub weights_bytes: u64,
    /// The drafter.
    pub drafter_bytes: u64,
    /// Activations, and keys and values of [`CONTEXT_TOKENS`].
    pub work_bytes: u64,
}

impl Need {
    /// Of a variant of a model; None where its size is not known.
    pub fn of(model: &Model, variant: &Variant) -> Option<Need> {
        let weights_bytes = variant.size_bytes()?;
        let work_bytes = ACTIVATIONS_BYTES + weights_bytes / 8;
        Some(Need { weights_bytes, drafter_bytes: model.drafter_bytes(), work_bytes })
    }

    /// All together.
    pub fn total_bytes(&self) -> u64 {
        self.weights_bytes.saturating_add(self.drafter_bytes).saturating_add(self.work_bytes)
    }
}

/// Of a machine with `memory_bytes`, what a model may take.
pub fn budget_bytes(memory_bytes: u64) -> u64 {
    memory_bytes / 8 * 7
}

/// The most precise variant that fits a machine with `memory_bytes`, if any does. Variants of unknown size or without a
/// source are not considered.
pub fn best_variant(model: &Model, memory_bytes: u64) -> Option<&Variant> {
    let fits = |variant: &&Variant| {
        let need = Need::of(model, variant).map(|need| need.total_bytes());
        !variant.sources.is_empty() && need.is_some_and(|bytes| bytes <= budget_bytes(memory_bytes))
    };
    model.variants.iter().find(fits)
}

/// Bytes as GB of 2^30 bytes, with one digit.
pub(crate) fn gb(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn the_most_precise_variant_that_fits_is_chosen() {
        let choose = |model: &str, memory_gb: u64| {
            let model = Catalog::builtin().find(model).unwrap();
            best_variant(model, memory_gb << 30).map(|variant| variant.name.as_str())
        };
        // bf16: 8.5 weights, 0.6 drafter, 1.06 + 0.5 work = 10.66; 4bit: 2.8 + 0.6 + 0.35 + 0.5 = 4.25
        assert_eq!(choose("4b", 13), Some("bf16"));
        assert_eq!(choose("4b", 12), Some("4bit"));
        assert_eq!(choose("4b", 5), Some("4bit"));
        assert_eq!(choose("4b", 4), None);
        // Of unknown size, or without a source.
        assert_eq!(choose("35b", 1000), Some("4bit"));
        assert_eq!(choose("35b", 20), None);
        assert_eq!(choose("dory", 1000), None);
        assert_eq!(choose("smollm2-135m", 1), Some("4bit"));
    }
}
