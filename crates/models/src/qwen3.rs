//! Qwen3 (arXiv:2505.09388): Llama with a norm on every query and key head. In the variant with experts these replace the MLP
//! in all layers but those that the config lists as dense.

use std::collections::HashSet;

use kapitsa_weights::{Config, LoadError, Weights};

use crate::layers::{Attention, Decoder, Experts, FeedForward, Gain, Mixer, Mlp, Moe, Router, bounded_or, require};
use crate::{Architecture, Model};

pub(crate) const QWEN3: Architecture = Architecture { names: &["qwen3"], load: dense };
pub(crate) const QWEN3_MOE: Architecture = Architecture { names: &["qwen3_moe"], load: moe };

fn dense(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    let inner = config.usize("intermediate_size")?;
    load("qwen3", config, weights, |_, w| Ok(Mlp::gated(config, w, inner)?.into()))
}

fn moe(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    require(config, "hidden_act", "silu")?;
    let dense: HashSet<usize> = config.opt_usizes("mlp_only_layers")?.unwrap_or_default().into_iter().collect();
    let step = bounded_or(config, "decoder_sparse_step", 1..=usize::MAX, 1)?;
    let (hidden, inner) = (config.usize("hidden_size")?, config.usize("moe_intermediate_size")?);
    let experts = config.bounded("num_experts", 1..=65_536)?;
    let normalize = config.bool_or("norm_topk_prob", false)?;
    load("qwen3_moe", config, weights, |index, w| {
        if dense.contains(&index) || (index + 1) % step != 0 {
            return Ok(Mlp::gated(config, w, config.usize("intermediate_size")?)?.into());
        }
        let router = Router::softmax(config, w, experts, normalize)?;
        Ok(Moe::new(router, Experts::gated(w, experts, hidden, inner)?).into())
    })
}

fn load(
    architecture: &'static str,
    config: &Config,
    weights: &Weights<'_>,
    feed_forward: impl Fn(usize, &Weights<'_>) -> Result<FeedForward, LoadError>,
) -> Result<Box<dyn Model>, LoadError> {
    let eps = config.f32("rms_norm_eps")?;
    let decoder = Decoder::load(architecture, config, weights, Gain::Whole, |index, w| {
        let bias = config.bool_or("attention_bias", false)?;
        let attention = Attention::shape(config, index)?.biases(bias, bias).head_norms(Gain::Whole, eps);
        Ok((Mixer::Attention(attention.load(&w.at("self_attn"))?), feed_forward(index, &w.at("mlp"))?))
    })?;
    Ok(Box::new(decoder))
}
