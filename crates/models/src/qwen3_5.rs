//! Qwen3.5, 3.6 and 3.8, and fine-tunes such as Ornith: three layers of Gated DeltaNet to one of gated attention; MLPs, or
//! experts with a shared one; a head that predicts one token more; a vision tower.

use kapitsa_ops::kv::KvShape;
use kapitsa_ops::{Recorder, Tap, Tensor};
use kapitsa_tensor::Weight;
use kapitsa_weights::{Config, Container, LoadError, Weights, short};

use crate::layers::{
    Attention, Decoder, DeltaNet, Experts, FeedForward, Gain, Layer, Linear, Mixer, Mlp, Moe, RmsNorm, Rope, Router,
    Shared, bounded_or, require,
};
use crate::{Architecture, Model, ModelInfo, PredictionHead, VisionTower};

pub(crate) const QWEN3_5: Architecture = Architecture { names: &["qwen3_5", "qwen3_5_text"], load: dense };
pub(crate) const QWEN3_5_MOE: Architecture = Architecture { names: &["qwen3_5_moe", "qwen3_5_moe_text"], load: moe };

struct Qwen35 {
    decoder: Decoder,
    mtp: Option<Mtp>,
    vision: Option<VisionTower>,
}

/// Predicts the token after the next from the next token and the trunk's hidden state before it.
struct Mtp {
    embed: Weight,
    embed_norm: RmsNorm,
    hidden_norm: RmsNorm,
    join: Linear,
    layer: Layer,
    rope: Rope,
    norm: RmsNorm,
    head: Linear,
    hidden: usize,
    kv: KvShape,
}

fn dense(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    let inner = config.usize("intermediate_size")?;
    load("qwen3_5", config, weights, |w| Ok(Mlp::gated(config, w, inner)?.into()))
}

fn moe(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    require(config, "hidden_act", "silu")?;
    let (hidden, inner) = (config.usize("hidden_size")?, config.usize("moe_intermediate_size")?);
    let experts = config.bounded("num_experts", 1..=65_536)?;
    let shared = config.usize("shared_expert_intermediate_size")?;
    load("qwen3_5_moe", config, weights, |w| {
        let shared = Shared {
            mlp: Mlp::gated(config, &w.at("shared_expert"), shared)?,
            gate: Some(Linear::load(w, "shared_expert_gate", 1, hidden, false)?),
        };
        let router = Router::softmax(config, w, experts, true)?;
        Ok(Moe::new(router, Experts::gated(w, experts, hidden, inner)?).shared(shared).into())
    })
}

fn load(
    architecture: &'static str,
    config: &Config,
    weights: &Weights<'_>,
    feed_forward: impl Fn(&Weights<'_>) -> Result<FeedForward, LoadError>,
) -> Result<Box<dyn Model>, LoadError> {
    let eps = config.f32("rms_norm_eps")?;
    let gain = gain(config, weights)?;
    let bias = config.bool_or("attention_bias", false)?;
    let attention = |layer, w: &Weights<'_>| {
        let shape = Attention::shape(config, layer)?.biases(bias, bias).head_norms(gain, eps).output_gate();
        // Some converters join the projections, as those of the other layers are.
        let other = w.at("linear_attn");
        match other.has("in_proj_qkv.weight") {
            true => shape.load_joined(&w.at("self_attn"), &other, "in_proj_qkv"),
            false => shape.load(&w.at("self_attn")),
        }
    };
    let full = full_layers(config)?;
    let (mut kv_layers, mut states) = (0, 0);
    let decoder = Decoder::load(architecture, config, weights, gain, |index, w| {
        let mixer = if full[index] {
            kv_layers += 1;
            Mixer::Attention(attention(kv_layers - 1, w)?)
        } else {
            states += 2;
            Mixer::DeltaNet(DeltaNet::load(config, &w.at("linear_attn"), states - 2)?)
        };
        Ok((mixer, feed_forward(&w.at("mlp"))?))
    })?;
    let mtp = weights.at("mtp");
    let mtp = if mtp.has("fc.weight") {
        let hidden = decoder.info.hidden;
        let norm = |name| RmsNorm::load(&mtp, name, hidden, gain, eps);
        let w = mtp.at("layers.0");
        let block = attention(kv_layers, &w)?;
        let kv = block.kv_shape();
        Some(Mtp {
            embed: decoder.embed.clone(),
            embed_norm: norm("pre_fc_norm_embedding")?,
            hidden_norm: norm("pre_fc_norm_hidden")?,
            join: Linear::load(&mtp, "fc", hidden, 2 * hidden, false)?,
            layer: Layer::load(config, &w, gain, Mixer::Attention(block), feed_forward(&w.at("mlp"))?)?,
            rope: decoder.rope.clone(),
            norm: norm("norm")?,
            head: decoder.head.clone(),
            hidden,
            kv,
        })
    } else {
        None
    };
    Ok(Box::new(Qwen35 { decoder, mtp, vision: VisionTower::load(config, weights)? }))
}

