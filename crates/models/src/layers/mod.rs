//! Blocks that families share. Each holds its weights and records its mathematics.

mod attention;
mod conv;
mod decoder;
mod delta_net;
mod linear;
mod mamba;
mod mlp;
mod moe;
mod norm;
mod rotary;

use std::ops::RangeInclusive;

use kapitsa_weights::{Config, LoadError};

pub(crate) use attention::Attention;
pub(crate) use conv::ShortConv;
pub(crate) use decoder::{Decoder, Layer, Mixer, context, head};
pub(crate) use delta_net::DeltaNet;
pub(crate) use linear::Linear;
pub(crate) use mamba::Mamba;
pub(crate) use mlp::{FeedForward, Mlp, require};
pub(crate) use moe::{Experts, Moe, Router, Shared};
pub(crate) use norm::{Gain, LayerNorm, RmsNorm};
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
