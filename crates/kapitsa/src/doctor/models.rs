//! Which models of the catalog fit this machine, and how fast its memory lets them be.

use kapitsa_hub::Hub;
use kapitsa_hub::catalog::{Catalog, Model, Variant};
use kapitsa_hub::fit::{Need, best_variant, budget_bytes};

use crate::Memory;

/// A variant of the catalog on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// `NAME:VARIANT`.
    pub name: String,
    /// Whether this build runs its family.
    pub is_built: bool,
    /// Whether it is known where it can be had.
    pub has_source: bool,
    /// Whether the bare name stands for it here.
    pub is_chosen: bool,
    /// Bytes that it takes in memory, estimated before any of it is here; None where its size is not known.
    pub need_bytes: Option<u64>,
    /// Whether that fits; None where its size is not known.
    pub fit: Option<Fit>,
    /// Tokens a second if all that a token costs is to read each weight once. None for mixtures of experts, which read a part
    /// that the catalog does not tell, where the size is not known, and where memory was not measured.
    pub tokens_per_second: Option<f64>,
}

/// Whether a model fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Now.
    Now,
    /// Once other programs give memory back.
    Later,
    /// Not on this machine.
    Never,
}

/// Families of which every token reads all weights. (What only images need, and the table of input tokens where it is one of
/// its own, is in the size and not read: the true bound is a little higher.)
const DENSE: &[&str] = &["llama", "qwen2", "qwen3", "qwen3_5"];

/// The whole catalog, in its order.
pub(super) fn candidates(hub: &Hub, memory: &Memory, read_bandwidth: Option<f64>) -> Vec<Candidate> {
    let all = Catalog::builtin().models().iter();
    all.flat_map(|model| model.variants.iter().map(move |variant| (model, variant)))
        .map(|(model, variant)| candidate(hub, memory, read_bandwidth, model, variant))
        .collect()
}

fn candidate(hub: &Hub, memory: &Memory, read_bandwidth: Option<f64>, model: &Model, variant: &Variant) -> Candidate {
    let need_bytes = Need::of(model, variant).map(|need| need.total_bytes());
    let fit = |need| {
        if need > budget_bytes(memory.within_limit_bytes()) {
            Fit::Never
        } else if need > memory.available_bytes {
            Fit::Later
        } else {
            Fit::Now
        }
    };
    let read_bytes = variant.size_bytes().filter(|_| DENSE.contains(&model.family.as_str()));
    let chosen = best_variant(model, memory.within_limit_bytes()).filter(|_| hub.is_built(&model.family));
    Candidate {
        name: format!("{}:{}", model.name, variant.name),
        is_built: hub.is_built(&model.family),
        has_source: !variant.sources.is_empty(),
        is_chosen: chosen.is_some_and(|chosen| chosen.name == variant.name),
        need_bytes,
        fit: need_bytes.map(fit),
        tokens_per_second: read_bandwidth.zip(read_bytes).map(|(speed, bytes)| speed / bytes as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(memory: Memory, name: &str) -> Candidate {
        let hub = crate::open_hub("home".as_ref(), None, None).unwrap();
        let all = candidates(&hub, &memory, Some(28e9));
        all.into_iter().find(|candidate| candidate.name == name).unwrap()
    }

    fn memory(total: u64, limit: Option<u64>, available: u64) -> Memory {
        Memory { total_bytes: total << 30, limit_bytes: limit.map(|gb| gb << 30), available_bytes: available << 30 }
    }

    #[test]
    fn a_small_model_fits_and_its_size_bounds_its_speed() {
        let found = find(memory(16, None, 8), "smollm2-135m:4bit");
        assert!(found.is_built && found.has_source && found.is_chosen && found.fit == Some(Fit::Now), "{found:?}");
        assert_eq!(found.tokens_per_second, Some(28e9 / 98_362_432.0));
    }

    #[test]
    fn memory_in_use_and_limits_count() {
        // 15.0 GB of weights, 1.6 of drafter, 2.4 of work.
        let fit = |memory| find(memory, "27b:4bit").fit;
        assert_eq!(fit(memory(64, None, 20)), Some(Fit::Now));
        assert_eq!(fit(memory(64, None, 18)), Some(Fit::Later));
        assert_eq!(fit(memory(64, Some(16), 16)), Some(Fit::Never));
        assert_eq!(fit(memory(16, None, 16)), Some(Fit::Never));
    }

    #[test]
    fn what_the_catalog_does_not_tell_is_left_out() {
        let experts = find(memory(64, None, 64), "35b:4bit");
        assert_eq!((experts.fit, experts.tokens_per_second), (Some(Fit::Now), None));
        let unknown = find(memory(64, None, 64), "35b:bf16");
        assert_eq!((unknown.need_bytes, unknown.fit, unknown.tokens_per_second), (None, None, None));
    }
}
