//! A pre-norm decoder: what Llama and its descendants have in common.

use kapitsa_ops::{Recorder, Tap, Tensor};
use kapitsa_tensor::Weight;
use kapitsa_weights::{Config, LoadError, Weights};

use super::{Attention, Linear, Mlp, RmsNorm, Rope, bounded_or};
use crate::{Model, ModelInfo};

/// Embedding, layers, final norm and head.
pub(crate) struct Decoder {
    info: ModelInfo,
    embed: Weight,
    rope: Rope,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
}

struct Layer {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: Mlp,
}

impl Decoder {
    /// Reads everything but attention and MLP, which `blocks` reads for each layer from that layer's scope.
    pub(crate) fn load(
        architecture: &'static str,
        config: &Config,
        weights: &Weights<'_>,
        blocks: impl Fn(usize, &Weights<'_>) -> Result<(Attention, Mlp), LoadError>,
    ) -> Result<Self, LoadError> {
        let hidden = config.bounded("hidden_size", 1..=1 << 24)?;
        let vocab = config.bounded("vocab_size", 1..=1 << 24)?;
        let eps = config.f32("rms_norm_eps")?;
        let mut layers = vec![];
        for index in 0..config.bounded("num_hidden_layers", 1..=4096)? {
            let w = weights.at("model.layers").at(&index.to_string());
            let attention_norm = RmsNorm::load(&w, "input_layernorm", hidden, eps)?;
            let mlp_norm = RmsNorm::load(&w, "post_attention_layernorm", hidden, eps)?;
            let (attention, mlp) = blocks(index, &w)?;
            layers.push(Layer { attention_norm, attention, mlp_norm, mlp });
        }
        let embed = weights.at("model").matrix("embed_tokens", vocab, hidden)?;
        let tied = config.bool_or("tie_word_embeddings", false)? && !weights.has("lm_head.weight");
        let head =
            if tied { Linear::of(embed.clone()) } else { Linear::load(weights, "lm_head", vocab, hidden, false)? };
        let kv: Vec<_> = layers.iter().map(|l| l.attention.kv_shape()).collect();
        let info = ModelInfo {
            architecture,
            vocab,
            hidden,
            layers: layers.len(),
            context: bounded_or(config, "max_position_embeddings", 1..=1 << 40, 2048)?,
            kv,
        };
        let rope = Rope::load(config, weights, info.kv[0].head_dim)?;
        Ok(Decoder { info, embed, rope, layers, norm: RmsNorm::load(&weights.at("model"), "norm", hidden, eps)?, head })
    }
}

impl Model for Decoder {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward(&self, rec: &mut Recorder) -> Tensor {
        let angles = rec.rotary_angles(&self.rope.frequencies);
        let mut x = rec.embed(&self.embed);
        rec.tap(Tap::Embedding, x);
        for (index, layer) in self.layers.iter().enumerate() {
            let h = layer.attention_norm.forward(rec, x);
            let h = layer.attention.forward(rec, h, &self.rope, angles);
            rec.tap(Tap::Mixer(index), h);
            x = rec.add(x, h);
            let h = layer.mlp_norm.forward(rec, x);
            let h = layer.mlp.forward(rec, h, index);
            rec.tap(Tap::Mlp(index), h);
            x = rec.add(x, h);
            rec.tap(Tap::Layer(index), x);
        }
        let x = rec.gather_rows(x);
        let x = self.norm.forward(rec, x);
        rec.tap(Tap::FinalNorm, x);
        self.head.forward(rec, x)
    }
}