/// For each layer, whether it is one of attention.
fn full_layers(config: &Config) -> Result<Vec<bool>, LoadError> {
    let layers = config.bounded("num_hidden_layers", 1..=4096)?;
    let Some(kinds) = config.opt_strs("layer_types")? else {
        let interval = bounded_or(config, "full_attention_interval", 1..=4096, 4)?;
        return Ok((0..layers).map(|index| (index + 1).is_multiple_of(interval)).collect());
    };
    if kinds.len() != layers {
        let reason = format!("has {} entries, expected {layers}, one for each layer", kinds.len());
        return Err(config.error("layer_types", reason));
    }
    let is_full = |kind| match kind {
        "full_attention" => Ok(true),
        "linear_attention" => Ok(false),
        other => {
            let reason = format!("has `{}`, expected full_attention or linear_attention", short(other));
            Err(config.error("layer_types", reason))
        }
    };
    kinds.into_iter().map(is_full).collect()
}

/// Checkpoints hold gains as distances from one. Converted files and packs written by mlx-lm hold the gains themselves; packs
/// are told by their convolutions, whose last dimension was moved in the same pass.
fn gain(config: &Config, weights: &Weights<'_>) -> Result<Gain, LoadError> {
    let layers = config.usize("num_hidden_layers")?;
    let is_moved = (0..layers.min(4096)).find_map(|index| {
        let name = format!("model.layers.{index}.linear_attn.conv1d.weight");
        weights.shape(&name).map(|shape| shape.len() == 3 && shape[2] == 1)
    });
    let is_checkpoint = matches!(weights.container(), Container::HuggingFace | Container::MlxPack);
    let is_whole = !is_checkpoint || is_moved == Some(true);
    Ok(if is_whole { Gain::Whole } else { Gain::FromOne })
}

impl Model for Qwen35 {
    fn info(&self) -> &ModelInfo {
        &self.decoder.info
    }

    fn forward(&self, rec: &mut Recorder) -> Tensor {
        self.decoder.forward(rec)
    }

    fn vision(&self) -> Option<&VisionTower> {
        self.vision.as_ref()
    }

    fn prediction_head(&self) -> Option<&dyn PredictionHead> {
        self.mtp.as_ref().map(|mtp| mtp as &dyn PredictionHead)
    }
}

impl PredictionHead for Mtp {
    fn kv(&self) -> KvShape {
        self.kv
    }

    fn forward(&self, rec: &mut Recorder) -> Tensor {
        let angles = rec.rotary_angles(&self.rope.frequencies);
        let next = rec.embed(&self.embed);
        let next = self.embed_norm.forward(rec, next);
        let hidden = rec.input(0, self.hidden);
        let hidden = self.hidden_norm.forward(rec, hidden);
        let x = rec.concat(next, hidden);
        let x = self.join.forward(rec, x);
        let x = self.layer.forward(rec, x, (&self.rope, angles), 0);
        let x = rec.gather_rows(x);
        let x = self.norm.forward(rec, x);
        rec.tap(Tap::FinalNorm, x);
        self.head.forward(rec, x)
    }
}
