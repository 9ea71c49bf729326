//! How fast rotary pairs turn, with the scalings that stretch a model's context.

use std::sync::Arc;

use kapitsa_ops::{Frequencies, PairLayout};
use kapitsa_weights::{Config, LoadError, Weights, short};

use super::bounded_or;

/// A model's rotary embedding.
#[derive(Clone)]
pub(crate) struct Rope {
    pub(crate) frequencies: Frequencies,
    pub(crate) pairs: PairLayout,
}

impl Rope {
    /// Reads `rope_parameters` of the config, and `rope_freqs.weight` (divisors of the frequencies) where a file has it.
    pub(crate) fn load(config: &Config, weights: &Weights<'_>, head_dim: usize) -> Result<Self, LoadError> {
        let Some(rope) = &config.section("rope_parameters")? else {
            return Err(config.error("rope_parameters", "is missing"));
        };
        let partial = rope.f32_or("partial_rotary_factor", 1.0)?;
        let dim = (head_dim as f32 * partial).round() as usize;
        if dim == 0 || dim > head_dim || !dim.is_multiple_of(2) {
            return Err(
                config.error("head_dim", format!("is {head_dim}, of which {dim} rotate; expected an even number"))
            );
        }
        let theta = rope.f32_or("rope_theta", 10_000.0)? as f64;
        if theta <= 1.0 {
            return Err(rope.error("rope_theta", format!("is {theta}, expected more than 1")));
        }
        let mut frequencies: Vec<f64> = (0..dim / 2).map(|i| theta.powf(-2.0 * i as f64 / dim as f64)).collect();
        let magnitude = scale(rope, config, theta, &mut frequencies)?;
        if weights.has("rope_freqs.weight") {
            for (frequency, divisor) in frequencies.iter_mut().zip(weights.vector("rope_freqs.weight", dim / 2)?) {
                *frequency /= divisor as f64;
            }
        }
        let pairs = match config.opt_str("rope_layout")? {
            Some("adjacent_pairs") => PairLayout::Adjacent,
            _ => PairLayout::HalfSplit,
        };
        let per_position = frequencies.iter().map(|f| *f as f32).collect();
        let axes = axes(rope, dim / 2)?;
        Ok(Rope { frequencies: Frequencies { per_position, magnitude: magnitude as f32, axes }, pairs })
    }
}

/// Which coordinate turns each of `pairs` pairs, where the config has sections for them: time, height and width take turns
/// as long as the sections of the latter two have pairs, then time has the rest (Qwen3-VL, arXiv:2511.21631).
fn axes(rope: &Config, pairs: usize) -> Result<Option<Arc<[u8]>>, LoadError> {
    let Some(sections) = rope.opt_usizes("mrope_section")? else { return Ok(None) };
    let &[time, height, width] = &sections[..] else {
        return Err(rope.error("mrope_section", format!("is {sections:?}, expected three numbers")));
    };
    if [time, height, width].into_iter().try_fold(0usize, usize::checked_add) != Some(pairs) {
        return Err(rope.error("mrope_section", format!("is {sections:?}, expected numbers that make {pairs}")));
    }
    if !rope.bool_or("mrope_interleaved", true)? {
        return Err(rope.error("mrope_interleaved", "is false, expected true"));
    }
    let axis = |pair: usize| match pair % 3 {
        1 if pair < 3 * height => 1,
        2 if pair < 3 * width => 2,
        _ => 0,
    };
    Ok(Some((0..pairs).map(axis).collect()))
}

/// Applies the scaling that `rope` names to `frequencies`; returns the factor of cosines and sines.
fn scale(rope: &Config, config: &Config, theta: f64, frequencies: &mut [f64]) -> Result<f64, LoadError> {
    let kind = rope.opt_str("rope_type")?.unwrap_or("default");
    if kind == "default" {
        return Ok(1.0);
    }
    let factor = positive(rope, "factor")?;
    let original = |default| -> Result<f64, LoadError> {
        Ok(bounded_or(rope, "original_max_position_embeddings", 1..=1 << 40, default)? as f64)
    };
    match kind {
        "linear" => {
            frequencies.iter_mut().for_each(|f| *f /= factor);
            Ok(1.0)
        }
        "llama3" => {
            let (low, high) = (positive(rope, "low_freq_factor")?, positive(rope, "high_freq_factor")?);
            if low >= high {
                return Err(
                    rope.error("low_freq_factor", format!("is {low}, expected less than high_freq_factor {high}"))
                );
            }
            let original = original(8192)?;
            for f in frequencies {
                // turns in the original context: many stay, few are stretched, between them a linear blend
                let turns = original * *f / std::f64::consts::TAU;
                let keep = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                *f = *f * keep + *f / factor * (1.0 - keep);
            }
            Ok(1.0)
        }
        "yarn" => {
            // YaRN (Peng et al., arXiv:2309.00071), section 3.
            let original = original(config.usize_or("max_position_embeddings", 2048)?)?;
            let dim = 2.0 * frequencies.len() as f64;
            let turns = |n: f64| dim * (original / (n * std::f64::consts::TAU)).ln() / (2.0 * theta.ln());
            let low = turns(rope.f32_or("beta_fast", 32.0)? as f64).floor().max(0.0);
            let high = turns(rope.f32_or("beta_slow", 1.0)? as f64).ceil().min(dim - 1.0);
            let width = if high > low { high - low } else { 0.001 };
            for (i, f) in frequencies.iter_mut().enumerate() {
                let stretch = ((i as f64 - low) / width).clamp(0.0, 1.0);
                *f = *f * (1.0 - stretch) + *f / factor * stretch;
            }
            Ok(rope.f32_or("attention_factor", (0.1 * factor.ln() + 1.0) as f32)? as f64)
        }
        other => {
            Err(rope.error("rope_type", format!("is `{}`, expected default, linear, llama3 or yarn", short(other))))
        }
    }
}

fn positive(rope: &Config, key: &str) -> Result<f64, LoadError> {
    let value = rope.f32(key)? as f64;
    if value > 0.0 { Ok(value) } else { Err(rope.error(key, format!("is {value}, expected a positive number"))) }
}
