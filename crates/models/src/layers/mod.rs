//! Blocks that families share. Each holds its weights and records its mathematics.

mod attention;
mod decoder;
mod linear;
mod mlp;
mod norm;
mod rotary;

pub(crate) use attention::Attention;
pub(crate) use decoder::Decoder;
pub(crate) use linear::Linear;
pub(crate) use mlp::{GatedMlp, Mlp, Moe};
pub(crate) use norm::RmsNorm;
pub(crate) use rotary::Rope;
