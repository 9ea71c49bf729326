//! Qwen3 (arXiv:2505.09388): Llama with a norm on every query and key head.

use kapitsa_weights::{Config, LoadError, Weights};

use crate::layers::{Attention, Decoder, GatedMlp};
use crate::{Architecture, Model};

pub(crate) const QWEN3: Architecture = Architecture { names: &["qwen3"], load };

fn load(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    let decoder = Decoder::load("qwen3", config, weights, |index, w| {
        let bias = config.bool_or("attention_bias", false)?;
        let attention = Attention::shape(config, index)?.biases(bias, bias).head_norms();
        Ok((attention.load(&w.at("self_attn"))?, GatedMlp::load(config, &w.at("mlp"))?.into()))
    })?;
    Ok(Box::new(decoder))
}
