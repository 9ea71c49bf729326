//! A pre-norm decoder: what Llama and its descendants have in common.

use kapitsa_ops::{Recorder, Tap, Tensor};
use kapitsa_tensor::Weight;
use kapitsa_weights::{Config, LoadError, Weights};

use super::{Attention, DeltaNet, FeedForward, Gain, Linear, RmsNorm, Rope, bounded_or};
use crate::{Model, ModelInfo};

/// Embedding, layers, final norm and head.
pub(crate) struct Decoder {
    pub(crate) info: ModelInfo,
    pub(crate) embed: Weight,
    pub(crate) rope: Rope,
    layers: Vec<Layer>,
    norm: RmsNorm,
    pub(crate) head: Linear,
}

/// A mixer and a feed-forward block, each on a normalised copy of the residual stream.
pub(crate) struct Layer {
    mixer_norm: RmsNorm,
    mixer: Mixer,
    feed_forward_norm: RmsNorm,
    feed_forward: FeedForward,
}

/// What moves information between tokens.
pub(crate) enum Mixer {
    Attention(Attention),
    DeltaNet(DeltaNet),
}

impl Layer {
    /// Reads the norms of a layer from its scope.
    pub(crate) fn load(
        config: &Config,
        w: &Weights<'_>,
        gain: Gain,
        mixer: Mixer,
        feed_forward: FeedForward,
    ) -> Result<Self, LoadError> {
        let norm = |name| RmsNorm::load(w, name, config.usize("hidden_size")?, gain, config.f32("rms_norm_eps")?);
        let (mixer_norm, feed_forward_norm) = (norm("input_layernorm")?, norm("post_attention_layernorm")?);
        Ok(Layer { mixer_norm, mixer, feed_forward_norm, feed_forward })
    }

    /// Records layer `index`: `x` and the result are `[rows, hidden]`.
    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor, rope: (&Rope, Tensor), index: usize) -> Tensor {
        let h = self.mixer_norm.forward(rec, x);
        let h = match &self.mixer {
            Mixer::Attention(attention) => attention.forward(rec, h, Some(rope)),
            Mixer::DeltaNet(delta_net) => delta_net.forward(rec, h),
        };
        rec.tap(Tap::Mixer(index), h);
        let x = rec.add(x, h);
        let h = self.feed_forward_norm.forward(rec, x);
        let h = self.feed_forward.forward(rec, h, index);
        rec.tap(Tap::Mlp(index), h);
        let x = rec.add(x, h);
        rec.tap(Tap::Layer(index), x);
        x
    }
}

impl Decoder {
    /// Reads everything but mixers and feed-forward blocks, which `blocks` reads for each layer from that layer's scope.
    pub(crate) fn load(
        architecture: &'static str,
        config: &Config,
        weights: &Weights<'_>,
        gain: Gain,
        mut blocks: impl FnMut(usize, &Weights<'_>) -> Result<(Mixer, FeedForward), LoadError>,
    ) -> Result<Self, LoadError> {
        let hidden = config.bounded("hidden_size", 1..=1 << 24)?;
        let vocab = config.bounded("vocab_size", 1..=1 << 24)?;
        let mut layers = vec![];
        for index in 0..config.bounded("num_hidden_layers", 1..=4096)? {
            let w = weights.at("model.layers").at(&index.to_string());
            let (mixer, feed_forward) = blocks(index, &w)?;
            layers.push(Layer::load(config, &w, gain, mixer, feed_forward)?);
        }
        let embed = weights.at("model").matrix("embed_tokens", vocab, hidden)?;
        let head = head(config, weights, &embed)?;
        let info = ModelInfo {
            architecture,
            vocab,
            hidden,
            layers: layers.len(),
            context: context(config)?,
            kv: layers.iter().filter_map(|layer| layer.mixer.kv_shape()).collect(),
            states: layers.iter().flat_map(|layer| layer.mixer.states()).collect(),
        };
        let Some(kv) = info.kv.first() else {
            return Err(config.error("layer_types", "has no layer with attention, expected at least one"));
        };
        let rope = Rope::load(config, weights, kv.head_dim)?;
        let norm = RmsNorm::load(&weights.at("model"), "norm", hidden, gain, config.f32("rms_norm_eps")?)?;
        Ok(Decoder { info, embed, rope, layers, norm, head })
    }
}

/// The output matrix, which may be the embedding.
pub(crate) fn head(config: &Config, weights: &Weights<'_>, embed: &Weight) -> Result<Linear, LoadError> {
    let tied = config.bool_or("tie_word_embeddings", false)? && !weights.has("lm_head.weight");
    if tied {
        Ok(Linear::of(embed.clone()))
    } else {
        Linear::load(weights, "lm_head", embed.rows(), embed.cols(), false)
    }
}

/// Tokens that the model was trained to see.
pub(crate) fn context(config: &Config) -> Result<usize, LoadError> {
    bounded_or(config, "max_position_embeddings", 1..=1 << 40, 2048)
}

impl Mixer {
    fn kv_shape(&self) -> Option<kapitsa_ops::kv::KvShape> {
        match self {
            Mixer::Attention(attention) => Some(attention.kv_shape()),
            Mixer::DeltaNet(_) => None,
        }
    }

    fn states(&self) -> Vec<usize> {
        match self {
            Mixer::Attention(_) => vec![],
            Mixer::DeltaNet(delta_net) => delta_net.states().to_vec(),
        }
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
            x = layer.forward(rec, x, (&self.rope, angles), index);
        }
        let x = rec.gather_rows(x);
        let x = self.norm.forward(rec, x);
        rec.tap(Tap::FinalNorm, x);
        self.head.forward(rec, x)
    }
}
