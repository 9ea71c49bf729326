//! Qwen3-MoE (arXiv:2505.09388): Qwen3 with routed experts in place of the MLP, in all layers but those that the config
//! lists as dense.

use std::collections::HashSet;

use kapitsa_weights::{Config, LoadError, Weights};

use crate::layers::{Attention, Decoder, GatedMlp, Moe, bounded_or};
use crate::{Architecture, Model};

pub(crate) const QWEN3_MOE: Architecture = Architecture { names: &["qwen3_moe"], load };

fn load(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    let dense: HashSet<usize> = config.opt_usizes("mlp_only_layers")?.unwrap_or_default().into_iter().collect();
    let step = bounded_or(config, "decoder_sparse_step", 1..=usize::MAX, 1)?;
    let decoder = Decoder::load("qwen3_moe", config, weights, |index, w| {
        let bias = config.bool_or("attention_bias", false)?;
        let attention = Attention::shape(config, index)?.biases(bias, bias).head_norms().load(&w.at("self_attn"))?;
        let is_dense = dense.contains(&index) || (index + 1) % step != 0;
        let mlp = w.at("mlp");
        Ok((attention, if is_dense { GatedMlp::load(config, &mlp)?.into() } else { Moe::load(config, &mlp)?.into() }))
    })?;
    Ok(Box::new(decoder))
}
