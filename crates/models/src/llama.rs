//! Llama (Touvron et al., arXiv:2302.13971; Llama 3, arXiv:2407.21783): pre-norm decoder, grouped-query attention with
//! rotary positions, gated MLP.

use kapitsa_weights::{Config, LoadError, Weights};

use crate::layers::{Attention, Decoder, Gain, Mixer, Mlp};
use crate::{Architecture, Model};

pub(crate) const LLAMA: Architecture = Architecture { names: &["llama"], load };

fn load(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    let inner = config.usize("intermediate_size")?;
    let decoder = Decoder::load("llama", config, weights, Gain::Whole, |index, w| {
        let bias = config.bool_or("attention_bias", false)?;
        let attention = Attention::shape(config, index)?.biases(bias, bias).load(&w.at("self_attn"))?;
        Ok((Mixer::Attention(attention), Mlp::gated(config, &w.at("mlp"), inner)?.into()))
    })?;
    Ok(Box::new(decoder))
}
