//! Llama (Touvron et al., arXiv:2302.13971; Llama 3, arXiv:2407.21783): pre-norm decoder, grouped-query attention with
//! rotary positions, gated MLP.

use kapitsa_weights::{Config, LoadError, Weights};

use crate::layers::{Attention, Decoder, GatedMlp};
use crate::{Architecture, Model};

pub(crate) const LLAMA: Architecture = Architecture { names: &["llama"], load };

fn load(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    let decoder = Decoder::load("llama", config, weights, |index, w| {
        let attention = Attention::shape(config, index)?;
        let bias = config.bool_or("attention_bias", false)?;
        Ok((attention.biases(bias, bias).load(&w.at("self_attn"))?, GatedMlp::load(config, &w.at("mlp"))?.into()))
    })?;
    Ok(Box::new(decoder))
}
