//! Qwen2 and Qwen2.5 (arXiv:2407.10671): Llama with biases on queries, keys and values.

use kapitsa_weights::{Config, LoadError, Weights};

use crate::layers::{Attention, Decoder, Gain, Mixer, Mlp};
use crate::{Architecture, Model};

pub(crate) const QWEN2: Architecture = Architecture { names: &["qwen2"], load };

fn load(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    let inner = config.usize("intermediate_size")?;
    let decoder = Decoder::load("qwen2", config, weights, Gain::Whole, |index, w| {
        let attention = Attention::shape(config, index)?.biases(true, false).load(&w.at("self_attn"))?;
        Ok((Mixer::Attention(attention), Mlp::gated(config, &w.at("mlp"), inner)?.into()))
    })?;
    Ok(Box::new(decoder))
}
