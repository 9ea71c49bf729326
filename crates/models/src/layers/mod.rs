//! Blocks that families share. Each holds its weights and records its mathematics.

mod attention;
mod decoder;
mod linear;
mod mlp;
mod norm;
mod rotary;

use std::ops::RangeInclusive;

use kapitsa_weights::{Config, LoadError};

pub(crate) use attention::Attention;
pub(crate) use decoder::Decoder;
pub(crate) use linear::Linear;
pub(crate) use mlp::{GatedMlp, Mlp, Moe};
pub(crate) use norm::RmsNorm;
pub(crate) use rotary::Rope;

/// The integer at `key`, which must lie in `range` if it is there.
pub(crate) fn bounded_or(
    config: &Config,
    key: &str,
    range: RangeInclusive<usize>,
    default: usize,
) -> Result<usize, LoadError> {
    if config.has(key) { config.bounded(key, range) } else { Ok(default) }
}
